/* shard.c -- see shard.h. */
#include "ops/ranks/shard.h"

#include <string.h>

/* Columns of this rank, of an activation that is split into so many units. */
typedef struct run_of {
    int first, n;
} run_of;

static run_of run_at(const rg_act *a, int64_t units, int rank, int n)
{
    const int64_t width = a->cols / units, first = rg_rank_first(units, rank, n) * width;

    return (run_of){ (int)first, (int)(rg_rank_first(units, rank + 1, n) * width - first) };
}

static int root_of(const rg_fwd *f, const rg_act *a)
{
    return a->shown >= 0 ? a->shown : (int)(a - f->acts);
}

/* Units of what it shows; of a view that only says that the whole is split. */
static int64_t units_of(const rg_shard *s, const rg_fwd *f, const rg_act *a)
{
    return s->units[root_of(f, a)];
}

static bool is_view(const rg_act *a)
{
    return a->shown >= 0;
}

static void pass_on(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    s->reader.inner->run(s->reader.inner, f, op);
}

/* ---- exchanging rows --------------------------------------------------------------------------------------------- */

enum { SUM_COLS = 64 }; /* columns that are added up together */

/* Rows [first, end) of one activation on their way to the slots, and of another one, or the same, back. */
typedef struct moving {
    const rg_shard *s;
    const rg_act *out;
    rg_act *in;
    int64_t units; /* that the columns are cut into, a run a rank; 0: each rank has a term of the sum of all columns */
    int64_t
        table_rows; /* of an embedding, units of them on each rank: the row's token says who has it; 0: it is none */
    bool adds;      /* the sum is added to what is there */
    bool to_zero;
    const rg_batch *batch;
    int first, end;
    float *slot;   /* this rank's */
    size_t stride; /* floats between rows of a slot */
} moving;

static bool has_row(const moving *m, int row)
{
    return row >= m->first && row < m->end;
}

static const float *row_of(const moving *m, int rank, int row)
{
    return (const float *)rg_link_of(m->s->link, rank) + (size_t)(row - m->first) * m->stride;
}

static void take_row(void *arg, int row, const float *x)
{
    const moving *m = arg;
    const rg_link *link = m->s->link;
    run_of run = { 0, m->out->cols };

    if (!has_row(m, row))
        return;
    if (m->units)
        run = run_at(m->out, m->units, link->rank, link->n);
    memcpy(m->slot + (size_t)(row - m->first) * m->stride, x + run.first, (size_t)run.n * sizeof *x);
}

/* What the ranks have, added up in their order. */
static void give_sum(void *arg, int row, float *x)
{
    const moving *m = arg;
    const int n_ranks = m->s->link->n, cols = m->in->cols;

    if (!has_row(m, row))
        return;
    for (int c = 0, n; c < cols; c += n) {
        float sum[SUM_COLS];

        n = cols - c < SUM_COLS ? cols - c : SUM_COLS;
        memcpy(sum, row_of(m, 0, row) + c, (size_t)n * sizeof *sum);
        for (int r = 1; r < n_ranks; r++) {
            const float *of = row_of(m, r, row) + c;

            for (int i = 0; i < n; i++)
                sum[i] += of[i];
        }
        for (int i = 0; i < n; i++)
            x[c + i] = m->adds ? x[c + i] + sum[i] : sum[i];
    }
}

static void give_runs(void *arg, int row, float *x)
{
    const moving *m = arg;
    const rg_link *link = m->s->link;

    if (!has_row(m, row))
        return;
    for (int r = 0; r < link->n; r++) {
        const run_of run = run_at(m->in, m->units, r, link->n);

        if (r != link->rank)
            memcpy(x + run.first, row_of(m, r, row), (size_t)run.n * sizeof *x);
    }
}

/* Who has the row of an embedding's table that this row is; -1: the row is given, so all have it. */
static int owner_of(const moving *m, int row)
{
    const int32_t token = m->batch->token[row];
    const int64_t at = token >= 0 && token < m->table_rows ? token : 0;
    const int n = m->s->link->n;
    int rank = 0;

    if (token == -1 && m->batch->given)
        return -1;
    while (rg_rank_first(m->units, rank + 1, n) <= at / (m->table_rows / m->units))
        rank++;
    return rank;
}

static void take_embedded(void *arg, int row, const float *x)
{
    const moving *m = arg;

    if (has_row(m, row) && owner_of(m, row) == m->s->link->rank)
        memcpy(m->slot + (size_t)(row - m->first) * m->stride, x, (size_t)m->out->cols * sizeof *x);
}

