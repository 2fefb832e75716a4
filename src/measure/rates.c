/* rates.c -- see rates.h: which operations are timed, and what follows from how long they take. */
#include "measure/rates.h"

#include <string.h>

#include "base/mem.h"
#include "measure/op_bench.h"
#include "measure/roofs.h"
#include "ops/kv.h"

enum {
    COLS = 1024, MATRIX_BYTES = 1 << 20, /* of the matrix of products */
    FEW_COLS = 256,                      /* of another one, whose sums begin and end more often; */
    FEW_COLS_BYTES = 1 << 18,
    FLAT_ROWS = 32, FLAT_COLS = 4096,    /* and of one that makes few values of many */
    WHOLE_ROWS = 32,                     /* of matrices, so that no run of 16 rows, or of two, is cut short */
    LITTLE = 64,                         /* columns of the operations that fixed costs are measured with */
    MANY_ROWS = 64,                      /* and rows of those that the cost of a value is measured with */
    FAR_ROWS = 64,                       /* from more rows on arithmetic hides where weights come from */
    SHORT_SEQS = 16,                     /* each in a block of K/V */
    LATENT_K = RG_BENCH_LATENT, LATENT_V = 512,
};

const double rg_rate_sets[RG_RATE_SETS] = { 0x1p18, 0x1p19, 0x1p20, 0x2p20, 0x4p20,
                                            0x8p20, 0x10p20, 0x20p20, 0x40p20, 0x80p20 };
const int rg_rate_place_set[RG_RATE_PLACES] = { 2, 5, RG_RATE_SETS - 1 };
const int rg_rate_rows[RG_RATE_ROWS] = { 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128 };
const int rg_rate_outs[RG_RATE_OUTS] = { 4, 8, 64 };
const int rg_rate_queries[RG_RATE_QUERIES] = { 1, 2, 4, 8, 32 };

double rg_rate_between(const double *v, const int *at, int n, double x)
{
    int i = 0;

    while (i < n - 2 && x > at[i + 1])
        i++;
    double share = (x - at[i]) / (at[i + 1] - at[i]);
    return v[i] + (share < 0 ? 0 : share > 1 ? 1 : share) * (v[i + 1] - v[i]);
}

rg_type rg_rate_kv_type(int i)
{
    static const rg_type types[] = { RG_F32, RG_F16, RG_BF16, RG_I8, RG_Q4_1 };

    return i < (int)RG_LEN(types) ? types[i] : RG_TYPE_COUNT;
}

typedef struct round {
    rg_rates *out;
    rg_rounds *rounds;
    const rg_backend *backend;
    rg_op_bench *b;
} round;

static double seconds(round *r, rg_op_case *run)
{
    return rg_rounds_median(r->rounds, rg_op_bench_seconds(r->b, run));
}

/* The time of one row, in a step that has more such operations. */
static double among_others(round *r, rg_op_case *run)
{
    return rg_rounds_median(r->rounds, rg_op_bench_among_others(r->b, run));
}

/* How many rows give each thread one, up to RG_BENCH_ROWS. */
static int shared_rows(const round *r)
{
    return r->b->n_threads < 2 ? 2 : r->b->n_threads < RG_BENCH_ROWS ? r->b->n_threads : RG_BENCH_ROWS;
}

/* The rest of some seconds, divided among n values. */
static double rest(double s, double without, double n)
{
    return s > without ? (s - without) / n : 0;
}

/* ---- bandwidth --------------------------------------------------------------------------------------------------- */

/* The last size that is no larger than a working set, or the first; x: how far the working set is from it on the way to
 * the next, 0 to 1. */
static int size_before(double working_set, double *x)
{
    const double *set = rg_rate_sets;
    int i = 0;

    while (i < RG_RATE_SETS - 2 && working_set > set[i + 1])
        i++;
    *x = (working_set - set[i]) / (set[i + 1] - set[i]);
    *x = *x < 0 ? 0 : *x > 1 ? 1 : *x;
    return i;
}

double rg_rates_bandwidth(const rg_rates *r, double working_set)
{
    double x;
    int i = size_before(working_set, &x);

    return 1 / ((1 - x) / r->set_bytes_s[i] + x / r->set_bytes_s[i + 1]);
}

