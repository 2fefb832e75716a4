/* ops.c -- activations of a step, and the operations as records for the reader.
 *
 * Activations are a stack.  Every thread makes the same handles in the same order, so their numbers agree without being
 * shared.  Shapes are checked here once, for all readers; a wrong one is a bug in a model's text. */
#include "ops/ops.h"

#include <string.h>

const char *rg_op_name(rg_op_kind kind)
{
    static const char *const names[] = {
#define OP(KIND, name) name,
#include "ops/ops.def"
#undef OP
    };

    return names[kind];
}

static rg_act *handle(rg_fwd *f, const char *name, int rows, int cols)
{
    rg_act *a;

    RG_ASSERT(f->n_acts < RG_MAX_ACTS && rows >= 0 && cols > 0);
    a = &f->acts[f->n_acts++];
    *a = (rg_act){ .name = name, .rows = rows, .cols = cols, .layer = f->layer, .shown = -1 };
    return a;
}

rg_act *rg_act_rows(rg_fwd *f, const char *name, int rows, int cols)
{
    return handle(f, name, rows, cols);
}

rg_act *rg_act_new(rg_fwd *f, const char *name, int cols)
{
    return handle(f, name, f->batch->n_rows, cols);
}

/* A view of a view shows the same activation. */
rg_act *rg_act_view(rg_fwd *f, const char *name, const rg_act *a, int first, int cols)
{
    rg_act *v = handle(f, name, a->rows, cols);

    RG_ASSERT(first >= 0 && first + cols <= a->cols);
    v->shown = a->shown >= 0 ? a->shown : (int)(a - f->acts);
    v->first = a->first + first;
    return v;
}

rg_act *rg_act_find(rg_fwd *f, const char *name)
{
    rg_act *found = NULL;

    for (int i = 0; i < f->n_acts && !found; i++)
        if (f->acts[i].layer < 0 && !strcmp(f->acts[i].name, name))
            found = &f->acts[i];
    RG_ASSERT(found);
    return found;
}

int rg_act_mark(const rg_fwd *f)
{
    return f->n_acts;
}

void rg_act_release(rg_fwd *f, int mark)
{
    RG_ASSERT(mark >= 0 && mark <= f->n_acts);
    f->n_acts = mark;
    if (f->n_known > mark)
        f->n_known = mark;
}

static const rg_reader *bottom(const rg_fwd *f)
{
    const rg_reader *r = f->reader;

    while (r->inner)
        r = r->inner;
    return r;
}

bool rg_reader_computes(const rg_fwd *f)
{
    return bottom(f)->fetch;
}

void rg_act_fetch(rg_fwd *f, const rg_act *a, rg_take_row *take, void *arg)
{
    const rg_reader *r = bottom(f);

    if (r->fetch)
        r->fetch(r, f, a, take, arg);
}

void rg_act_put(rg_fwd *f, rg_act *a, rg_give_row *give, void *arg)
{
    const rg_reader *r = bottom(f);

    if (r->put)
        r->put(r, f, a, give, arg);
}

void rg_fwd_meet(rg_fwd *f)
{
    const rg_reader *r = bottom(f);

    if (r->meet)
        r->meet(r, f);
}

/* ---- handing an operation on ------------------------------------------------------------------------------------- */

static void run(rg_fwd *f, const rg_op *op)
{
    f->reader->run(f->reader, f, op);
}

/* True if their first values are the same. */
static bool at_one_place(const rg_fwd *f, const rg_act *a, const rg_act *b)
{
    const int of_a = a->shown >= 0 ? a->shown : (int)(a - f->acts),
              of_b = b->shown >= 0 ? b->shown : (int)(b - f->acts);

    return of_a == of_b && a->first == b->first;
}

static void check_vector(const rg_weight *w, int64_t n)
{
    RG_ASSERT(!w || w->n_mats * w->rows * w->cols == n);
}

