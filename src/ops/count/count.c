/* count.c -- see count.h. */
#include "ops/count/count.h"

#include <string.h>

static double stored_bytes(const rg_weight *w)
{
    const rg_format *fmt = rg_format_of(w->type);

    return (double)w->rows * (double)w->cols / fmt->block_len * fmt->block_bytes;
}

static bool is_integer(const rg_weight *w)
{
    return rg_format_of(w->type)->layout > RG_LAYOUT_BF16;
}

static void count_linear(const rg_op *op, int n_rows, rg_count *c)
{
    for (int i = 0; i < 3 && op->w[i]; i++) {
        const rg_weight *w = op->w[i];
        c->ops += 2.0 * n_rows * (double)w->n_mats * (double)w->rows * (double)w->cols;
        c->weight_bytes += (double)w->n_mats * stored_bytes(w);
    }
}

/* Rows choose experts independently: E (1 - (1 - k / E)^n) of them are expected to be used. */
static void count_moe(const rg_op *op, int n_rows, rg_count *c)
{
    double unused = 1, k = op->routing->n_used, e = op->routing->n_experts;

    for (int i = 0; i < n_rows; i++)
        unused *= 1 - k / e;
    for (int i = 0; i < 3; i++) {
        c->ops += 2.0 * n_rows * k * (double)op->w[i]->rows * (double)op->w[i]->cols;
        c->weight_bytes += e * (1 - unused) * stored_bytes(op->w[i]);
    }
}

static double kv_row_bytes(const rg_kv *kv)
{
    double values = kv->latent ? kv->k_dim : (double)kv->n_heads * (kv->k_dim + kv->v_dim);

    return values * rg_format_of(kv->type)->block_bytes;
}

static void count_attention(const rg_fwd *f, const rg_op *op, rg_count *c)
{
    const rg_batch *b = f->batch;
    const rg_kv *kv = op->kv;

    for (int s = 0; s < b->n_spans; s++) {
        int lowest = INT32_MAX, highest = 0;
        for (int r = b->spans[s].first_row; r < b->spans[s].first_row + b->spans[s].n_rows; r++) {
            int lo = kv->window && b->index[r] - kv->window + 1 > 0 ? b->index[r] - kv->window + 1 : 0;
            lowest = lo < lowest ? lo : lowest;
            highest = b->kv_end[r] > highest ? b->kv_end[r] : highest;
            c->ops += 2.0 * op->n * (kv->k_dim + kv->v_dim) * (b->kv_end[r] - lo);
        }
        c->state_bytes += kv_row_bytes(kv) * (highest - lowest);
    }
}

/* Six operations per element of the state: dt A, its product with h, dt B x (two), C h and the sum. */
static void count_scan(const rg_fwd *f, const rg_op *op, rg_count *c)
{
    const rg_recurrent *r = op->rec;

    c->ops += 6.0 * f->batch->n_rows * r->d_inner * r->d_state;
    c->weight_bytes += (double)(op->w[0]->rows * op->w[0]->cols + op->w[1]->cols) * sizeof(float);
    c->state_bytes += 2.0 * f->batch->n_spans * r->d_inner * r->d_state * sizeof(float);
}

static void count_conv(const rg_fwd *f, const rg_op *op, rg_count *c)
{
    const rg_recurrent *r = op->rec;

    c->ops += 2.0 * f->batch->n_rows * r->d_inner * r->d_conv;
    c->weight_bytes += (double)(op->w[0]->rows * op->w[0]->cols) * sizeof(float);
    c->state_bytes += 2.0 * f->batch->n_spans * r->d_inner * (r->d_conv - 1) * sizeof(float);
}

static rg_count count_op(const rg_fwd *f, const rg_op *op)
{
    rg_count c = { 0 };
    int n_rows = op->out[0] ? op->out[0]->rows : f->batch->n_rows;

    switch (op->kind) {
    case RG_OP_EMBED: c.weight_bytes = n_rows * stored_bytes(op->w[0]) / (double)op->w[0]->rows; break;
    case RG_OP_LINEAR:
    case RG_OP_LINEAR_HEADS:
    case RG_OP_GATED: count_linear(op, n_rows, &c); break;
    case RG_OP_MOE: count_moe(op, n_rows, &c); break;
    case RG_OP_RMSNORM: c.weight_bytes = (double)op->w[0]->cols * sizeof(float); break;
    case RG_OP_KV_STORE: c.state_bytes = kv_row_bytes(op->kv) * f->batch->n_rows; break;
    case RG_OP_ATTENTION:
    case RG_OP_MLA_ATTENTION: count_attention(f, op, &c); break;
    case RG_OP_CONV: count_conv(f, op, &c); break;
    case RG_OP_SCAN: count_scan(f, op, &c); break;
    default: break;
    }
    return c;
}

static void add(rg_count *to, const rg_count *c)
{
    to->ops += c->ops;
    to->weight_bytes += c->weight_bytes;
    to->state_bytes += c->state_bytes;
}

static void run(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_counter *counter = (rg_counter *)(uintptr_t)self; /* the reader is its first member */
    rg_count c = count_op(f, op);

    if (op->kind == RG_OP_NOTE)
        return;
    add(&counter->total, &c);
    add(&counter->by_kind[op->kind], &c);
    if (counter->list && counter->n_ops < counter->list_room)
        counter->list[counter->n_ops] = (rg_counted){ .kind = op->kind, .layer = f->layer,
                                                      .name = op->out[0] ? op->out[0]->name : "kv",
                                                      .integer = op->w[0] && is_integer(op->w[0]), .count = c };
    counter->n_ops++;
}

void rg_counter_init(rg_counter *c, rg_counted *list, int list_room)
{
    memset(c, 0, sizeof *c);
    c->reader.run = run;
    c->list = list;
    c->list_room = list_room;
}

void rg_count_fwd(rg_fwd *f, rg_counter *c, const rg_batch *batch)
{
    memset(f, 0, sizeof *f);
    f->reader = &c->reader;
    f->batch = batch;
    f->n_threads = 1;
    f->layer = -1;
    f->arena_bytes = SIZE_MAX / 2;
}
