/* tape.c -- see tape.h.
 *
 * Every thread of a step runs the text; thread 0 keeps the books and publishes what is to be copied, and all threads
 * copy rows.  What is published for one operation and for the next lies in two places by turns, and the threads meet
 * once for each operation: so thread 0 never overwrites what another still reads. */
#include "train/tape.h"

#include <string.h>

#include "ops/back/inside.h"

enum { MAX_BASES = 4096, MAX_OPS = 8192, MAX_COPIES = 10, MAX_THREADS = 256, MAX_KV = 1024 };

/* An activation, from when it was made to when it was released. */
typedef struct base {
    int rows, cols, version;
    int saved_version; /* of the values at `saved`; -1: none */
    rg_mat saved, grad;
    bool is_zero;  /* the gradient is 0, whatever stands in it; */
    bool is_given; /*   not so of one that is the caller's */
} base;

/* Columns [first, first + cols) of an activation, and its values there if they were kept. */
typedef struct operand {
    int base; /* -1: there is none */
    int first, cols;
    rg_mat values;
} operand;

typedef struct record {
    rg_op op;
    int layer;
    rg_act act[10]; /* handles of out and in */
    rg_attend_params attend;
    rg_routing routing;
    rg_linear_attention_params recurrence;
    rg_decay_params decay;
    operand out[3], in[7];
    int kv; /* number of its K/V; -1 */
} record;

/* K and V of one layer. */
typedef struct kept_kv {
    const rg_kv *kv;
    rg_back_kv at;
    bool is_zero; /* the gradients are, whatever stands in them */
} kept_kv;

/* Rows of activation number `act` are copied to `to`. */
typedef struct copying {
    int act;
    rg_mat to;
} copying;

typedef struct published {
    copying before[MAX_COPIES], after[2];
    int n_before, n_after;
} published;

/* What the tapes of one step share: K and V, and room for the gradients of the layer that is walked. */
typedef struct common {
    rg_slab kv_room, work;
    kept_kv kv[MAX_KV];
    int n_kv;
    rg_routes *routes; /* or NULL */
} common;

struct rg_tape {
    rg_reader reader; /* first */
    rg_back_lane *lane;
    rg_tape_find *find;
    void *find_arg;
    const rg_batch *batch;
    const rg_back_chain *chain; /* or NULL */
    rg_mat d_features;
    bool on, failed; /* failed: no memory, or too many operations */
    rg_slab layer;   /* of values */
    common *common;
    bool is_first; /* the common part is its own */
    base *bases;
    int n_bases, base_of[RG_MAX_ACTS]; /* of the activations that are alive */
    record **records;
    int n_records, n_made;
    published two[2];
    unsigned turn[MAX_THREADS];
};

/* ---- bases ------------------------------------------------------------------------------------------------------- */

static int whole_of(const rg_fwd *f, const rg_act *a)
{
    return a->shown >= 0 ? a->shown : (int)(a - f->acts);
}

static void new_base(rg_tape *t, const rg_fwd *f, int act)
{
    const rg_act *a = &f->acts[act];

    if (t->n_bases == MAX_BASES) {
        t->failed = true;
        t->n_bases--;
    }
    t->bases[t->n_bases] = (base){ .rows = a->rows, .cols = a->cols, .saved_version = -1 };
    t->base_of[act] = t->n_bases++;
}

/* Activations that the computing reader has not met yet. */
static void see_new(rg_tape *t, const rg_fwd *f)
{
    for (int i = f->n_known; i < f->n_acts; i++)
        if (f->acts[i].shown < 0)
            new_base(t, f, i);
}

static base *base_at(rg_tape *t, const rg_fwd *f, const rg_act *a)
{
    return &t->bases[t->base_of[whole_of(f, a)]];
}

static operand operand_of(const rg_tape *t, const rg_fwd *f, const rg_act *a)
{
    if (!a)
        return (operand){ .base = -1 };
    return (operand){ .base = t->base_of[whole_of(f, a)], .first = a->first, .cols = a->cols };
}

static rg_mat columns(const rg_mat *m, int first, int cols)
{
    return (rg_mat){ m->at ? m->at + first : NULL, m->ld, m->rows, cols };
}