static void check_matrix(const rg_weight *w, int rows, int cols)
{
    RG_ASSERT(w && w->rows == rows && w->cols == cols);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

void rg_embed(rg_fwd *f, rg_act *y, const rg_weight *table, float scale)
{
    RG_ASSERT(y->rows == f->batch->n_rows && y->cols == table->cols);
    run(f, &(rg_op){ .kind = RG_OP_EMBED, .out = { y }, .w = { table }, .x = scale, .n = 1 });
}

void rg_embed_beside(rg_fwd *f, rg_act *y, const rg_weight *table, float scale)
{
    RG_ASSERT(y->rows == f->batch->n_rows && y->cols == table->cols);
    run(f, &(rg_op){ .kind = RG_OP_EMBED, .out = { y }, .w = { table }, .x = scale });
}

void rg_embed_positions(rg_fwd *f, rg_act *y, const rg_weight *table, int offset)
{
    RG_ASSERT(y->rows == f->batch->n_rows && y->cols == table->cols && offset >= 0);
    run(f, &(rg_op){ .kind = RG_OP_EMBED_POSITIONS, .out = { y }, .accumulate = true, .w = { table }, .n = offset });
}

void rg_embed_types(rg_fwd *f, rg_act *y, const rg_weight *table)
{
    RG_ASSERT(y->rows == f->batch->n_rows && y->cols == table->cols && table->rows > 0);
    run(f, &(rg_op){ .kind = RG_OP_EMBED_TYPES, .out = { y }, .accumulate = true, .w = { table } });
}

void rg_read_features(rg_fwd *f, rg_act *y)
{
    RG_ASSERT(y->rows == f->batch->n_rows && (!f->batch->features || y->cols == f->batch->feature_cols));
    run(f, &(rg_op){ .kind = RG_OP_FEATURES, .out = { y } });
}

void rg_mean_rows(rg_fwd *f, rg_act *y, const rg_act *x)
{
    RG_ASSERT(y->cols == x->cols && y->rows == f->batch->n_scores && x->rows == f->batch->n_rows);
    run(f, &(rg_op){ .kind = RG_OP_MEAN_ROWS, .out = { y }, .in = { x } });
}

void rg_gather(rg_fwd *f, rg_act *y, const rg_act *x)
{
    RG_ASSERT(y->cols == x->cols && y->rows == f->batch->n_logits && x->rows == f->batch->n_rows);
    run(f, &(rg_op){ .kind = RG_OP_GATHER, .out = { y }, .in = { x } });
}

void rg_add_to(rg_fwd *f, rg_act *y, const rg_act *x)
{
    RG_ASSERT(y->rows == x->rows && y->cols == x->cols);
    run(f, &(rg_op){ .kind = RG_OP_ADD, .out = { y }, .in = { x }, .accumulate = true });
}

void rg_mul_by(rg_fwd *f, rg_act *y, const rg_act *x)
{
    RG_ASSERT(y->rows == x->rows && y->cols % x->cols == 0);
    run(f, &(rg_op){ .kind = RG_OP_MUL, .out = { y }, .in = { x }, .accumulate = true, .n = y->cols / x->cols });
}

void rg_scale_by(rg_fwd *f, rg_act *y, float s)
{
    run(f, &(rg_op){ .kind = RG_OP_SCALE, .out = { y }, .accumulate = true, .x = s });
}

void rg_scale_columns(rg_fwd *f, rg_act *y, const rg_weight *w)
{
    RG_ASSERT(w->cols > 0 && y->cols % w->cols == 0);
    check_vector(w, w->cols);
    run(f, &(rg_op){ .kind = RG_OP_SCALE_COLUMNS, .out = { y }, .accumulate = true, .w = { w },
                     .n = y->cols / (int)w->cols });
}

void rg_scale_by_type(rg_fwd *f, rg_act *y, const rg_weight *first, const rg_weight *second)
{
    RG_ASSERT(y->rows == f->batch->n_rows);
    check_vector(first, 1);
    check_vector(second, 1);
    run(f, &(rg_op){ .kind = RG_OP_SCALE_BY_TYPE, .out = { y }, .accumulate = true, .w = { first, second } });
}

void rg_keep_type(rg_fwd *f, rg_act *y, int type)
{
    RG_ASSERT(y->rows == f->batch->n_rows && (type == 0 || type == 1));
    run(f, &(rg_op){ .kind = RG_OP_KEEP_TYPE, .out = { y }, .accumulate = true, .n = type });
}

void rg_mix(rg_fwd *f, rg_act *y, const rg_act *x, const rg_act *m, int n)
{
    RG_ASSERT(y->rows == x->rows && m->rows == x->rows && !at_one_place(f, y, x));
    RG_ASSERT(n > 0 && x->cols % n == 0 && y->cols % n == 0 && m->cols == y->cols / n * (x->cols / n));
    run(f, &(rg_op){ .kind = RG_OP_MIX, .out = { y }, .in = { x, m }, .n = n });
}

void rg_match_rms(rg_fwd *f, rg_act *y, const rg_act *x, float floor)
{
    RG_ASSERT(y->rows == x->rows && y->cols == x->cols && floor > 0.0f);
    run(f, &(rg_op){ .kind = RG_OP_MATCH_RMS, .out = { y }, .in = { x }, .accumulate = true, .n = y->cols,
                     .x = floor });
}

void rg_cut_gate(rg_fwd *f, rg_act *y, const rg_act *x, float k)
{
    RG_ASSERT(y->rows == x->rows && y->cols == x->cols);
    run(f, &(rg_op){ .kind = RG_OP_CUT_GATE, .out = { y }, .in = { x }, .n = y->cols, .x = k });
}

void rg_scale_by_position(rg_fwd *f, rg_act *y, float beta, int period, int offset)
{
    RG_ASSERT(y->rows == f->batch->n_rows && period > 0 && offset >= 0);
    run(f, &(rg_op){ .kind = RG_OP_SCALE_BY_POSITION, .out = { y }, .accumulate = true, .n = period, .x = beta,
                     .y = (float)offset });
}

/* Any of the norms, over each run of n columns; weights are those of one run, or of all. */
static void norm(rg_fwd *f, rg_op_kind kind, rg_act *y, const rg_act *x, int64_t n, const rg_weight *const wb[2],
                 float eps)
{
    RG_ASSERT(y->rows == x->rows && y->cols == x->cols && n > 0 && x->cols % n == 0);
    RG_ASSERT(!wb[0] || wb[0]->cols == n || wb[0]->cols == x->cols);
    check_vector(wb[0], wb[0] ? wb[0]->cols : 0);
    check_vector(wb[1], wb[0] ? wb[0]->cols : 0);
    run(f, &(rg_op){ .kind = kind, .out = { y }, .in = { x }, .w = { wb[0] }, .b = { wb[1] }, .n = (int)n, .x = eps });
}

void rg_rmsnorm(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, float eps)
{
    norm(f, RG_OP_RMSNORM, y, x, w->cols, (const rg_weight *[]){ w, NULL }, eps);
}

void rg_rmsnorm_plain(rg_fwd *f, rg_act *y, const rg_act *x, int n, float eps)
{
    norm(f, RG_OP_RMSNORM, y, x, n, (const rg_weight *[]){ NULL, NULL }, eps);
}

void rg_rmsnorm_runs(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, int n, float eps)
{
    RG_ASSERT(w->cols == x->cols);
    norm(f, RG_OP_RMSNORM, y, x, n, (const rg_weight *[]){ w, NULL }, eps);
}

void rg_l2norm(rg_fwd *f, rg_act *y, const rg_act *x, int n, float eps)
{
    norm(f, RG_OP_L2NORM, y, x, n, (const rg_weight *[]){ NULL, NULL }, eps);
}

void rg_layernorm(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, const rg_weight *b, float eps)
{
    norm(f, RG_OP_LAYERNORM, y, x, w->cols, (const rg_weight *[]){ w, b }, eps);
}

void rg_layernorm_plain(rg_fwd *f, rg_act *y, const rg_act *x, int n, float eps)
{
    norm(f, RG_OP_LAYERNORM, y, x, n, (const rg_weight *[]){ NULL, NULL }, eps);
}

void rg_layernorm_runs(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, const rg_weight *b, int n, float eps)
{
    RG_ASSERT(w->cols == x->cols);
    norm(f, RG_OP_LAYERNORM, y, x, n, (const rg_weight *[]){ w, b }, eps);
}

void rg_act_mul(rg_fwd *f, rg_act *y, const rg_act *gate, const rg_act *up, rg_activation act)
{
    RG_ASSERT(y->rows == gate->rows && y->cols == gate->cols && up->rows == gate->rows && up->cols == gate->cols);
    run(f, &(rg_op){ .kind = RG_OP_ACT_MUL, .out = { y }, .in = { gate, up }, .act = act });
}

void rg_activate(rg_fwd *f, rg_act *y, const rg_act *x, rg_activation act)
{
    RG_ASSERT(y->rows == x->rows && y->cols == x->cols);
    run(f, &(rg_op){ .kind = RG_OP_ACTIVATE, .out = { y }, .in = { x }, .act = act });
}

void rg_taylor(rg_fwd *f, rg_act *y, const rg_act *x, int n)
{
    RG_ASSERT(y->rows == x->rows && n > 0 && x->cols % n == 0 && y->cols == x->cols / n * rg_taylor_cols(n));
    run(f, &(rg_op){ .kind = RG_OP_TAYLOR, .out = { y }, .in = { x }, .n = n });
}

void rg_softcap(rg_fwd *f, rg_act *x, float cap)
{
    RG_ASSERT(cap > 0.0f);
    run(f, &(rg_op){ .kind = RG_OP_SOFTCAP, .out = { x }, .accumulate = true, .x = cap });
}

void rg_soften(rg_fwd *f, rg_act *y, const rg_act *x)
{
    RG_ASSERT(y->rows == f->batch->n_logits && x->rows == y->rows && x->cols == y->cols && !at_one_place(f, y, x));
    run(f, &(rg_op){ .kind = RG_OP_SOFTEN, .out = { y }, .in = { x } });
}

void rg_note(rg_fwd *f, const rg_act *x)
{
    run(f, &(rg_op){ .kind = RG_OP_NOTE, .in = { x } });
}

/* ---- adapters ---------------------------------------------------------------------------------------------------- */

/* Rows of an activation, from row `first` on, that are a span's. */
static int rows_of(const rg_fwd *f, const rg_span *s, int first)
{
    const rg_batch *b = f->batch;
    int n = 0;

    if (f->layer >= 0)
        return s->n_rows;
    while (b->logit_rows && first + n < b->n_logits && b->logit_rows[first + n] < s->first_row + s->n_rows)
        n++;
    return n;
}

bool rg_adapted_next(const rg_fwd *f, rg_adapted *a)
{
    for (a->first += a->n, a->n = 0; a->span < f->batch->n_spans; a->span++) {
        const rg_span *s = &f->batch->spans[a->span];
        int n = rows_of(f, s, a->first + a->n);

        if (a->n && s->adapter != a->adapter) {
            if (a->adapter >= 0)
                return true;
            a->first += a->n;
            a->n = 0;
        }
        a->adapter = s->adapter;
        a->n += n;
    }
    return a->n && a->adapter >= 0;
}

/* True if some row of the step may need a delta of w. */
static bool has_deltas(const rg_fwd *f, const rg_weight *w)
{
    bool adapts = false;

    for (int i = 0; w->deltas && i < f->batch->n_spans && !adapts; i++)
        adapts = f->batch->spans[i].adapter >= 0;
    return adapts;
}

/* The deltas of what a linear operation has just multiplied with. */
static void adapt(rg_fwd *f, const rg_op *linear)
{
    rg_op op = { .kind = RG_OP_ADAPT, .in = { linear->in[0] }, .accumulate = true };
    int n = 0;

    for (int i = 0; i < 3 && linear->w[i]; i++)
        if (has_deltas(f, linear->w[i])) {
            op.w[n] = linear->w[i];
            op.out[n++] = linear->out[i];
        }
    if (!n)
        return;
    RG_ASSERT(linear->in[0]->rows == (f->layer >= 0 ? f->batch->n_rows : f->batch->n_logits));
    run(f, &op);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* x with 0 in place of values of magnitude `threshold` or less. */
static rg_act *sparsified(rg_fwd *f, const rg_act *x, float threshold)
{
    rg_act *y = rg_act_rows(f, "sparse", x->rows, x->cols);

    run(f, &(rg_op){ .kind = RG_OP_SPARSIFY, .out = { y }, .in = { x }, .x = threshold });
    return y;
}

/* x with its columns in the order of w's, for each of its matrices: x_stride apart, or the same; NULL: that is x. */
static rg_act *permuted(rg_fwd *f, const rg_act *x, const rg_weight *w, int x_stride)
{
    const int64_t runs = x_stride ? w->n_mats : 1;
    rg_act *y = w->order ? rg_act_rows(f, "permuted", x->rows, (int)(runs * w->cols)) : NULL;

    if (y)
        run(f, &(rg_op){ .kind = RG_OP_PERMUTE, .out = { y }, .in = { x }, .w = { w }, .n = x_stride });
    return y;
}

/* True if two matrices read one input in the same form. */
static bool read_alike(const rg_weight *a, const rg_weight *b)
{
    return a->threshold == b->threshold && a->order == b->order;
}

/* The products of an operation, those of matrices that read its input alike together. */
static void run_parts(rg_fwd *f, const rg_op *op, int n)
{
    bool done[3] = { false };

    for (int i = 0; i < n; i++) {
        const int mark = rg_act_mark(f);
        rg_op part = { .kind = op->kind, .accumulate = op->accumulate, .in = { op->in[0] } };

        for (int k = i, n_part = 0; k < n && !done[i]; k++)
            if (!done[k] && read_alike(op->w[k], op->w[i])) {
                part.out[n_part] = op->out[k];
                part.w[n_part] = op->w[k];
                part.b[n_part++] = op->b[k];
                done[k] = k != i;
            }
        if (done[i])
            continue;
        if (op->w[i]->threshold > 0)
            part.in[0] = sparsified(f, op->in[0], op->w[i]->threshold);
        part.in[1] = permuted(f, part.in[0], op->w[i], 0);
        run(f, &part);
        rg_act_release(f, mark);
    }
}

static void linear(rg_fwd *f, rg_op *op, int n)
{
    bool as_it_is = true;

    op->kind = RG_OP_LINEAR;
    for (int i = 0; i < n; i++) {
        RG_ASSERT(op->out[i]->rows == op->in[0]->rows && op->w[i]->n_mats == 1);
        check_matrix(op->w[i], op->out[i]->cols, op->in[0]->cols);
        check_vector(op->b[i], op->out[i]->cols);
        as_it_is = as_it_is && op->w[i]->threshold <= 0 && !op->w[i]->order;
    }
    if (as_it_is)
        run(f, op);
    else
        run_parts(f, op, n);
    adapt(f, op);
}

void rg_linear(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, const rg_weight *b)
{
    linear(f, &(rg_op){ .out = { y }, .in = { x }, .w = { w }, .b = { b } }, 1);
}

void rg_linear_head(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, const rg_weight *b, rg_head_shape shape)
{
    linear(f, &(rg_op){ .out = { y }, .in = { x }, .w = { w }, .b = { b }, .is_head = true, .x = shape.scale,
                        .y = shape.cap }, 1);
}

void rg_linear_add(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, const rg_weight *b)
{
    linear(f, &(rg_op){ .out = { y }, .in = { x }, .w = { w }, .b = { b }, .accumulate = true }, 1);
}

void rg_linear3(rg_fwd *f, rg_act *const y[3], const rg_act *x, const rg_weight *const w[3],
                const rg_weight *const b[3])
{
    rg_op op = { .in = { x } };
    int n = 0;

    for (; n < 3 && w[n]; n++) {
        op.out[n] = y[n];
        op.w[n] = w[n];
        op.b[n] = b ? b[n] : NULL;
    }
    linear(f, &op, n);
}

void rg_linear_heads(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, int x_stride)
{
    const int mark = rg_act_mark(f);

    RG_ASSERT(!w->deltas); /* stacked matrices have none */
    RG_ASSERT(y->rows == x->rows && y->cols == w->n_mats * w->rows && x_stride >= 0);
    RG_ASSERT((w->n_mats - 1) * x_stride + w->cols <= x->cols);
    run(f, &(rg_op){ .kind = RG_OP_LINEAR_HEADS, .out = { y }, .in = { x, permuted(f, x, w, x_stride) }, .w = { w },
                     .n = x_stride });
    rg_act_release(f, mark);
}

/* The same bits as rg_gated's in two operations: between them the deltas are added. */
static void gated_apart(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *const w[3],
                        const rg_weight *const b[3], rg_activation act)
{
    const int mark = rg_act_mark(f);
    rg_act *made[3] = { rg_act_rows(f, "gate", y->rows, y->cols), rg_act_rows(f, "up", y->rows, y->cols) };

    rg_linear3(f, made, x, w, b);
    rg_act_mul(f, y, made[0], made[1], act);
    rg_act_release(f, mark);
}

void rg_gated(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *gate, const rg_weight *up,
              const rg_weight *b_gate, const rg_weight *b_up, rg_activation act)
{
    const int mark = rg_act_mark(f);

    if (f->apart || has_deltas(f, gate) || has_deltas(f, up) || !read_alike(gate, up)) {
        gated_apart(f, y, x, (const rg_weight *[3]){ gate, up }, (const rg_weight *[3]){ b_gate, b_up }, act);
        return;
    }
    RG_ASSERT(y->rows == x->rows && gate->n_mats == 1 && up->n_mats == 1);
    check_matrix(gate, y->cols, x->cols);
    check_matrix(up, y->cols, x->cols);
    check_vector(b_gate, y->cols);
    check_vector(b_up, y->cols);
    if (gate->threshold > 0)
        x = sparsified(f, x, gate->threshold);
    run(f, &(rg_op){ .kind = RG_OP_GATED, .out = { y }, .in = { x, permuted(f, x, gate, 0) }, .w = { gate, up },
                     .b = { b_gate, b_up }, .act = act });
    rg_act_release(f, mark);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static void rotate(rg_fwd *f, rg_act *x, const rg_rope *rope, int head_dim, int first, int last)
{
    RG_ASSERT(x->rows == f->batch->n_rows && x->cols % head_dim == 0);
    RG_ASSERT(rope->n_pairs >= 0 && first >= 0 && first + 2 * rope->n_pairs <= head_dim);
    RG_ASSERT(!rope->original || (rope->n_variants <= 1 && rope->n_pairs > 1));
    for (int i = 1; i < rope->n_variants; i++)
        RG_ASSERT(rope[i].n_pairs == rope->n_pairs && rope[i].interleaved == rope->interleaved);
    run(f, &(rg_op){ .kind = RG_OP_ROTATE, .out = { x }, .accumulate = true, .rope = rope, .n = head_dim,
                     .x = (float)first, .y = (float)last });
}

void rg_rotate(rg_fwd *f, rg_act *x, const rg_rope *rope, int head_dim, int first)
{
    rotate(f, x, rope, head_dim, first, 0);
}

void rg_rotate_until(rg_fwd *f, rg_act *x, const rg_rope *rope, int head_dim, int first, int last)
{
    RG_ASSERT(last > 0 && last <= RG_MAX_LAST); /* as a float it is itself */
    rotate(f, x, rope, head_dim, first, last);
}

void rg_kv_store(rg_fwd *f, const rg_kv *kv, const rg_act *k, const rg_act *v)
{
    RG_ASSERT(k->rows == f->batch->n_rows && v->rows == k->rows);
    RG_ASSERT(k->cols == (kv->latent ? kv->v_dim : kv->n_heads * kv->k_dim));
    RG_ASSERT(v->cols == (kv->latent ? kv->k_dim - kv->v_dim : kv->n_heads * kv->v_dim));
    run(f, &(rg_op){ .kind = RG_OP_KV_STORE, .in = { k, v }, .kv = kv });
}

static void check_sight(const rg_fwd *f, const rg_attend_params *p)
{
    RG_ASSERT(!p->chosen || (p->chosen->rows == f->batch->n_rows && !p->sight->patterns));
    RG_ASSERT(p->sight && p->sight->window >= 0);
    RG_ASSERT(!p->sight->patterns || (!p->sight->window && p->n_heads <= RG_SIGHT_HEADS));
}

void rg_attention(rg_fwd *f, rg_act *y, const rg_act *q, const rg_kv *kv, const rg_attend_params *p)
{
    RG_ASSERT(q->rows == f->batch->n_rows && y->rows == q->rows && !kv->latent && p->n_heads % kv->n_heads == 0);
    check_sight(f, p);
    RG_ASSERT(q->cols == p->n_heads * kv->k_dim && y->cols == p->n_heads * kv->v_dim);
    RG_ASSERT(!p->first_q || (p->first_q->rows == q->rows && p->first_q->cols == q->cols && p->n_first > 0));
    check_vector(p->sinks, p->n_heads);
    run(f, &(rg_op){ .kind = RG_OP_ATTENTION, .out = { y }, .in = { q, p->first_q, p->chosen }, .w = { p->sinks },
                     .kv = kv, .attend = p });
}

void rg_mla_attention(rg_fwd *f, rg_act *y, const rg_act *q_latent, const rg_act *q_rope, const rg_kv *kv,
                      const rg_attend_params *p)
{
    const int n_heads = p->n_heads;

    RG_ASSERT(q_latent->rows == f->batch->n_rows && q_rope->rows == q_latent->rows && y->rows == q_latent->rows);
    RG_ASSERT(kv->latent && q_latent->cols == n_heads * kv->v_dim && y->cols == q_latent->cols);
    RG_ASSERT(q_rope->cols % n_heads == 0 && q_rope->cols / n_heads >= kv->k_dim - kv->v_dim && !p->first_q);
    check_vector(p->sinks, n_heads);
    check_sight(f, p);
    run(f, &(rg_op){ .kind = RG_OP_MLA_ATTENTION,
                     .out = { y },
                     .in = { q_latent, q_rope, p->chosen },
                     .w = { p->sinks },
                     .kv = kv,
                     .attend = p });
}

/* ---- sparse attention by an indexer ------------------------------------------------------------------------------ */

rg_buffer rg_rows_of(const char *name, int cols)
{
    return (rg_buffer){ .name = name, .per = RG_PER_POSITION, .bytes = (size_t)cols * sizeof(float), .values = cols,
                        .type = RG_F32 };
}

void rg_rows_set_type(rg_buffer *rows, rg_type type)
{
    const size_t n = (size_t)rows->values, scales = (size_t)rg_kv_runs(rows->values) * sizeof(uint16_t);

    rows->type = type;
    rows->bytes = type == RG_F32 ? 4 * n : type == RG_I8 ? rg_rows_scales_at(rows->values) + scales : 2 * n;
}

void rg_rows_store(rg_fwd *f, const rg_buffer *rows, const rg_act *x)
{
    RG_ASSERT(rows->per == RG_PER_POSITION && x->rows == f->batch->n_rows && rows->values == x->cols);
    run(f, &(rg_op){ .kind = RG_OP_ROWS_STORE, .in = { x }, .buffer = rows });
}

void rg_choose_keys(rg_fwd *f, rg_act *chosen, const rg_act *q, const rg_act *weights, const rg_buffer *keys)
{
    RG_ASSERT(q->rows == f->batch->n_rows && weights->rows == q->rows && chosen->rows == q->rows && chosen->cols > 0);
    RG_ASSERT(keys->per == RG_PER_POSITION && keys->values > 0 && q->cols == weights->cols * keys->values);
    run(f, &(rg_op){ .kind = RG_OP_CHOOSE_KEYS, .out = { chosen }, .in = { q, weights }, .buffer = keys,
                     .n = weights->cols });
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

void rg_route(rg_fwd *f, rg_act *route, const rg_act *logits, const rg_routing *routing, const rg_weight *bias,
              const rg_weight *scale)
{
    RG_ASSERT(route->rows == logits->rows && route->cols == 2 * routing->n_used && logits->cols == routing->n_experts);
    RG_ASSERT(routing->n_used > 0 && routing->n_used <= routing->n_experts);
    RG_ASSERT(routing->n_groups == 0 || routing->n_experts % routing->n_groups == 0);
    RG_ASSERT(routing->score != RG_SCORE_SPARSEMIXER || (!bias && !routing->n_groups));
    check_vector(bias, routing->n_experts);
    check_vector(scale, routing->n_experts);
    run(f, &(rg_op){ .kind = RG_OP_ROUTE,
                     .out = { route },
                     .in = { logits },
                     .w = { scale },
                     .b = { bias },
                     .routing = routing });
}

/* Check one of the experts' matrices, and its bias. */
static void check_experts(const rg_weight *w, const rg_weight *b, int n, int rows, int cols)
{
    RG_ASSERT(w->n_mats == n && !w->deltas);
    check_matrix(w, rows, cols);
    check_vector(b, (int64_t)n * rows);
}

void rg_moe(rg_fwd *f, rg_act *y, const rg_act *x, const rg_act *route, const rg_routing *routing,
            const rg_experts *e)
{
    const int n = routing->n_experts, hidden = (int)e->up->rows;
    rg_op op = { .kind = RG_OP_MOE, .out = { y }, .in = { x, route }, .accumulate = !e->alone, .routing = routing,
                 .act = e->act };
    int k = 0;

    RG_ASSERT(y->rows == x->rows && route->rows == x->rows && route->cols == 2 * routing->n_used);
    RG_ASSERT(e->gate || !e->b_gate);
    if (e->gate) {
        check_experts(e->gate, e->b_gate, n, hidden, x->cols);
        op.w[k] = e->gate;
        op.b[k++] = e->b_gate;
    }
    check_experts(e->up, e->b_up, n, hidden, x->cols);
    op.w[k] = e->up;
    op.b[k++] = e->b_up;
    check_experts(e->down, e->b_down, n, y->cols, hidden);
    op.w[k] = e->down;
    op.b[k] = e->b_down;
    run(f, &op);
}

void rg_fetch(rg_fwd *f, const rg_act *route, const rg_routing *routing, const rg_experts *e)
{
    RG_ASSERT(route->cols == 2 * routing->n_used);
    RG_ASSERT(e->up->n_mats == routing->n_experts && e->down->n_mats == routing->n_experts);
    run(f, &(rg_op){ .kind = RG_OP_FETCH, .in = { route }, .w = { e->down, e->up, e->gate }, .routing = routing });
}

/* ---- recurrence -------------------------------------------------------------------------------------------------- */

rg_buffer rg_conv_tail(const char *name, int channels, int taps)
{
    size_t row = (size_t)channels * sizeof(float);

    return (rg_buffer){ .name = name, .bytes = (size_t)(taps - 1) * row, .draft_bytes = row };
}

rg_buffer rg_scan_state(const char *name, int d_inner, int d_state)
{
    size_t inner = (size_t)d_inner, state = (size_t)d_state;

    return (rg_buffer){ .name = name, .bytes = state * inner * sizeof(float),
                        .draft_bytes = (2 * inner + state) * sizeof(float) };
}

static void check_buffer(const rg_buffer *b, rg_buffer want)
{
    RG_ASSERT(b->per == RG_PER_SEQUENCE && b->bytes == want.bytes && b->draft_bytes == want.draft_bytes);
}

rg_buffer rg_linear_attention_state(const char *name, int n_heads, int k_dim, int v_dim, int logged)
{
    size_t cells = (size_t)n_heads * (size_t)k_dim * (size_t)v_dim;

    return (rg_buffer){ .name = name, .bytes = cells * sizeof(float), .draft_bytes = (size_t)logged * sizeof(float) };
}

void rg_conv(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, const rg_weight *b, const rg_buffer *tail,
             rg_activation act)
{
    RG_ASSERT(x->rows == f->batch->n_rows && y->rows == x->rows && y->cols % x->cols == 0);
    RG_ASSERT(!at_one_place(f, y, x)); /* later rows read x of earlier ones */
    check_matrix(w, y->cols, (int)w->cols);
    check_vector(b, y->cols);
    check_buffer(tail, rg_conv_tail(NULL, x->cols, (int)w->cols));
    run(f,
        &(rg_op){
            .kind = RG_OP_CONV, .out = { y }, .in = { x }, .w = { w }, .b = { b }, .buffer = tail, .act = act });
}

void rg_scan(rg_fwd *f, rg_act *y, const rg_act *x, const rg_act *dt_raw, const rg_act *bc, const rg_act *z,
             const rg_weight *a, const rg_weight *d, const rg_buffer *h)
{
    RG_ASSERT(x->rows == f->batch->n_rows && y->rows == x->rows && y->cols == x->cols);
    RG_ASSERT(dt_raw->cols == x->cols && z->cols == x->cols && bc->cols == 2 * a->rows);
    check_matrix(a, (int)a->rows, x->cols);
    check_vector(d, x->cols);
    check_buffer(h, rg_scan_state(NULL, x->cols, (int)a->rows));
    run(f, &(rg_op){ .kind = RG_OP_SCAN, .out = { y }, .in = { x, dt_raw, bc, z }, .w = { a, d }, .buffer = h });
}

/* An operand of heads of so many columns each.  Returns its columns; 0: there is none. */
static int check_operand(const rg_act *x, int rows, int n_heads, int head_cols)
{
    if (!x)
        return 0;
    RG_ASSERT(x->rows == rows && x->cols % head_cols == 0 && n_heads % (x->cols / head_cols) == 0);
    return x->cols;
}

void rg_linear_attention(rg_fwd *f, rg_act *y, const rg_linear_attention_params *p, const rg_buffer *state)
{
    const int rows = f->batch->n_rows, n = p->n_heads, k_dim = p->k_dim;
    const bool per_head = p->decay && p->decay->cols == n;
    int logged = check_operand(p->k, rows, n, k_dim) + check_operand(p->v, rows, n, p->v_dim) +
                 check_operand(p->decay, rows, n, per_head ? 1 : k_dim) + check_operand(p->beta, rows, n, 1) +
                 check_operand(p->a, rows, n, k_dim) + check_operand(p->b, rows, n, k_dim);

    RG_ASSERT(p->q && p->k && p->v && n > 0 && k_dim > 0 && p->v_dim > 0);
    RG_ASSERT(!p->a == !p->b && !(p->a && p->delta) && !(p->decay && p->fixed_decay));
    RG_ASSERT(y->rows == rows && y->cols == n * p->v_dim && !at_one_place(f, y, p->v));
    check_operand(p->q, rows, n, k_dim);
    check_vector(p->fixed_decay, n);
    check_vector(p->skip, n);
    check_buffer(state, rg_linear_attention_state(NULL, n, k_dim, p->v_dim, logged));
    run(f, &(rg_op){ .kind = RG_OP_LINEAR_ATTENTION,
                     .out = { y },
                     .in = { p->q, p->k, p->v, p->decay, p->beta, p->a, p->b },
                     .w = { p->fixed_decay, p->skip },
                     .buffer = state,
                     .recurrence = p });
}

void rg_decay(rg_fwd *f, rg_act *decay, rg_act *dt, const rg_act *raw, const rg_decay_params *p)
{
    const int cols = raw->cols;

    RG_ASSERT(decay->rows == raw->rows && decay->cols == cols && (!dt || (dt->rows == raw->rows && dt->cols == cols)));
    RG_ASSERT(!dt || (!at_one_place(f, dt, decay) && !at_one_place(f, raw, decay)));
    RG_ASSERT(!p->rate || (p->rate->cols > 0 && cols % p->rate->cols == 0));
    check_vector(p->rate, p->rate ? p->rate->cols : 0);
    check_vector(p->bias, cols);
    run(f,
        &(rg_op){
            .kind = RG_OP_DECAY, .out = { decay, dt }, .in = { raw }, .w = { p->rate }, .b = { p->bias }, .decay = p });
}

rg_buffer rg_state_space_state(const char *name, int channels, int n_modes)
{
    size_t row = (size_t)channels * sizeof(float);

    return (rg_buffer){ .name = name, .bytes = 2 * (size_t)n_modes * row, .draft_bytes = row };
}

void rg_state_space(rg_fwd *f, rg_act *y, const rg_act *u, const rg_weight *modes, const rg_weight *d,
                    const rg_buffer *x)
{
    const size_t mode_bytes = 2 * (size_t)u->cols * sizeof(float);
    const int n = (int)(x->bytes / mode_bytes);

    RG_ASSERT(u->rows == f->batch->n_rows && y->rows == u->rows && y->cols == u->cols && n > 0);
    RG_ASSERT(modes->rows == n * RG_MODE_ROWS || modes->rows == n * RG_FULL_MODE_ROWS);
    check_matrix(modes, (int)modes->rows, u->cols);
    check_vector(d, u->cols);
    check_buffer(x, rg_state_space_state(NULL, u->cols, n));
    run(f, &(rg_op){ .kind = RG_OP_STATE_SPACE, .out = { y }, .in = { u }, .w = { modes, d }, .buffer = x, .n = n });
}

rg_buffer rg_lru_state(const char *name, int channels)
{
    size_t row = (size_t)channels * sizeof(float);

    return (rg_buffer){ .name = name, .bytes = row, .draft_bytes = 2 * row };
}

void rg_lru(rg_fwd *f, rg_act *y, const rg_act *x, const rg_act *r, const rg_act *i, const rg_weight *rate,
            const rg_weight *const b[2], const rg_buffer *h)
{
    RG_ASSERT(x->rows == f->batch->n_rows && y->rows == x->rows && y->cols == x->cols);
    RG_ASSERT(r->rows == x->rows && i->rows == x->rows && r->cols == x->cols && i->cols == x->cols);
    check_vector(rate, x->cols);
    for (int k = 0; k < 2; k++)
        check_vector(b[k], x->cols);
    check_buffer(h, rg_lru_state(NULL, x->cols));
    run(f, &(rg_op){ .kind = RG_OP_LRU, .out = { y }, .in = { x, r, i }, .w = { rate }, .b = { b[0], b[1] },
                     .buffer = h });
}
