/* counted.c -- see counted.h.  What is kept follows the table that the tape's copies follow (rg_back_of), each version
 * of an activation once. */
#include "ops/back/counted.h"

#include <string.h>

#include "ops/back/inside.h"

static int whole_of(const rg_fwd *f, const rg_act *a)
{
    return a->shown >= 0 ? a->shown : (int)(a - f->acts);
}

static double bytes_of(int rows, int cols)
{
    return (double)rows * (double)rg_back_whole((size_t)cols) * sizeof(float);
}

static void keep(rg_back_count *c, const rg_fwd *f, const rg_act *a)
{
    const int i = whole_of(f, a);

    if (c->saved[i] == c->version[i])
        return;
    c->saved[i] = c->version[i];
    c->kept_bytes += bytes_of(f->acts[i].rows, f->acts[i].cols);
}

static void keep_kv(rg_back_count *c, const rg_kv *kv, int rows)
{
    c->kv_bytes += 2 * bytes_of(rows, kv->n_heads * kv->k_dim);
    if (!kv->latent)
        c->kv_bytes += 2 * bytes_of(rows, kv->n_heads * kv->v_dim);
}

static void run(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_back_count *c = (rg_back_count *)(uintptr_t)self;
    const int needs = rg_back_of(op->kind)->needs;
    const bool attends = op->kind == RG_OP_ATTENTION || op->kind == RG_OP_MLA_ATTENTION;
    const double before = c->counter.total.ops;

    if (!c->cannot && !(needs & RG_BACK_NONE))
        c->cannot = !rg_back_can(op, &c->why);
    if (op->kind == RG_OP_KV_STORE)
        keep_kv(c, op->kv, op->in[0]->rows);
    for (int i = 0; i < 7 && op->kind != RG_OP_KV_STORE; i++)
        if (op->in[i] && (needs & RG_BACK_IN(i)))
            keep(c, f, op->in[i]);
    if (op->out[0] && (needs & RG_BACK_BEFORE))
        keep(c, f, op->out[0]);
    for (int i = 0; i < 3; i++)
        if (op->out[i])
            c->version[whole_of(f, op->out[i])]++;
    if (op->out[0] && (needs & RG_BACK_OUT))
        keep(c, f, op->out[0]);
    self->inner->run(self->inner, f, op);
    c->backward_ops += (attends ? 2.5 : 2.0) * (c->counter.total.ops - before);
}

static void add_values(void *arg, const rg_counted *op)
{
    rg_back_count *c = arg;
    const bool attends = op->kind == RG_OP_ATTENTION || op->kind == RG_OP_MLA_ATTENTION;

    c->values += op->outs > 0 ? op->outs : op->cells;
    if (attends)
        c->values += (double)op->n_rows * op->width / 2;
}

void rg_back_count_reset(rg_back_count *c)
{
    c->kept_bytes = 0;
    for (int i = 0; i < RG_MAX_ACTS; i++)
        c->saved[i] = -1;
}

void rg_back_count_fwd(rg_fwd *f, rg_back_count *c, const rg_batch *batch)
{
    memset(c, 0, sizeof *c);
    rg_counter_init(&c->counter, NULL, 0);
    c->counter.each = add_values;
    c->counter.arg = c;
    rg_back_count_reset(c);
    rg_count_fwd(f, &c->counter, batch);
    c->reader = (rg_reader){ .run = run, .inner = f->reader };
    f->reader = &c->reader;
    f->apart = true;
}