static void give_embedded(void *arg, int row, float *x)
{
    const moving *m = arg;
    const int owner = has_row(m, row) ? owner_of(m, row) : -1;

    if (owner >= 0 && owner != m->s->link->rank)
        memcpy(x, row_of(m, owner, row), (size_t)m->in->cols * sizeof *x);
}

/* The most columns that a rank puts into its slot. */
static size_t most_columns(const moving *m)
{
    const int n = m->s->link->n;
    int most = m->units && !m->table_rows ? 0 : m->out->cols;

    for (int r = 0; r < n && m->units; r++) {
        const int one = m->table_rows ? 0 : run_at(m->out, m->units, r, n).n;

        most = one > most ? one : most;
    }
    return (size_t)most;
}

/* Rows go in pieces that fit a slot.  Between the two walks over the rows of a piece one thread waits for the other
 * ranks, and the others for it. */
static void move_rows(moving m, rg_fwd *f, rg_take_row *take, rg_give_row *give)
{
    rg_shard *s = (rg_shard *)(uintptr_t)m.s; /* whose exchanges are counted */
    const bool computes = rg_reader_computes(f);

    m.batch = f->batch;
    m.stride = most_columns(&m);
    const int at_once = RG_LINK_SLOT / (int)(m.stride * sizeof(float));
    RG_ASSERT(at_once > 0);
    for (; m.first < m.out->rows; m.first = m.end) {
        m.end = m.out->rows - m.first < at_once ? m.out->rows : m.first + at_once;
        const size_t bytes = (size_t)(m.end - m.first) * m.stride * sizeof(float);

        s->exchanged.n++;
        s->exchanged.bytes += bytes;
        if (!computes)
            continue;
        m.slot = rg_link_slot(s->link);
        rg_act_fetch(f, m.out, take, &m);
        if (f->thread == 0)
            rg_link_exchange(s->link, m.to_zero ? RG_LINK_TO_ZERO : RG_LINK_ALL, bytes);
        rg_fwd_meet(f);
        if (!m.to_zero || !s->link->rank)
            rg_act_put(f, m.in, give, &m);
    }
}

/* Gather all columns of an activation or view; before, each rank has the columns of its units. */
static void gather(const rg_shard *s, rg_fwd *f, rg_act *a, int64_t units, bool to_zero)
{
    move_rows((moving){ .s = s, .out = a, .in = a, .units = units, .to_zero = to_zero }, f, take_row, give_runs);
}

static void make_whole(rg_shard *s, rg_fwd *f, const rg_act *a)
{
    const int root = root_of(f, a);

    if (s->units[root])
        gather(s, f, &f->acts[root], s->units[root], false);
    s->units[root] = 0;
}