void rg_rates_raise_bandwidth(rg_rates *r, double working_set, double bytes_s)
{
    double x, *v = r->set_bytes_s, times = bytes_s / rg_rates_bandwidth(r, working_set);
    int i = size_before(working_set, &x);

    if (!(times > 1))
        return;
    if (x > 0)
        v[i + 1] *= times;
    if (x < 1)
        v[i] *= times;
    for (int k = i; k >= 0; k--) /* a smaller set is read no slower */
        v[k] = v[k] > v[k + 1] ? v[k] : v[k + 1];
}

/* Bandwidth never falls as the set shrinks: disturbances only make a measurement slower. */
static bool measure_sets(round *r, rg_error *err)
{
    double least_s = 0;

    for (int i = RG_RATE_SETS - 1; i >= 0; i--) {
        double bytes_s;
        if (!rg_roofs_bandwidth(&bytes_s, r->backend, r->b->pool, (size_t)rg_rate_sets[i], err))
            return false;
        double byte_s = rg_rounds_median(r->rounds, bytes_s > 0 ? 1 / bytes_s : 0);
        least_s = least_s > 0 && least_s < byte_s ? least_s : byte_s;
        r->out->set_bytes_s[i] = least_s > 0 ? 1 / least_s : 0;
    }
    return true;
}

/* ---- operations that are no product ------------------------------------------------------------------------------ */

/* Kinds that are not in this table cost what an addition of activations does. */
static const struct {
    rg_op_kind kind;
    rg_op_case *run;
} cases[] = {
    { RG_OP_ADD, rg_case_add }, /* first */
    { RG_OP_RMSNORM, rg_case_rmsnorm },   { RG_OP_ACT_MUL, rg_case_act_mul },   { RG_OP_SOFTCAP, rg_case_softcap },
    { RG_OP_GATHER, rg_case_gather },     { RG_OP_ROTATE, rg_case_rotate },     { RG_OP_EMBED, rg_case_embed },
    { RG_OP_KV_STORE, rg_case_kv_store }, { RG_OP_CONV, rg_case_conv },         { RG_OP_SCAN, rg_case_scan },
    { RG_OP_LINEAR_ATTENTION, rg_case_linear_attention },
};

/* What the cases read becomes this wide. */
static bool set_width(round *r, int width, rg_error *err)
{
    rg_op_bench *b = r->b;

    b->width = width;
    b->norm.cols = width;
    b->rope = (rg_rope){ .n_pairs = 32, .inv_freq = b->vector, .factor = 1 };
    b->kv = (rg_kv){ .type = RG_BF16, .n_heads = width / 64, .k_dim = 64, .v_dim = 64 };
    b->tail = rg_conv_tail("tail", width, RG_BENCH_TAPS);
    b->scan = rg_scan_state("scan", width, RG_BENCH_STATES);
    b->recurrence = rg_linear_attention_state("recurrence", width / RG_BENCH_STATE_DIM, RG_BENCH_STATE_DIM,
                                              RG_BENCH_STATE_DIM, 2 * width + 2 * (width / RG_BENCH_STATE_DIM));
    return rg_op_bench_weights(b, RG_BF16, LITTLE, width, err);
}

static size_t block_bytes(const rg_op_bench *b, rg_op_kind kind)
{
    switch (kind) {
    case RG_OP_CONV: return b->tail.bytes;
    case RG_OP_SCAN: return b->scan.bytes;
    case RG_OP_LINEAR_ATTENTION: return b->recurrence.bytes;
    default: return rg_kv_bytes(&b->kv);
    }
}

/* Two rotations, each of which needs other angles than the one before. */
static void measure_angles(round *r)
{
    double same_s, other_s, angles = (double)MANY_ROWS * r->b->rope.n_pairs;

    rg_op_bench_batch(r->b, MANY_ROWS, 2 * MANY_ROWS);
    same_s = seconds(r, rg_case_rotate);
    other_s = seconds(r, rg_case_turn_back);
    r->out->angle_s = rest(other_s, 2 * same_s, 2 * angles);
}