/* The values of an activation as it stands now are kept, if they are not yet: asks for a copy. */
static rg_mat keep(rg_tape *t, const rg_fwd *f, const rg_act *a, copying *to, int *n)
{
    base *b = base_at(t, f, a);

    if (b->saved_version != b->version) {
        b->saved = rg_slab_mat(&t->layer, b->rows, b->cols);
        b->saved_version = b->version;
        t->failed = t->failed || !b->saved.at;
        if (b->saved.at)
            to[(*n)++] = (copying){ whole_of(f, a), b->saved };
    }
    return columns(&b->saved, a->first, a->cols);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static record *new_record(rg_tape *t)
{
    if (t->n_records == t->n_made) {
        record *r = t->n_made < MAX_OPS ? rg_zalloc(sizeof *r) : NULL;

        if (!r) {
            t->failed = true;
            return NULL;
        }
        t->records[t->n_made++] = r;
    }
    return t->records[t->n_records++];
}

/* Handles alone are kept of activations: pointers into the step's own would not outlive it. */
static void copy_op(const rg_tape *t, record *r, const rg_fwd *f, const rg_op *op)
{
    int n = 0;

    r->op = *op;
    r->layer = f->layer;
    r->kv = -1;
    for (int i = 0; i < 3; i++) {
        r->out[i] = operand_of(t, f, op->out[i]);
        if (op->out[i]) {
            r->act[n] = *op->out[i];
            r->op.out[i] = &r->act[n++];
        }
    }
    for (int i = 0; i < 7; i++) {
        r->in[i] = operand_of(t, f, op->in[i]);
        if (op->in[i]) {
            r->act[n] = *op->in[i];
            r->op.in[i] = &r->act[n++];
        }
    }
    if (op->attend)
        r->attend = *op->attend, r->op.attend = &r->attend;
    if (op->routing)
        r->routing = *op->routing, r->op.routing = &r->routing;
    if (op->recurrence)
        r->recurrence = *op->recurrence, r->op.recurrence = &r->recurrence;
    if (op->decay)
        r->decay = *op->decay, r->op.decay = &r->decay;
}

/* ---- K and V ----------------------------------------------------------------------------------------------------- */

static int kv_of(rg_tape *t, const rg_kv *kv, int n)
{
    const int rows = t->chain ? t->chain->n_steps * n : n;
    common *c = t->common;
    kept_kv *k;

    for (int i = 0; i < c->n_kv; i++) /* layers that share them have descriptions of their own of one place */
        if (c->kv[i].kv->group == kv->group && c->kv[i].kv->offset == kv->offset)
            return i;
    if (c->n_kv == MAX_KV) {
        t->failed = true;
        return -1;
    }
    k = &c->kv[c->n_kv];
    *k = (kept_kv){ .kv = kv, .is_zero = true };
    k->at.k = rg_slab_mat(&c->kv_room, rows, kv->n_heads * kv->k_dim);
    k->at.dk = rg_slab_mat(&c->kv_room, rows, kv->n_heads * kv->k_dim);
    if (!kv->latent) {
        k->at.v = rg_slab_mat(&c->kv_room, rows, kv->n_heads * kv->v_dim);
        k->at.dv = rg_slab_mat(&c->kv_room, rows, kv->n_heads * kv->v_dim);
    }
    if (!k->at.k.at || !k->at.dk.at || (!kv->latent && (!k->at.v.at || !k->at.dv.at))) {
        t->failed = true;
        return -1;
    }
    return c->n_kv++;
}

static rg_mat rows_from(const rg_mat *m, int first)
{
    return (rg_mat){ m->at ? rg_mat_row(m, first) : NULL, m->ld, m->rows - first, m->cols };
}

static int keep_kv(rg_tape *t, const rg_fwd *f, const rg_op *op, published *p)
{
    const int i = kv_of(t, op->kv, op->in[0]->rows);

    if (i < 0)
        return -1;
    const rg_back_kv *at = &t->common->kv[i].at;
    const int first = (t->chain ? t->chain->step : 0) * op->in[0]->rows;
    const rg_mat k = rows_from(&at->k, first), v = rows_from(&at->v, first);
    p->before[p->n_before++] = (copying){ (int)(op->in[0] - f->acts), columns(&k, 0, op->in[0]->cols) };
    p->before[p->n_before++] =
        (copying){ (int)(op->in[1] - f->acts), op->kv->latent ? columns(&k, op->in[0]->cols, op->in[1]->cols) : v };
    return i;
}

/* ---- routers ----------------------------------------------------------------------------------------------------- */

void rg_tape_routes(rg_tape *t, rg_routes *to)
{
    t->common->routes = to;
}

static void keep_route(rg_tape *t, const rg_fwd *f, const rg_op *op, published *p)
{
    rg_routes *to = t->common->routes;
    const int i = rg_routes_add(to, op->routing, op->in[0]->rows, op->out[0]->cols);

    if (i < 0) {
        t->failed = true;
        return;
    }
    p->before[p->n_before++] = (copying){ (int)(op->in[0] - f->acts), to->at[i].logits };
    p->after[p->n_after++] = (copying){ (int)(op->out[0] - f->acts), to->at[i].chosen };
}

/* ---- the reader -------------------------------------------------------------------------------------------------- */

/* Thread 0: the books of an operation that is about to run. */
static void note_down(rg_tape *t, const rg_fwd *f, const rg_op *op, published *p)
{
    const int needs = rg_back_of(op->kind)->needs;

    p->n_before = p->n_after = 0;
    see_new(t, f);
    if (t->failed || f->guessing)
        return;
    if (op->kind == RG_OP_ROUTE && t->common->routes)
        keep_route(t, f, op, p);
    if (!t->on) {
        if (op->kind == RG_OP_KV_STORE)
            keep_kv(t, f, op, p);
        return;
    }
    record *r = new_record(t);

    if (!r)
        return;
    copy_op(t, r, f, op);
    if (op->kind == RG_OP_KV_STORE)
        r->kv = keep_kv(t, f, op, p);
    else if (op->kv)
        r->kv = kv_of(t, op->kv, op->in[0]->rows);
    for (int i = 0; i < 7 && op->kind != RG_OP_KV_STORE; i++)
        if (op->in[i] && (needs & RG_BACK_IN(i)))
            r->in[i].values = keep(t, f, op->in[i], p->before, &p->n_before);
    if (op->out[0] && (needs & RG_BACK_BEFORE))
        r->out[0].values = keep(t, f, op->out[0], p->before, &p->n_before);
    for (int i = 0; i < 3; i++)
        if (op->out[i])
            base_at(t, f, op->out[i])->version++;
    if (op->out[0] && (needs & RG_BACK_OUT))
        r->out[0].values = keep(t, f, op->out[0], p->after, &p->n_after);
}

static void take_row(void *arg, int row, const float *x)
{
    const rg_mat *to = arg;

    memcpy(rg_mat_row(to, row), x, (size_t)to->cols * sizeof *x);
}

static void copy_all(rg_fwd *f, copying *c, int n)
{
    for (int i = 0; i < n; i++)
        rg_act_fetch(f, &f->acts[c[i].act], take_row, &c[i].to);
}

static void run_tape(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_tape *t = (rg_tape *)(uintptr_t)self;
    published *p = &t->two[t->turn[f->thread]++ % 2];

    if (f->thread == 0) {
        rg_mem_permit(); /* this is not a serving step */
        note_down(t, f, op, p);
        rg_mem_forbid();
    }
    rg_fwd_meet(f);
    copy_all(f, p->before, p->n_before);
    self->inner->run(self->inner, f, op);
    copy_all(f, p->after, p->n_after);
}

const rg_reader *rg_tape_wrap(rg_tape *t, const rg_reader *inner)
{
    t->reader = (rg_reader){ .run = run_tape, .inner = inner };
    return &t->reader;
}

rg_tape *rg_tape_new(rg_back_lane *lane, rg_tape_find *find, void *find_arg, rg_tape *first, rg_error *err)
{
    rg_tape *t = rg_zalloc(sizeof *t);

    if (t) {
        t->lane = lane;
        t->find = find;
        t->find_arg = find_arg;
        t->is_first = !first;
        t->common = first ? first->common : rg_zalloc(sizeof *t->common);
        t->bases = rg_array(MAX_BASES, sizeof *t->bases);
        t->records = rg_array(MAX_OPS, sizeof *t->records);
    }
    if (!t || !t->bases || !t->records || !t->common || lane->n_threads > MAX_THREADS) {
        rg_tape_free(t);
        rg_fail_memory(err, MAX_BASES * sizeof *t->bases);
        return NULL;
    }
    return t;
}

void rg_tape_free(rg_tape *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n_made; i++)
        rg_free(t->records[i]);
    rg_free(t->records);
    rg_free(t->bases);
    rg_slab_fini(&t->layer);
    if (t->is_first && t->common) {
        rg_slab_fini(&t->common->kv_room);
        rg_slab_fini(&t->common->work);
        rg_free(t->common);
    }
    rg_free(t);
}