/* y is about to be written: what is split of it is needed if only a part of it, or a sum with it, is written. */
static void write_whole(rg_shard *s, rg_fwd *f, const rg_act *y, bool accumulate)
{
    if (accumulate || is_view(y))
        make_whole(s, f, y);
    s->units[root_of(f, y)] = 0;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* This rank's columns; NULL of NULL. */
static rg_act *own_run(const rg_shard *s, rg_fwd *f, const rg_act *a, int64_t units)
{
    if (!a)
        return NULL;
    const run_of run = run_at(a, units, s->link->rank, s->link->n);

    return rg_act_view(f, a->name, a, run.first, run.n);
}

/* Values [first, first + n) of a vector, as one; NULL of NULL. */
static const rg_weight *slice(rg_weight *to, const rg_weight *w, int64_t first, int64_t n)
{
    if (!w)
        return NULL;
    *to = (rg_weight){
        .name = w->name, .type = w->type, .n_mats = 1, .rows = 1, .cols = n, .vec = w->vec ? w->vec + first : NULL
    };
    return to;
}

static bool splits(const rg_weight *w, rg_split split)
{
    return w && w->part && w->part->split == split;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

/* Every rank computes all of it. */
static void all_alike(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    bool refused = false;

    for (size_t i = 0; i < RG_LEN(op->w); i++)
        if (op->w[i] && op->w[i]->part && op->kind != RG_OP_ADAPT && op->kind != RG_OP_FETCH) {
            RG_ASSERT(s->finder);
            s->finder->refuse(s->finder->arg, op->w[i]);
            refused = true;
        }
    for (size_t i = 0; i < RG_LEN(op->in); i++)
        if (op->in[i])
            make_whole(s, f, op->in[i]);
    for (size_t i = 0; i < RG_LEN(op->out); i++)
        if (op->out[i])
            write_whole(s, f, op->out[i], op->accumulate);
    if (!refused)
        pass_on(s, f, op);
}

/* Units in which the operands are split, the first one's where they differ; 0: all are whole. */
static int64_t common_units(const rg_shard *s, const rg_fwd *f, const rg_op *op)
{
    int64_t units = 0;

    for (size_t i = 0; i < RG_LEN(op->out) && !units; i++)
        if (op->out[i] && op->accumulate && !is_view(op->out[i]))
            units = units_of(s, f, op->out[i]);
    for (size_t i = 0; i < RG_LEN(op->in) && !units; i++)
        if (op->in[i] && !is_view(op->in[i]))
            units = units_of(s, f, op->in[i]);
    return units;
}

/* An operand is split so, or whole. */
static bool fit(rg_shard *s, rg_fwd *f, const rg_act *a, int64_t units)
{
    if (!a)
        return true;
    if (is_view(a) || units_of(s, f, a) != units)
        make_whole(s, f, a);
    return a->cols % units == 0;
}

/* What an operation has made is split. */
static void note_split(rg_shard *s, const rg_fwd *f, const rg_act *y, int64_t units, const rg_weight *maker)
{
    s->units[root_of(f, y)] = units;
    s->maker[root_of(f, y)] = maker;
}

/* An operation wants x in so many units: if it is split otherwise, its maker is to be cut so.  True: it will be. */
static bool want_units(const rg_shard *s, const rg_fwd *f, const rg_act *x, int64_t units)
{
    if (!s->finder || is_view(x) || !units_of(s, f, x) || units_of(s, f, x) == units)
        return false;
    const rg_weight *maker = s->maker[root_of(f, x)];
    return maker && s->finder->recut(s->finder->arg, maker, units);
}

/* Operands that are split in different ways: one or the other is to be cut otherwise. */
static void agree(const rg_shard *s, const rg_fwd *f, const rg_op *op, int64_t units)
{
    for (size_t i = 0; s->finder && i < RG_LEN(op->in); i++) {
        const rg_act *x = op->in[i];

        if (!x || is_view(x) || !units_of(s, f, x) || units_of(s, f, x) == units || want_units(s, f, x, units))
            continue;
        for (size_t k = 0; k < RG_LEN(op->in); k++)
            if (op->in[k] && units_of(s, f, op->in[k]) == units && want_units(s, f, op->in[k], units_of(s, f, x)))
                return;
    }
}

/* Whose rows the first of an operation's inputs that is split comes from; NULL: none is, or nobody's. */
static const rg_weight *maker_of(const rg_shard *s, const rg_fwd *f, const rg_op *op)
{
    for (size_t i = 0; i < RG_LEN(op->in); i++)
        if (op->in[i] && !is_view(op->in[i]) && units_of(s, f, op->in[i]))
            return s->maker[root_of(f, op->in[i])];
    return NULL;
}

/* The operation on this rank's columns of all its operands. */
static void on_runs(rg_shard *s, rg_fwd *f, const rg_op *op, int64_t units)
{
    const int mark = rg_act_mark(f);
    const rg_weight *maker = maker_of(s, f, op);
    rg_op one = *op;

    for (size_t i = 0; i < RG_LEN(op->in); i++)
        one.in[i] = own_run(s, f, op->in[i], units);
    for (size_t i = 0; i < RG_LEN(op->out); i++)
        one.out[i] = own_run(s, f, op->out[i], units);
    pass_on(s, f, &one);
    rg_act_release(f, mark);
    for (size_t i = 0; i < RG_LEN(op->out); i++)
        if (op->out[i])
            note_split(s, f, op->out[i], units, maker);
}

/* Columns by themselves: any operands may be split or whole.  A sum that was whole stays so. */
static void by_columns(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const int64_t units = common_units(s, f, op);
    bool fits = units && !is_view(op->out[0]) && (op->kind != RG_OP_ADD || units_of(s, f, op->out[0]));

    if (fits)
        agree(s, f, op, units);
    for (size_t i = 0; i < RG_LEN(op->in) && fits; i++)
        fits = fit(s, f, op->in[i], units);
    for (size_t i = 0; i < RG_LEN(op->out) && fits && op->accumulate; i++)
        fits = fit(s, f, op->out[i], units);
    if (fits && op->out[0]->cols % units == 0)
        on_runs(s, f, op, units);
    else
        all_alike(s, f, op);
}

/* Runs of n columns by themselves, with vectors of one run or of all. */
static void by_runs(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const rg_act *a = op->in[0] ? op->in[0] : op->out[0];
    const int64_t units = common_units(s, f, op);

    if (!units || is_view(a) || is_view(op->out[0]) || a->cols / units % op->n) {
        all_alike(s, f, op);
        return;
    }
    const run_of run = run_at(a, units, s->link->rank, s->link->n);
    rg_weight w, b;
    rg_op one = *op;

    if (op->w[0] && op->w[0]->cols != op->n) {
        one.w[0] = slice(&w, op->w[0], run.first, run.n);
        one.b[0] = slice(&b, op->b[0], run.first, run.n);
    }
    on_runs(s, f, &one, units);
}

/* Each value of a vector multiplies n columns. */
static void scale_columns(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const int64_t units = common_units(s, f, op);

    if (!units || op->out[0]->cols / units % op->n) {
        all_alike(s, f, op);
        return;
    }
    const run_of run = run_at(op->out[0], units, s->link->rank, s->link->n);
    rg_weight w;
    rg_op one = *op;

    one.w[0] = slice(&w, op->w[0], run.first / op->n, run.n / op->n);
    on_runs(s, f, &one, units);
}

/* ---- products ---- */

/* y (+)= the sum over the ranks of what they make of their columns of x. */
static void product_of_columns(rg_shard *s, rg_fwd *f, const rg_op *op, int i)
{
    const rg_weight_part *part = op->w[i]->part;
    rg_act *y = op->out[i];
    const int mark = rg_act_mark(f);

    write_whole(s, f, y, op->accumulate);
    if (s->finder && !is_view(op->in[0]) && units_of(s, f, op->in[0]) && units_of(s, f, op->in[0]) != part->units)
        (void)(s->finder->recut(s->finder->arg, op->w[i], units_of(s, f, op->in[0])) ||
               want_units(s, f, op->in[0], part->units));
    fit(s, f, op->in[0], part->units);
    rg_act *term = op->accumulate ? rg_act_rows(f, "term", y->rows, y->cols) : y;
    rg_op one = { .kind = RG_OP_LINEAR,
                  .out = { term },
                  .in = { own_run(s, f, op->in[0], part->units) },
                  .w = { &part->here },
                  .b = { s->link->rank ? NULL : op->b[i] } };
    pass_on(s, f, &one);
    move_rows((moving){ .s = s, .out = term, .in = y, .adds = op->accumulate }, f, take_row, give_sum);
    rg_act_release(f, mark);
}

/* After a product of rows, y holds this rank's: it is split, unless it must be whole.  maker: as of rg_shard. */
static void settle(rg_shard *s, rg_fwd *f, rg_act *y, int64_t units, const rg_weight *maker, bool whole)
{
    if (whole || is_view(y))
        gather(s, f, y, units, false);
    else
        note_split(s, f, y, units, maker);
}

/* One to three products of an input that is whole. */
static void products_of_rows(rg_shard *s, rg_fwd *f, const rg_op *op, int n)
{
    const int mark = rg_act_mark(f);
    rg_op all = *op;
    rg_weight bias[3];
    bool whole[3];

    make_whole(s, f, op->in[0]);
    for (int i = 0; i < n; i++) {
        const rg_weight_part *part = op->w[i]->part;

        whole[i] = op->accumulate && (!part || units_of(s, f, op->out[i]) != part->units);
        if (!part || whole[i] || is_view(op->out[i]))
            write_whole(s, f, op->out[i], op->accumulate);
        if (!part)
            continue;
        all.w[i] = &part->here;
        all.b[i] = slice(&bias[i], op->b[i], part->first, part->n);
        all.out[i] = own_run(s, f, op->out[i], part->units);
    }
    pass_on(s, f, &all);
    rg_act_release(f, mark);
    for (int i = 0; i < n; i++)
        if (op->w[i]->part)
            settle(s, f, op->out[i], op->w[i]->part->units, op->w[i], whole[i]);
}

static void linear(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    rg_op rest = *op;
    int n = 0;

    memset(rest.out, 0, sizeof rest.out);
    memset(rest.w, 0, sizeof rest.w);
    memset(rest.b, 0, sizeof rest.b);
    for (size_t i = 0; i < RG_LEN(op->w) && op->w[i]; i++) {
        if (splits(op->w[i], RG_CUT_COLS)) {
            product_of_columns(s, f, op, (int)i);
            continue;
        }
        rest.out[n] = op->out[i];
        rest.w[n] = op->w[i];
        rest.b[n++] = op->b[i];
    }
    if (n)
        products_of_rows(s, f, &rest, n);
}

/* Gate and up, whose columns are alike. */
static void gated(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const rg_weight_part *gate = op->w[0]->part, *up = op->w[1]->part;

    if (!splits(op->w[0], RG_CUT_ROWS) || !splits(op->w[1], RG_CUT_ROWS) || gate->units != up->units) {
        all_alike(s, f, op);
        return;
    }
    const int mark = rg_act_mark(f);
    rg_weight b[2];
    rg_op one = *op;

    make_whole(s, f, op->in[0]);
    if (is_view(op->out[0]))
        write_whole(s, f, op->out[0], false);
    for (int i = 0; i < 2; i++) {
        one.w[i] = &op->w[i]->part->here;
        one.b[i] = slice(&b[i], op->b[i], gate->first, gate->n);
    }
    one.out[0] = own_run(s, f, op->out[0], gate->units);
    pass_on(s, f, &one);
    rg_act_release(f, mark);
    settle(s, f, op->out[0], gate->units, NULL, false);
}

/* Put columns into an order that a matrix says; every row of the matrix has the same order. */
static void permute(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    rg_op one = *op;

    if (splits(op->w[0], RG_CUT_ROWS))
        one.w[0] = &op->w[0]->part->here;
    all_alike(s, f, &one);
}

/* ---- rows of a table, heads, experts ---- */

static void embed(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const rg_weight_part *part = op->w[0]->part;
    rg_op one = *op;

    if (!splits(op->w[0], RG_CUT_ROWS)) {
        all_alike(s, f, op);
        return;
    }
    one.w[0] = &part->here;
    one.y = (float)part->first; /* exact: ids are below 2^24 (rg_ranks_share) */
    write_whole(s, f, op->out[0], false);
    pass_on(s, f, &one);
    move_rows(
        (moving){ .s = s, .out = op->out[0], .in = op->out[0], .units = part->units, .table_rows = op->w[0]->rows }, f,
        take_embedded, give_embedded);
}

static void kv_store(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const int mark = rg_act_mark(f), units = op->kv->n_heads;
    rg_op one = *op;

    if (!op->kv->here) {
        all_alike(s, f, op);
        return;
    }
    for (int i = 0; i < 2; i++) {
        RG_ASSERT(fit(s, f, op->in[i], units));
        one.in[i] = own_run(s, f, op->in[i], units);
    }
    one.kv = op->kv->here;
    pass_on(s, f, &one);
    rg_act_release(f, mark);
}

/* Patterns of heads, from one on. */
static void patterns_from(rg_patterns *to, const rg_patterns *p, int head)
{
    *to = *p;
    memmove(to->of_head, to->of_head + head, RG_SIGHT_HEADS - (size_t)head);
}

/* Attention of this rank's heads, which are `units` runs of them, to the K/V of `here`. */
static void attend(rg_shard *s, rg_fwd *f, const rg_op *op, const rg_kv *here, int units)
{
    const int mark = rg_act_mark(f), each = op->attend->n_heads / units;
    const int first = (int)rg_rank_first(units, s->link->rank, s->link->n) * each;
    const int end = (int)rg_rank_first(units, s->link->rank + 1, s->link->n) * each;
    rg_attend_params p = *op->attend;
    rg_sight sight = *p.sight;
    rg_patterns patterns;
    rg_weight sinks;
    rg_op one = *op;

    for (int i = 0; i < 2; i++) { /* q and first_q, or q_latent and q_rope */
        RG_ASSERT(fit(s, f, op->in[i], units));
        one.in[i] = own_run(s, f, op->in[i], units);
    }
    if (op->in[2])
        make_whole(s, f, op->in[2]);
    if (is_view(op->out[0]))
        write_whole(s, f, op->out[0], false);
    if (sight.patterns) {
        patterns_from(&patterns, sight.patterns, first);
        sight.patterns = &patterns;
    }
    p.n_heads = end - first;
    p.sight = &sight;
    p.sinks = one.w[0] = slice(&sinks, p.sinks, first, p.n_heads);
    p.first_q = p.first_q ? one.in[1] : NULL;
    p.chosen = one.in[2];
    one.attend = &p;
    one.kv = here;
    one.out[0] = own_run(s, f, op->out[0], units);
    pass_on(s, f, &one);
    rg_act_release(f, mark);
    settle(s, f, op->out[0], units, NULL, false);
}

static void attention(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    if (op->kv->here)
        attend(s, f, op, op->kv->here, op->kv->n_heads);
    else
        all_alike(s, f, op);
}

/* Every rank has the latents that all heads share. */
static void mla_attention(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const int heads = op->attend->n_heads;

    (void)want_units(s, f, op->in[0], heads);
    (void)want_units(s, f, op->in[1], heads);
    if (units_of(s, f, op->in[0]) == heads && !is_view(op->in[0]) && !is_view(op->in[1]) && !(op->in[1]->cols % heads))
        attend(s, f, op, op->kv, heads);
    else
        all_alike(s, f, op);
}

/* A matrix for each head, with columns of its own; or all with the same. */
static void linear_heads(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const rg_weight_part *part = op->w[0]->part;
    const rg_act *x = op->in[0];

    if (!part || op->in[1] || (op->n && (is_view(x) || x->cols != op->n * part->units))) {
        all_alike(s, f, op);
        return;
    }
    const int mark = rg_act_mark(f);
    rg_op one = *op;

    if (op->n)
        (void)want_units(s, f, x, part->units);
    if (op->n && fit(s, f, x, part->units))
        one.in[0] = own_run(s, f, x, part->units);
    else
        make_whole(s, f, x);
    if (is_view(op->out[0]))
        write_whole(s, f, op->out[0], false);
    one.w[0] = &part->here;
    one.out[0] = own_run(s, f, op->out[0], part->units);
    pass_on(s, f, &one);
    rg_act_release(f, mark);
    settle(s, f, op->out[0], part->units, NULL, false);
}

/* ---- recurrences: their state is cut with their channels or heads ---- */

/* This rank's part of the state; NULL: it is not cut so.  common: values of a draft row's log that all parts read. */
static const rg_buffer *state_here(const rg_shard *s, const rg_op *op, int64_t units, int common)
{
    if (!s->state_here || units < s->link->n)
        return NULL;
    return s->state_here(s->state_arg, op->buffer, units, (size_t)common * sizeof(float));
}

/* Columns of a table of many rows, as one. */
static const rg_weight *slice_columns(rg_weight *to, const rg_weight *w, run_of run)
{
    *to = *w;
    to->cols = run.n;
    to->apart = (int64_t)rg_vec_stride(w);
    to->vec = w->vec ? w->vec + run.first : NULL;
    return to;
}

/* Recurrences whose channels never meet: this rank's channels of the state, of all inputs but in[2] of a scan, which
 * belongs to all, and of tables and vectors. */
static void channels(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const bool scans = op->kind == RG_OP_SCAN;
    const int common = scans ? (int)op->w[0]->rows : 0, all = op->in[0]->cols;
    int64_t units = common_units(s, f, op);
    const rg_buffer *here = state_here(s, op, units = units && all % units == 0 ? units : all, common);
    const int mark = rg_act_mark(f);
    const rg_weight *maker = maker_of(s, f, op);
    rg_weight w[2], b[2];
    rg_op one = *op;

    if (!here) {
        all_alike(s, f, op);
        return;
    }
    agree(s, f, op, units);
    const run_of run = run_at(op->in[0], units, s->link->rank, s->link->n);
    for (size_t i = 0; i < RG_LEN(op->in) && op->in[i]; i++)
        if (scans && i == 2)
            make_whole(s, f, op->in[i]);
        else if (fit(s, f, op->in[i], units))
            one.in[i] = own_run(s, f, op->in[i], units);
    for (int i = 0; i < 2; i++) {
        one.w[i] = op->w[i] && op->w[i]->rows > 1 ? slice_columns(&w[i], op->w[i], run)
                                                  : slice(&w[i], op->w[i], run.first, run.n);
        one.b[i] = slice(&b[i], op->b[i], run.first, run.n);
    }
    if (is_view(op->out[0]))
        write_whole(s, f, op->out[0], false);
    one.buffer = here;
    one.out[0] = own_run(s, f, op->out[0], units);
    pass_on(s, f, &one);
    rg_act_release(f, mark);
    settle(s, f, op->out[0], units, maker, false);
}

/* A convolution of channels by themselves, with one result each. */
static void conv(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const rg_act *x = op->in[0];
    const int64_t units = is_view(x) || is_view(op->out[0]) ? 0 : units_of(s, f, x);
    const rg_buffer *here = units && op->out[0]->cols == x->cols ? state_here(s, op, units, 0) : NULL;

    if (!here) {
        all_alike(s, f, op);
        return;
    }
    const run_of run = run_at(x, units, s->link->rank, s->link->n);
    const int64_t taps = op->w[0]->cols;
    rg_weight w = *op->w[0], b;
    rg_op one = *op;

    w.rows = run.n;
    w.vec = w.vec ? w.vec + run.first * taps : NULL;
    one.w[0] = &w;
    one.b[0] = slice(&b, op->b[0], run.first, run.n);
    one.buffer = here;
    on_runs(s, f, &one, units);
}

/* dt and decay of columns by themselves. */
static void decay(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const int64_t units = common_units(s, f, op), rates = op->w[0] ? op->w[0]->cols : 0;

    if (!units || is_view(op->in[0]) || is_view(op->out[0]) || (op->out[1] && is_view(op->out[1])) ||
        rates % units || !fit(s, f, op->in[0], units)) {
        all_alike(s, f, op);
        return;
    }
    const run_of run = run_at(op->in[0], units, s->link->rank, s->link->n);
    rg_decay_params p = *op->decay;
    rg_weight rate, bias;
    rg_op one = *op;

    p.rate = one.w[0] = slice(&rate, op->w[0], run.first * rates / op->in[0]->cols, run.n * rates / op->in[0]->cols);
    p.bias = one.b[0] = slice(&bias, op->b[0], run.first, run.n);
    one.decay = &p;
    on_runs(s, f, &one, units);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

enum { OPERANDS = 7 }; /* of linear attention: q, k, v, decay, beta, a, b */

/* Heads that operand i has. */
static int heads_of(const rg_op *op, int i)
{
    const rg_linear_attention_params *p = op->recurrence;
    const bool per_head = op->in[3] && op->in[3]->cols == p->n_heads;
    const int each[OPERANDS] = { p->k_dim, p->k_dim, p->v_dim, per_head ? 1 : p->k_dim, 1, p->k_dim, p->k_dim };

    return op->in[i]->cols / each[i];
}

/* True if operand i is cut with the heads of this rank, since it is not the same for all of them.  Where an operand has
 * fewer heads, which the others take in turn, ranks have whole turns, and need all of it. */
static bool is_cut(const rg_op *op, int i)
{
    const int m = heads_of(op, i), n = op->recurrence->n_heads;

    return m > 1 && (m == n || !op->recurrence->interleaved);
}

/* Runs of heads in which the states can be cut. */
static int64_t recurrence_units(const rg_op *op)
{
    const int n = op->recurrence->n_heads;
    int64_t units = n;

    for (int i = 0; i < OPERANDS; i++)
        if (op->in[i] && heads_of(op, i) > 1)
            units = common_divisor(units, is_cut(op, i) ? heads_of(op, i) : n / heads_of(op, i));
    return units;
}

/* Values of a draft row's log that every rank has: of all operands but q, those that are not cut. */
static int common_values(const rg_op *op)
{
    int sum = 0;

    for (int i = 1; i < OPERANDS; i++)
        if (op->in[i] && !is_cut(op, i))
            sum += op->in[i]->cols;
    return sum;
}

static void linear_attention(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const int64_t units = recurrence_units(op);
    const rg_buffer *here = state_here(s, op, units, common_values(op));
    rg_linear_attention_params p = *op->recurrence;
    const int mark = rg_act_mark(f), each = p.n_heads / (int)units;
    const int first = (int)rg_rank_first(units, s->link->rank, s->link->n) * each;
    const int end = (int)rg_rank_first(units, s->link->rank + 1, s->link->n) * each;
    rg_weight fixed, skip;
    rg_op one = *op;

    if (!here) {
        all_alike(s, f, op);
        return;
    }
    for (int i = 0; i < OPERANDS; i++) {
        if (!op->in[i])
            continue;
        if (is_cut(op, i))
            (void)want_units(s, f, op->in[i], units);
        if (is_cut(op, i) && fit(s, f, op->in[i], units))
            one.in[i] = own_run(s, f, op->in[i], units);
        else
            make_whole(s, f, op->in[i]);
    }
    if (is_view(op->out[0]))
        write_whole(s, f, op->out[0], false);
    p.n_heads = end - first;
    p.q = one.in[0], p.k = one.in[1], p.v = one.in[2], p.decay = one.in[3];
    p.beta = one.in[4], p.a = one.in[5], p.b = one.in[6];
    p.fixed_decay = one.w[0] = slice(&fixed, op->w[0], first, p.n_heads);
    p.skip = one.w[1] = slice(&skip, op->w[1], first, p.n_heads);
    one.recurrence = &p;
    one.buffer = here;
    one.out[0] = own_run(s, f, op->out[0], units);
    pass_on(s, f, &one);
    rg_act_release(f, mark);
    settle(s, f, op->out[0], units, NULL, false);
}

/* Each rank's experts, for the rows that chose them. */
static void moe(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    const int mark = rg_act_mark(f), down = op->w[2] ? 2 : 1;
    rg_act *y = op->out[0];
    bool fits = true;

    for (int i = 0; i <= down; i++)
        fits = fits && splits(op->w[i], RG_CUT_MATS) && op->w[i]->part->units == op->w[0]->part->units;
    if (!fits) {
        all_alike(s, f, op);
        return;
    }
    rg_routing routing = *op->routing;
    rg_op one = *op;

    for (int i = 0; i <= down; i++)
        one.w[i] = &op->w[i]->part->here;
    routing.first_here = (int)op->w[0]->part->first;
    routing.n_here = (int)op->w[0]->part->n;
    one.routing = &routing;
    for (int i = 0; i < 2; i++)
        make_whole(s, f, op->in[i]);
    write_whole(s, f, y, op->accumulate);
    one.out[0] = op->accumulate ? rg_act_rows(f, "term", y->rows, y->cols) : y;
    one.accumulate = false;
    pass_on(s, f, &one);
    move_rows((moving){ .s = s, .out = one.out[0], .in = y, .adds = op->accumulate }, f, take_row, give_sum);
    rg_act_release(f, mark);
}

/* Experts that ranks have are in memory. */
static void fetch(rg_shard *s, rg_fwd *f, const rg_op *op)
{
    if (!op->w[0]->part)
        all_alike(s, f, op);
}

typedef void rule(rg_shard *s, rg_fwd *f, const rg_op *op);

static rule *const rules[RG_OP_COUNT] = {
    /* NULL: all_alike */
    [RG_OP_EMBED] = embed,
    [RG_OP_LINEAR] = linear,
    [RG_OP_LINEAR_HEADS] = linear_heads,
    [RG_OP_GATED] = gated,
    [RG_OP_PERMUTE] = permute,
    [RG_OP_KV_STORE] = kv_store,
    [RG_OP_ATTENTION] = attention,
    [RG_OP_MLA_ATTENTION] = mla_attention,
    [RG_OP_MOE] = moe,
    [RG_OP_CONV] = conv,
    [RG_OP_SCAN] = channels,
    [RG_OP_STATE_SPACE] = channels,
    [RG_OP_LRU] = channels,
    [RG_OP_LINEAR_ATTENTION] = linear_attention,
    [RG_OP_DECAY] = decay,
    [RG_OP_FETCH] = fetch,
    [RG_OP_ADD] = by_columns,
    [RG_OP_MUL] = by_columns,
    [RG_OP_SCALE] = by_columns,
    [RG_OP_SCALE_BY_POSITION] = by_columns,
    [RG_OP_ACT_MUL] = by_columns,
    [RG_OP_ACTIVATE] = by_columns,
    [RG_OP_SPARSIFY] = by_columns,
    [RG_OP_SOFTCAP] = by_columns,
    [RG_OP_RMSNORM] = by_runs,
    [RG_OP_LAYERNORM] = by_runs,
    [RG_OP_L2NORM] = by_runs,
    [RG_OP_ROTATE] = by_runs,
    [RG_OP_SCALE_COLUMNS] = scale_columns,
};

static void run(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_shard *s = (rg_shard *)(uintptr_t)self; /* not const: rg_shard_begin made it */

    for (int i = f->n_known; i < f->n_acts; i++) /* new ones */
        s->units[i] = 0;
    if (rules[op->kind])
        rules[op->kind](s, f, op);
    else
        all_alike(s, f, op);
}

void rg_shard_begin(rg_shard *s, rg_link *link, rg_fwd *f)
{
    *s = (rg_shard){ .reader = { .run = run, .inner = f->reader }, .link = link };
    f->reader = &s->reader;
}

void rg_shard_to_zero(rg_shard *s, rg_fwd *f, rg_act *a)
{
    const int root = root_of(f, a);

    if (s->units[root])
        gather(s, f, &f->acts[root], s->units[root], true);
    s->units[root] = 0;
}

void rg_shard_end(rg_shard *s, rg_fwd *f)
{
    f->reader = s->reader.inner;
    if (f->thread == 0 && rg_reader_computes(f)) {
        s->link->n_exchanges += s->exchanged.n;
        s->link->bytes += s->exchanged.bytes;
    }
}