static bool measure_values(round *r, rg_error *err)
{
    rg_rates *out = r->out;

    if (!set_width(r, LITTLE, err))
        return false;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const size_t bytes = block_bytes(r->b, cases[i].kind);

        if (!rg_op_bench_batch_on(r->b, 1, 1, bytes, err))
            return false;
        out->fixed_s[cases[i].kind] = among_others(r, cases[i].run);
        if (!rg_op_bench_batch_on(r->b, shared_rows(r), shared_rows(r), bytes, err))
            return false;
        out->shared_s[cases[i].kind] = among_others(r, cases[i].run);
        for (int k = 0; !i && k < RG_OP_COUNT; k++) {
            out->fixed_s[k] = out->fixed_s[cases[0].kind];
            out->shared_s[k] = out->shared_s[cases[0].kind];
        }
    }
    measure_angles(r);
    if (!set_width(r, COLS, err))
        return false;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_op_kind kind = cases[i].kind;
        if (!rg_op_bench_batch_on(r->b, MANY_ROWS, MANY_ROWS, block_bytes(r->b, kind), err))
            return false;
        out->cell_s[kind] = rest(seconds(r, cases[i].run), out->shared_s[kind], rg_op_bench_cells(r->b, cases[i].run));
        for (int k = 0; !i && k < RG_OP_COUNT; k++)
            out->cell_s[k] = out->cell_s[cases[0].kind];
    }
    out->cell_s[RG_OP_GATED] = out->cell_s[RG_OP_MOE] = out->cell_s[RG_OP_ACT_MUL];
    return true;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* The format that stands for a layout: the last one in the table. */
static rg_type type_of(rg_layout layout)
{
    rg_type type = RG_TYPE_COUNT;

    for (int t = 0; t < RG_TYPE_COUNT; t++)
        if (rg_format_of((rg_type)t)->layout == layout)
            type = (rg_type)t;
    RG_ASSERT(type < RG_TYPE_COUNT);
    return type;
}

/* Layouts that differ only in how their scales lie share what was measured of one of them. */
static rg_layout measured_as(rg_layout layout)
{
    switch (layout) {
    case RG_LAYOUT_T4:
    case RG_LAYOUT_T4F:
    case RG_LAYOUT_TK4:
        return RG_LAYOUT_T4E;
    case RG_LAYOUT_TK4H: /* no format's; what is folded is unfolded to it */
        return RG_LAYOUT_T4N;
    case RG_LAYOUT_G1:
    case RG_LAYOUT_Q1:
        return RG_LAYOUT_G2;
    case RG_LAYOUT_G1M:
    case RG_LAYOUT_G2S:
        return RG_LAYOUT_G2H;
    case RG_LAYOUT_G3S:
        return RG_LAYOUT_G3;
    case RG_LAYOUT_F32W:
        return RG_LAYOUT_F32;
    case RG_LAYOUT_F16W:
        return RG_LAYOUT_F16;
    case RG_LAYOUT_BF16W:
        return RG_LAYOUT_BF16;
    case RG_LAYOUT_Z4:
        return RG_LAYOUT_Z4W;
    case RG_LAYOUT_Z8:
        return RG_LAYOUT_Z8W;
    default:
        return layout;
    }
}

static bool measure_fixed_products(round *r, rg_error *err)
{
    double *fixed = r->out->fixed_s;

    if (!set_width(r, LITTLE, err))
        return false;
    for (int i = 0; i < 2; i++, fixed = r->out->shared_s) {
        rg_op_bench_batch(r->b, i ? shared_rows(r) : 1, i ? shared_rows(r) : 1);
        fixed[RG_OP_LINEAR] = fixed[RG_OP_LINEAR_HEADS] = among_others(r, rg_case_linear);
        fixed[RG_OP_GATED] = fixed[RG_OP_MOE] = among_others(r, rg_case_gated);
    }
    return true;
}

static double product_seconds(round *r, int rows)
{
    rg_op_bench_batch(r->b, rows, rows);
    return rest(seconds(r, rg_case_linear), (rows > 1 ? r->out->shared_s : r->out->fixed_s)[RG_OP_LINEAR],
                (double)(r->b->weight.rows * r->b->weight.cols));
}

/* Farther places are measured for powers of two only; a number between them has the same extra cost as the one
 * below. */