void rg_tape_begin_chain(rg_tape *t, const rg_batch *batch, const rg_back_chain *chain)
{
    t->batch = batch;
    t->chain = chain;
    t->d_features = (rg_mat){ 0 };
    t->failed = false;
    if (t->is_first && (!chain || !chain->step)) {
        t->common->n_kv = 0;
        rg_slab_reset(&t->common->kv_room);
    }
    rg_tape_reset(t, true);
}

void rg_tape_begin(rg_tape *t, const rg_batch *batch)
{
    rg_tape_begin_chain(t, batch, NULL);
}

void rg_tape_features(rg_tape *t, const rg_mat *grad)
{
    t->d_features = *grad;
}

size_t rg_tape_bytes(const rg_tape *t)
{
    return rg_slab_floats(&t->layer) * sizeof(float);
}

void rg_tape_reset(rg_tape *t, bool on)
{
    t->on = on;
    t->n_records = t->n_bases = 0;
    memset(t->turn, 0, sizeof t->turn);
    rg_slab_reset(&t->layer);
}

void rg_tape_carry(rg_tape *t, const rg_fwd *f, const rg_act *a, const rg_mat *grad)
{
    if (f->thread != 0)
        return;
    new_base(t, f, (int)(a - f->acts));
    if (grad)
        rg_tape_seed(t, f, a, grad);
}