static void measure_place(round *r, bool exact, rg_layout layout, rg_rate_place place)
{
    rg_product_rate *p = &r->out->product[exact][layout];
    double more = 0;

    r->b->exact = exact;
    for (int i = 0; i < RG_RATE_ROWS; i++) {
        int rows = rg_rate_rows[i];
        if (place == RG_NEAR)
            p->value_s[place][i] = product_seconds(r, rows);
        else if (rows <= FAR_ROWS && !(rows & (rows - 1)))
            more = rest(product_seconds(r, rows), p->value_s[RG_NEAR][i], 1);
        if (place != RG_NEAR)
            p->value_s[place][i] = p->value_s[RG_NEAR][i] + more;
    }
    r->b->exact = false;
}

/* A matrix of so many bytes, about. */
static bool set_matrix(round *r, rg_type type, int64_t bytes, int64_t cols, rg_error *err)
{
    const rg_format *fmt = rg_format_of(type);
    int64_t rows = bytes / (cols / fmt->block_len * fmt->block_bytes) / WHOLE_ROWS * WHOLE_ROWS;

    return rg_op_bench_weights(r->b, type, rows < RG_BENCH_COLS ? rows : RG_BENCH_COLS, cols, err);
}

/* Seconds to round a value: a matrix of twice as many rows takes as much longer as its products alone take. */
static bool measure_rounding(round *r, rg_type type, double *in_s, rg_error *err)
{
    double once, twice;

    *in_s = 0;
    if (!r->backend->is_fast(r->backend, type))
        return true;
    rg_op_bench_batch(r->b, MANY_ROWS, MANY_ROWS);
    if (!rg_op_bench_weights(r->b, type, FLAT_ROWS, FLAT_COLS, err))
        return false;
    once = seconds(r, rg_case_linear);
    if (!rg_op_bench_weights(r->b, type, 2 * FLAT_ROWS, FLAT_COLS, err))
        return false;
    twice = seconds(r, rg_case_linear);
    *in_s = rest(2 * once, twice + r->out->shared_s[RG_OP_LINEAR], (double)MANY_ROWS * FLAT_COLS);
    return true;
}

/* What a value costs that is made, besides its terms: measured where sums are short.  It is taken off what a weight
 * was found to cost, where sums are long, as is rounding; both were part of that. */
static void measure_outs(round *r, bool exact, rg_product_rate *p, double many)
{
    const double few = (double)r->b->weight.rows;

    r->b->exact = exact;
    for (int i = 0; i < RG_RATE_OUTS; i++) {
        double rows = rg_rate_outs[i], wide_s = 0;
        for (int k = 0; k < RG_RATE_ROWS; k++)
            wide_s = rg_rate_rows[k] == rg_rate_outs[i] ? p->value_s[RG_NEAR][k] : wide_s;
        double more_s = product_seconds(r, rg_rate_outs[i]) - wide_s - rows * p->in_s * (1 / few - 1 / many);
        p->out_s[i] = more_s > 0 ? more_s / rows / (1.0 / FEW_COLS - 1.0 / COLS) : 0;
    }
    r->b->exact = false;
    for (int i = 0; i < RG_RATE_PLACES * RG_RATE_ROWS; i++) {
        double *value_s = &p->value_s[i / RG_RATE_ROWS][i % RG_RATE_ROWS], rows = rg_rate_rows[i % RG_RATE_ROWS];
        double beside = rows * (p->in_s / many + rg_rate_between(p->out_s, rg_rate_outs, RG_RATE_OUTS, rows) / COLS);
        *value_s = beside < *value_s / 2 ? *value_s - beside : *value_s / 2;
    }
}