void rg_tape_seed(rg_tape *t, const rg_fwd *f, const rg_act *a, const rg_mat *grad)
{
    base *b = base_at(t, f, a);

    b->grad = *grad;
    b->is_given = true;
}

/* ---- walking back ------------------------------------------------------------------------------------------------ */

static void clear_rows(void *arg, int first, int n, int block, int thread)
{
    const rg_mat *m = arg;

    (void)block, (void)thread;
    for (int r = first; r < first + n; r++)
        memset(rg_mat_row(m, r), 0, (size_t)m->cols * sizeof(float));
}

static void clear(const rg_tape *t, const rg_mat *m)
{
    rg_back_each_rows(t->lane, m->rows, clear_rows, (void *)(uintptr_t)m);
}

/* True if an operand is all of an activation, whose gradient is 0: it may be written instead of added to. */
static bool is_untouched(const rg_tape *t, const operand *o)
{
    const base *b = &t->bases[o->base];

    return (!b->grad.at || b->is_zero) && o->first == 0 && o->cols == b->cols;
}

/* The gradient of an operand, of zeros if nothing behind it has one yet; to be written: of anything. */
static rg_mat gradient(rg_tape *t, const operand *o, bool to_write)
{
    if (o->base < 0)
        return (rg_mat){ 0 };
    base *b = &t->bases[o->base];
    if (!b->grad.at) {
        b->grad = rg_slab_mat(&t->common->work, b->rows, b->cols);
        b->is_zero = true;
        if (!b->grad.at) {
            t->failed = true;
            return (rg_mat){ 0 };
        }
    }
    if (b->is_zero && !to_write)
        clear(t, &b->grad);
    b->is_zero = false;
    return columns(&b->grad, o->first, o->cols);
}

/* What an operation wrote had no value before. */
static void forget(rg_tape *t, const operand *o, const rg_mat *grad)
{
    base *b = &t->bases[o->base];

    if (o->first == 0 && o->cols == b->cols && !b->is_given)
        b->is_zero = true;
    else if (!b->is_zero)
        clear(t, grad);
}

/* True if something behind the operation depends on what it wrote. */
static bool matters(const rg_tape *t, const record *r)
{
    bool yes = r->op.kind == RG_OP_KV_STORE;

    for (int i = 0; i < 3; i++)
        yes = yes || (r->out[i].base >= 0 && t->bases[r->out[i].base].grad.at);
    return yes;
}