static bool measure_products(round *r, rg_layout layout, const double in_s[2], rg_error *err)
{
    const rg_type type = type_of(layout);
    const bool two = r->backend->is_fast(r->backend, type); /* recipes */

    if (!set_matrix(r, type, MATRIX_BYTES, COLS, err))
        return false;
    const double many = (double)r->b->weight.rows;
    for (int place = 0; place < RG_RATE_PLACES; place++) {
        if (place != RG_NEAR && !rg_op_bench_spread(r->b, (size_t)rg_rate_sets[rg_rate_place_set[place]], err))
            return false;
        for (int exact = 0; exact < 1 + two; exact++)
            measure_place(r, exact, layout, (rg_rate_place)place);
    }
    if (!set_matrix(r, type, FEW_COLS_BYTES, FEW_COLS, err))
        return false;
    for (int exact = 0; exact < 1 + two; exact++) {
        r->out->product[exact][layout].in_s = two && !exact ? in_s[rg_roofs_in_int8(type)] : 0;
        measure_outs(r, exact, &r->out->product[exact][layout], many);
    }
    if (!two)
        r->out->product[true][layout] = r->out->product[false][layout];
    return true;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* How many queries share keys, in how many rows. */
typedef struct sharing {
    int queries, rows;
    bool far; /* K/V in memory */
} sharing;

/* Seconds per pair of query and key, where all rows see all blocks. */
static bool pair_seconds(round *r, const rg_kv *kv, sharing by, double *out, rg_error *err)
{
    rg_op_bench *b = r->b;
    const rg_kv open = rg_kv_open(kv); /* where there is such a part, both lie over each other in the one group */
    double pairs = (double)RG_BENCH_CONTEXT * kv->n_heads * by.queries;

    b->kv = *kv;
    b->n_heads = kv->n_heads * by.queries / by.rows;
    if (!rg_op_bench_batch_on(b, by.rows, RG_BENCH_CONTEXT, rg_kv_bytes(&open), err))
        return false;
    if (by.far && !rg_op_bench_spread_state(b, (size_t)rg_rate_sets[RG_RATE_SETS - 1], err))
        return false;
    double s = seconds(r, kv->latent ? rg_case_mla_attention : rg_case_attention);
    *out = rest(s, (by.rows > 1 ? r->out->shared_s : r->out->fixed_s)[RG_OP_ATTENTION], pairs);
    return true;
}

/* With heads of 64 and of 128 columns. */
static bool measure_attention(round *r, rg_type type, bool far, rg_error *err)
{
    rg_attention_rate *out = &r->out->attention[false][type];
    double *pair_s = far ? out->far_pair_s : out->pair_s, *column_s = far ? out->far_column_s : out->column_s;
    rg_kv narrow = { .type = type, .n_heads = 2, .k_dim = 64, .v_dim = 64 }, wide = narrow;

    wide.k_dim = wide.v_dim = 128;
    for (int i = 0; i < RG_RATE_QUERIES; i++) {
        const sharing by = { rg_rate_queries[i], rg_rate_queries[i] > 8 ? 8 : 1, far };
        double two, four;
        if (!pair_seconds(r, &narrow, by, &two, err) || !pair_seconds(r, &wide, by, &four, err))
            return false;
        column_s[i] = rest(four, two, 128);
        pair_s[i] = rest(two, 128 * column_s[i], 1);
    }
    return true;
}

static bool measure_latent(round *r, rg_type type, bool far, rg_error *err)
{
    rg_attention_rate *out = &r->out->attention[true][type];
    rg_kv kv = { .type = type, .n_heads = 1, .k_dim = LATENT_K, .v_dim = LATENT_V, .latent = true };

    for (int i = 0; i < RG_RATE_QUERIES; i++) {
        const sharing by = { rg_rate_queries[i], rg_rate_queries[i] > 8 ? 4 : 1, far };
        double pair;
        if (!pair_seconds(r, &kv, by, &pair, err))
            return false;
        (far ? out->far_column_s : out->column_s)[i] = pair / (LATENT_K + LATENT_V);
    }
    return true;
}

static bool measure_all_attention(round *r, rg_error *err)
{
    double *fixed = r->out->fixed_s;
    bool ok = true;

    r->b->kv = (rg_kv){ .type = RG_BF16, .n_heads = 1, .k_dim = 64, .v_dim = 64 };
    r->b->n_heads = 1;
    for (int i = 0; i < 2; i++, fixed = r->out->shared_s) {
        const int rows = i ? shared_rows(r) : 1;

        if (!rg_op_bench_batch_on(r->b, rows, rows, rg_kv_bytes(&r->b->kv), err))
            return false;
        fixed[RG_OP_ATTENTION] = fixed[RG_OP_MLA_ATTENTION] = among_others(r, rg_case_attention);
    }
    for (int i = 0; ok && rg_rate_kv_type(i / 2) < RG_TYPE_COUNT; i++)
        ok = measure_attention(r, rg_rate_kv_type(i / 2), i % 2, err) &&
             measure_latent(r, rg_rate_kv_type(i / 2), i % 2, err);
    return ok;
}

/* Sequences of one block each, whose pairs are known to take so long where blocks follow each other. */
static bool measure_first_blocks(round *r, rg_error *err)
{
    rg_rates *out = r->out;
    rg_op_bench *b = r->b;
    const rg_attention_rate *a = &out->attention[false][RG_BF16];
    const rg_kv kv = { .type = RG_BF16, .n_heads = 2, .k_dim = 64, .v_dim = 64 };
    const double pairs = (double)SHORT_SEQS * RG_BLOCK * kv.n_heads, bytes = SHORT_SEQS * (double)rg_kv_bytes(&kv);

    b->kv = kv;
    b->n_heads = kv.n_heads;
    for (int place = 0; place < RG_RATE_PLACES; place++) {
        const bool far = place == RG_FAR;
        double pair = (far ? a->far_pair_s : a->pair_s)[0] + 128 * (far ? a->far_column_s : a->column_s)[0];
        if (!rg_op_bench_streams(b, SHORT_SEQS, RG_BLOCK, rg_kv_bytes(&kv), err))
            return false;
        if (place != RG_NEAR && !rg_op_bench_spread_state(b, (size_t)rg_rate_sets[rg_rate_place_set[place]], err))
            return false;
        out->first_byte_s[place] = rest(seconds(r, rg_case_attention), out->shared_s[RG_OP_ATTENTION] + pairs * pair,
                                        bytes);
    }
    return true;
}

/* A key that is stored alone touches a cache line for each of its columns. */
static bool measure_store(round *r, rg_error *err)
{
    rg_rates *out = r->out;
    rg_op_bench *b = r->b;
    const rg_kv kv = { .type = RG_BF16, .n_heads = 2, .k_dim = 64, .v_dim = 64 };
    const double lines = (double)MANY_ROWS * kv.n_heads * kv.k_dim, cells = 2 * lines;

    b->kv = kv;
    b->width = kv.n_heads * kv.k_dim;
    for (int place = 0; place < RG_RATE_PLACES; place++) {
        if (!rg_op_bench_streams(b, MANY_ROWS, 1, rg_kv_bytes(&kv), err))
            return false;
        if (place != RG_NEAR && !rg_op_bench_spread_state(b, (size_t)rg_rate_sets[rg_rate_place_set[place]], err))
            return false;
        out->line_s[place] = rest(seconds(r, rg_case_kv_store),
                                  out->shared_s[RG_OP_KV_STORE] + cells * out->cell_s[RG_OP_KV_STORE], lines);
    }
    return true;
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

bool rg_rates_measure(rg_rates *out, rg_rounds *rounds, const rg_backend *backend, int n_threads, rg_error *err)
{
    round r = { .out = out, .rounds = rounds, .backend = backend, .b = rg_op_bench_open(backend, n_threads, err) };
    double in_s[2] = { 0 };
    bool ok = r.b != NULL;

    memset(out, 0, sizeof *out);
    ok = ok && measure_sets(&r, err) && measure_values(&r, err) && measure_fixed_products(&r, err);
    if (ok)
        out->step_s = rg_rounds_median(rounds, rg_op_bench_empty_step(r.b));
    ok = ok && measure_all_attention(&r, err) && measure_first_blocks(&r, err) && measure_store(&r, err);
    ok = ok && measure_rounding(&r, RG_BF16, &in_s[0], err) && measure_rounding(&r, RG_Q8_0, &in_s[1], err);
    for (int l = RG_LAYOUT_NONE + 1; ok && l < RG_LAYOUT_COUNT && !rg_rounds_late(rounds); l++)
        ok = measured_as((rg_layout)l) != (rg_layout)l || measure_products(&r, (rg_layout)l, in_s, err);
    for (int l = RG_LAYOUT_NONE + 1; ok && l < RG_LAYOUT_COUNT; l++)
        for (int exact = 0; exact < 2; exact++)
            out->product[exact][l] = out->product[exact][measured_as((rg_layout)l)];
    rg_op_bench_close(r.b);
    return ok;
}