static bool reads_what_it_writes(const record *r)
{
    bool yes = false;

    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 7; k++)
            yes = yes || (r->out[i].base >= 0 && r->out[i].base == r->in[k].base);
    return yes;
}

/* Where an operation wrote over one of its operands, its gradient is moved away, since it is added to as well. */
static bool move_gradients(rg_tape *t, rg_back *b)
{
    for (int i = 0; i < 3; i++) {
        rg_mat *d = &b->d_out[i], to;

        if (!d->at)
            continue;
        to = rg_slab_mat(&t->common->work, d->rows, d->cols);
        if (!to.at)
            return t->failed = true, false;
        for (int r = 0; r < d->rows; r++)
            memcpy(rg_mat_row(&to, r), rg_mat_row(d, r), (size_t)d->cols * sizeof(float));
        clear(t, d);
        *d = to;
    }
    return true;
}

static void find_weights(const rg_tape *t, rg_back *b)
{
    for (int i = 0; i < 3; i++) {
        if (b->op->w[i])
            t->find(t->find_arg, b->op->w[i], &b->w[i], &b->dw[i]);
        if (b->op->b[i])
            t->find(t->find_arg, b->op->b[i], &b->b[i], &b->db[i]);
    }
}

/* K and V of an operation, with gradients to add to. */
static const rg_back_kv *kv_to_add_to(rg_tape *t, const record *r)
{
    kept_kv *k = r->kv >= 0 ? &t->common->kv[r->kv] : NULL;

    if (k && k->is_zero) {
        clear(t, &k->at.dk);
        if (k->at.dv.at)
            clear(t, &k->at.dv);
        k->is_zero = false;
    }
    return k ? &k->at : NULL;
}

static bool walk_one(rg_tape *t, record *r, rg_error *err)
{
    const rg_back_kind *kind = rg_back_of(r->op.kind);
    rg_back b = {
        .lane = t->lane,
        .op = &r->op,
        .batch = t->batch,
        .chain = t->chain,
        .d_features = t->d_features,
    };
    const bool writes = !r->op.accumulate && !(kind->needs & RG_BACK_IN_PLACE);
    bool moved = false;

    if (!matters(t, r))
        return true;
    if (!rg_back_can(&r->op, err))
        return false;
    b.kv = kv_to_add_to(t, r);
    for (int i = 0; i < 3; i++) {
        b.out[i] = r->out[i].values;
        b.d_out[i] = gradient(t, &r->out[i], false);
    }
    for (int i = 0; i < 7; i++) {
        b.in[i] = r->in[i].values;
        b.write_in[i] = (kind->needs & RG_BACK_WRITES) && r->in[i].base >= 0 && is_untouched(t, &r->in[i]);
        b.d_in[i] = gradient(t, &r->in[i], b.write_in[i]);
    }
    find_weights(t, &b);
    if (writes && reads_what_it_writes(r)) {
        if (!move_gradients(t, &b))
            return true;
        moved = true;
    }
    if (t->failed)
        return true;
    const rg_back_mark mark = { t->lane->piece, t->lane->used };
    kind->run(&b);
    t->lane->piece = mark.piece;
    t->lane->used = mark.used;
    for (int i = 0; i < 3 && writes && !moved; i++)
        if (b.d_out[i].at)
            forget(t, &r->out[i], &b.d_out[i]);
    return true;
}

bool rg_tape_walk(rg_tape *t, rg_tape_note *note, void *arg, rg_error *err)
{
    rg_slab_reset(&t->common->work);
    for (int i = t->n_records; i-- > 0 && !t->failed && !t->lane->failed;) {
        record *r = t->records[i];

        if (r->op.kind == RG_OP_NOTE) {
            const rg_mat d = gradient(t, &r->in[0], false);

            if (note && d.at)
                note(arg, r->layer, &d);
        } else if (!(rg_back_of(r->op.kind)->needs & RG_BACK_NONE) && !walk_one(t, r, err)) {
            return false;
        }
    }
    return (!t->failed && !t->lane->failed) || rg_fail_memory(err, 0);
}
