/* rates.c -- see rates.h: what is timed (shop.h), and what follows from how long it takes. */
#include "model/rates.h"

#include <string.h>

#include "base/quantile.h"
#include "base/mem.h"
#include "model/origin.h"
#include "model/texts.h"

enum {
    COLS = 2048,             /* of a matrix of products */
    MATRIX_BYTES = 1 << 20,
    SHORT = 64, FEW_AT = 11, /* columns of a narrow one; and its rows are rg_rate_rows from this one on, 16 */
    CELL_COLS = 2048, NARROW = 64, /* of what is made value by value */
    NARROW_COLS = 256, /* of matrices in the last cache whose rows count */
    CACHED = 8,    /* megabytes of what lies in the last cache: so many sequences, each in a layer, or matrices */
    NEAR_SPANS = 8, FAR_SPANS = 12, LAYERS = 16,
    FAR_TIMES = 12, /* those of a matrix that comes from memory; all together so many that no cache keeps a part */
    EXPERT_DIM = 512, MOE_ROWS = 64,
    INNER = 2048, STATE = 16, CONV = 4, /* of a recurrence, */
    NEAR_CARRIED = 4, FAR_CARRIED = 24, /* and its sequences */
    LATENT_K = 576, LATENT_V = 512,
};

static const double PATIENCE_S = 2 /* in a pass */, MEGABYTE = 1 << 20;

/* Rows of COLS values that make up about a megabyte as stored. */
static int64_t matrix_rows(rg_type type)
{
    const rg_format *fmt = rg_format_of(type);
    int64_t rows = MATRIX_BYTES / (COLS / fmt->block_len * fmt->block_bytes);

    return rows / (2 * RG_PANEL) * (2 * RG_PANEL);
}

/* ---- measurements ------------------------------------------------------------------------------------------------ */

/* Seconds per value beyond what is fixed. */
static double beyond(double seconds, double fixed, double values)
{
    return seconds > fixed ? (seconds - fixed) / values : 0;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Seconds of a product with one matrix in a near cache, without what is fixed, for each number of rows from the
 * first-th of rg_rate_rows. */
static bool near_products(rg_shop *w, const rg_machine *m, rg_type type, const int64_t shape[3], int first, double *s,
                          rg_error *err)
{
    w->spread = 0;
    if (!rg_shop_weights(w, type, 1, shape, err))
        return false;
    for (int i = first; i < RG_RATE_ROWS; i++) {
        if (!rg_shop_batch(w, rg_rate_rows[i], 0, false, err))
            return false;
        s[i] = beyond(rg_shop_seconds(w, rg_say_linear), m->rates.fixed_s[RG_OP_LINEAR], 1);
    }
    return true;
}

/* n rows take R C near(n) + n C in + n R out.  With few rows of the matrix, and with few of its columns, all three are
 * known: of the whole W, a p-th of the rows A and a q-th of the columns B, (p - 1) n C in = p A - W and
 * (q - 1) n R out = q B - W. */
static bool measure_near(rg_shop *w, rg_machine *m, rg_type type, rg_error *err)
{
    rg_linear_rate *r = &m->rates.linear[type];
    const int block = rg_format_of(type)->block_len;
    const int64_t rows = matrix_rows(type), cols = block > SHORT ? block : SHORT;
    const int64_t shapes[3][3] = { { 1, rows, COLS }, { 1, 2 * RG_PANEL, COLS }, { 1, rows, cols } };
    double s[3][RG_RATE_ROWS], in[RG_RATE_ROWS], out[RG_RATE_ROWS];
    double p = (double)rows / (2 * RG_PANEL), q = (double)COLS / (double)cols;

    for (int i = 0; i < 3; i++)
        if (!near_products(w, m, type, shapes[i], i ? FEW_AT : 0, s[i], err))
            return false;
    for (int i = FEW_AT; i < RG_RATE_ROWS; i++) {
        in[i] = beyond(p * s[1][i], s[0][i], (p - 1) * rg_rate_rows[i] * COLS);
        out[i] = beyond(q * s[2][i], s[0][i], (q - 1) * rg_rate_rows[i] * (double)rows);
    }
    r->in_s = rg_quantile(in + FEW_AT, RG_RATE_ROWS - FEW_AT, 0.5);
    r->out_s = rg_quantile(out + FEW_AT, RG_RATE_ROWS - FEW_AT, 0.5);
    for (int i = 0; i < RG_RATE_ROWS; i++)
        r->near_s[i] = beyond(s[0][i], rg_rate_rows[i] * (r->in_s * COLS + r->out_s * (double)rows),
                              (double)rows * COLS);
    return true;
}

/* Seconds of a product beyond what it takes near, with n matrices from there that are gone through in turn, for each
 * number of rows; beyond 64 of them arithmetic hides it. */
static bool far_products(rg_shop *w, const rg_machine *m, rg_type type, rg_source from, int n, const int64_t shape[3],
                         double *s, rg_error *err)
{
    const rg_linear_rate *r = &m->rates.linear[type];
    const rg_format *fmt = rg_format_of(type);
    double values = (double)(shape[1] * shape[2]), bytes = values * fmt->block_bytes / fmt->block_len, last = 0;
    double best = rg_machine_comes_s(m, from, bytes);
    double most = bytes / m->rates.set_bytes_s[from == RG_FROM_MEMORY ? RG_RATE_FAR : RG_RATE_CACHE];

    w->spread = n;
    if (!rg_shop_weights(w, type, n, shape, err))
        return false;
    for (int i = 0; i < RG_RATE_ROWS; i++) {
        int rows = rg_rate_rows[i];
        if (rows <= 64 && !(rows & (rows - 1))) {
            if (!rg_shop_batch(w, rows, 0, false, err))
                return false;
            double near = r->near_s[i] * values + rows * (r->in_s * (double)shape[2] + r->out_s * (double)shape[1]) +
                          m->rates.fixed_s[RG_OP_LINEAR];
            last = beyond(rg_shop_far_seconds(w, rg_say_linear, from, near, best), near, 1);
            last = last < most ? last : most; /* none hidden */
        }
        s[i] = last;
    }
    return true;
}

/* From the last cache: of as many values in wide matrices and in narrow ones, whose rows are more. */
static bool measure_cached(rg_shop *w, rg_machine *m, rg_type type, rg_error *err)
{
    const int64_t rows = matrix_rows(type), more = COLS / NARROW_COLS * rows;
    const int64_t wide[3] = { 1, rows, COLS }, narrow[3] = { 1, more, NARROW_COLS };
    rg_linear_rate *r = &m->rates.linear[type];
    double s[2][RG_RATE_ROWS];

    if (!far_products(w, m, type, RG_FROM_CACHE, CACHED, wide, s[0], err) ||
        !far_products(w, m, type, RG_FROM_CACHE, CACHED, narrow, s[1], err))
        return false;
    for (int i = 0; i < RG_RATE_ROWS; i++) {
        r->far_row_s[i] = beyond(s[1][i], s[0][i], (double)(more - rows));
        r->far_s[RG_FROM_CACHE][i] = beyond(s[0][i], (double)rows * r->far_row_s[i], (double)(rows * COLS));
    }
    return true;
}

/* From memory they are so large that what begins and ends with each does not count; and what does, of a short one. */
static bool measure_far(rg_shop *w, rg_machine *m, rg_type type, rg_error *err)
{
    const int64_t shape[3] = { 1, FAR_TIMES * matrix_rows(type), COLS };
    const rg_format *fmt = rg_format_of(type);
    rg_linear_rate *r = &m->rates.linear[type];
    double values = (double)(shape[1] * shape[2]), part = values / RG_SAY_PARTS, s[RG_RATE_ROWS];

    if (!far_products(w, m, type, RG_FROM_MEMORY, RG_SHOP_MATRICES, shape, s, err) ||
        !rg_shop_batch(w, 1, 0, false, err))
        return false;
    for (int i = 0; i < RG_RATE_ROWS; i++)
        r->far_s[RG_FROM_MEMORY][i] = s[i] / values;
    w->spread = RG_SHOP_MATRICES * RG_SAY_PARTS;
    double near = part * r->near_s[0] + r->in_s * COLS + r->out_s * (double)shape[1] / RG_SAY_PARTS;
    double best = rg_machine_comes_s(m, RG_FROM_MEMORY, part * fmt->block_bytes / fmt->block_len);
    double took = rg_shop_far_seconds(w, rg_say_part, RG_FROM_MEMORY, near, best);
    r->far_start_s = beyond(took, m->rates.fixed_s[RG_OP_LINEAR] + near + part * r->far_s[RG_FROM_MEMORY][0], 1);
    r->measured = true;
    return true;
}

/* The first n spans, of a row each, make the batch of every layer. */
static void batch_of_layers(rg_shop *w, int n, int n_layers)
{
    w->batches[0].n_rows = w->batches[0].n_spans = n;
    w->batches[0].spans = w->spans;
    for (int i = 1; i < n_layers; i++)
        w->batches[i] = w->batches[0];
    w->spread = n_layers;
}

/* One row of each of n sequences of n_blocks blocks, each block holding LAYERS layers, which are gone through in turn:
 * how K/V lies in a model, so that what is measured meets memory as a model's does. */
static bool set_layers(rg_shop *w, int n, int n_blocks, rg_error *err)
{
    w->spread = n * n_blocks * RG_BLOCK / RG_SHOP_CONTEXT; /* so many whole sequences have as much memory */
    if (!rg_shop_batch(w, 1, LAYERS * rg_kv_bytes(&w->kv), false, err))
        return false;
    for (int i = 0; i < n; i++) {
        for (int b = 0; b < n_blocks; b++)
            w->table[i * n_blocks + b] = i * n_blocks + b;
        w->spans[i] = (rg_span){ .first_row = i, .n_rows = 1, .start = n_blocks * RG_BLOCK - 1, .adapter = -1 };
        w->spans[i].tables[0] = w->table + i * n_blocks;
        w->index[i] = n_blocks * RG_BLOCK - 1;
        w->kv_end[i] = n_blocks * RG_BLOCK;
    }
    batch_of_layers(w, n, LAYERS);
    return true;
}

/* The same of recurrences: what n sequences carry through so many layers. */
static bool set_carried(rg_shop *w, int n, int n_layers, rg_error *err)
{
    w->spread = n;
    if (!rg_shop_batch(w, 1, (size_t)n_layers * (w->tail.bytes + w->h.bytes), true, err))
        return false;
    for (int i = 0; i < n; i++)
        w->spans[i].first_row = i;
    batch_of_layers(w, n, n_layers);
    return true;
}

/* Short streams of K/V, from there.  And a store, which alone finds its lines near; between layers and sequences it
 * does not, and where in a block it puts its values matters: the first half, and the second. */
static bool measure_short(rg_shop *w, rg_machine *m, rg_type type, rg_source from, rg_error *err)
{
    w->kv = (rg_kv){ .type = type, .n_heads = 4, .k_dim = 64, .v_dim = 64 };
    w->n_heads = 4;
    const double each = 2.0 * rg_kv_bytes(&w->kv); /* of a sequence in a layer */
    const int n = from == RG_FROM_MEMORY ? RG_SHOP_SPANS : (int)(CACHED * MEGABYTE / (LAYERS * each));
    if (!set_layers(w, n, 2, err))
        return false;
    rg_attention_rate *r = &m->rates.attention[type];
    double bytes_s = rg_machine_comes_s(m, from, n * each);
    double seen_s = 4.0 * n * (r->item_s[0] + 2 * RG_BLOCK * (r->pair_s[0] + 128 * r->width_s[0]));
    double near = m->rates.fixed_s[RG_OP_KV_STORE] + n * 512.0 * m->rates.few_s[RG_OP_KV_STORE];
    double sweep = rg_shop_far_seconds(w, rg_say_layer, from, seen_s, bytes_s), both = 0;
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < n; i++)
            w->index[i] = RG_BLOCK + RG_BLOCK / 4 + half * RG_BLOCK / 2;
        both += rg_shop_far_seconds(w, rg_say_store_in_layer, from, seen_s + near, bytes_s) / 2;
    }
    r->store_s[from] = beyond(both, sweep + near, n * 512.0);
    seen_s += m->rates.fixed_s[RG_OP_ATTENTION] + r->far_s[from][0] * n * each;
    r->start_s[from] = beyond(sweep, seen_s, n * 4.0);
    return true;
}

/* Seconds of a row and a head that see one block, near: of some sequences, or of many rows of one. */
static double attend_block(rg_shop *w, const rg_machine *m, const rg_kv *kv, const int queries[2], rg_error *err)
{
    int n = queries[1] > 1 ? RG_RATE_MANY : NEAR_SPANS;

    w->kv = *kv;
    w->n_heads = kv->n_heads * queries[0];
    w->spread = 0;
    if (!(queries[1] > 1 ? rg_shop_batch(w, n, rg_kv_bytes(kv), false, err) : set_layers(w, n, 1, err)))
        return -1;
    w->spread = 1;
    for (int i = 0; i < n; i++) {
        w->index[i] = RG_BLOCK - 1;
        w->kv_end[i] = RG_BLOCK;
    }
    return beyond(rg_shop_seconds(w, kv->latent ? rg_say_mla_attention : rg_say_attention),
                  m->rates.fixed_s[RG_OP_ATTENTION], (double)n * w->n_heads);
}

/* Seconds per pair of query and key, of the last rows of a sequence, without item_s, near. */
static double attend(rg_shop *w, const rg_kv *kv, const int queries[2], double item_s, rg_error *err)
{
    w->kv = *kv;
    w->n_heads = kv->n_heads * queries[0];
    w->spread = 1;
    if (!rg_shop_batch(w, queries[1], rg_kv_bytes(kv), false, err))
        return -1;
    double s = rg_shop_seconds(w, kv->latent ? rg_say_mla_attention : rg_say_attention);
    return beyond(s / (queries[1] * w->n_heads), item_s, RG_SHOP_CONTEXT); /* rows differ within a block */
}

/* The same of sequences that lie there, and take near_s near. */
static double attend_from(rg_shop *w, const rg_machine *m, const rg_kv *kv, const int queries[2], rg_source from,
                          double item_s, double near_s, rg_error *err)
{
    const bool memory = from == RG_FROM_MEMORY, layers = queries[1] == 1 && !kv->latent;
    const int n_blocks = RG_SHOP_CONTEXT / RG_BLOCK / (layers && !memory ? LAYERS / CACHED : 1);
    const int n = layers && memory ? FAR_SPANS : 1, keys = n_blocks * RG_BLOCK;

    w->kv = *kv;
    w->n_heads = kv->n_heads * queries[0];
    w->spread = memory ? RG_SHOP_SPANS : CACHED;
    if (!(layers ? set_layers(w, n, n_blocks, err) : rg_shop_batch(w, queries[1], rg_kv_bytes(kv), false, err)))
        return -1;
    rg_shop_text *say = kv->latent ? rg_say_mla_attention : layers ? rg_say_layer : rg_say_attention;
    double items = (double)n * queries[1] * w->n_heads, bytes = (double)(n * n_blocks) * rg_kv_bytes(kv);
    double s = rg_shop_far_seconds(w, say, from, items * (item_s + near_s * keys), rg_machine_comes_s(m, from, bytes));
    return beyond(s / items, item_s, keys);
}

/* 1, 2, 4, 8 and 32 queries that share their keys: heads of a kv head, times rows. */
static bool measure_attention(rg_shop *w, rg_machine *m, rg_type type, bool latent, rg_error *err)
{
    static const int per_kv[RG_RATE_QUERIES] = { 1, 2, 4, 8, 4 }, n_rows[RG_RATE_QUERIES] = { 1, 1, 1, 1, 32 };
    static const int of_latent[RG_RATE_QUERIES] = { 1, 2, 4, 8, 16 }, latent_rows[RG_RATE_QUERIES] = { 1, 1, 1, 1, 8 };
    rg_attention_rate *r = latent ? &m->rates.latent[type] : &m->rates.attention[type];
    int size = rg_format_of(type)->block_bytes;

    for (int i = 0; i < RG_RATE_QUERIES; i++) {
        rg_kv kv = { .type = type, .n_heads = 8 / size, .k_dim = 64, .v_dim = 64 }, wide = kv;
        double queries = per_kv[i] * n_rows[i];

        wide.n_heads /= 2;
        wide.k_dim = wide.v_dim = 128;
        if (latent) {
            kv = (rg_kv){ .type = type, .n_heads = 1, .k_dim = LATENT_K, .v_dim = LATENT_V, .latent = true };
            queries = of_latent[i] * latent_rows[i];
        }
        int each[2] = { latent ? of_latent[i] : per_kv[i], latent ? latent_rows[i] : n_rows[i] };
        double block = attend_block(w, m, &kv, each, err), all = RG_SHOP_CONTEXT * attend(w, &kv, each, 0, err);
        if (block < 0 || all < 0)
            return false;
        double near = beyond(all, block, RG_SHOP_CONTEXT - RG_BLOCK), item = beyond(block, RG_BLOCK * near, 1);
        double two = latent ? 0 : attend(w, &wide, each, item, err);
        if (two < 0)
            return false;
        r->item_s[i] = item;
        double per_column = latent ? near / (LATENT_K + LATENT_V) : (two - near) / 128;
        per_column = per_column < 0 ? 0 : per_column;
        r->width_s[i] = per_column;
        r->pair_s[i] = latent || near < 128 * per_column ? 0 : near - 128 * per_column;
        /* Of a key and its value, for as many pairs as there are queries. */
        double bytes = (latent ? LATENT_K : 128) * rg_kv_value_bytes(type);
        for (rg_source from = 0; from < RG_SOURCES; from++) {
            double far = attend_from(w, m, &kv, each, from, item, near, err);
            if (far < 0)
                return false;
            r->far_s[from][i] = far > near ? (far - near) * queries / bytes : 0;
        }
    }
    r->measured = true;
    return latent || (measure_short(w, m, type, RG_FROM_CACHE, err) && measure_short(w, m, type, RG_FROM_MEMORY, err));
}

static const struct {
    rg_op_kind kind;
    rg_shop_text *say;
} cells[] = {
    { RG_OP_RMSNORM, rg_say_rmsnorm }, { RG_OP_ADD, rg_say_add },       { RG_OP_ACT_MUL, rg_say_act_mul },
    { RG_OP_SOFTCAP, rg_say_softcap }, { RG_OP_GATHER, rg_say_gather }, { RG_OP_ROTATE, rg_say_rotate },
};

/* Fixed: one row of the least width.  Then rows as narrow, few wide ones, and many. */
static bool measure_cells(rg_shop *w, rg_machine *m, rg_error *err)
{
    static const struct {
        int rows, cols;
    } pass[] = { { 1, NARROW }, { RG_RATE_FEW, NARROW }, { RG_RATE_FEW, CELL_COLS }, { RG_RATE_MANY, CELL_COLS } };
    rg_rates *r = &m->rates;

    w->spread = 0;
    w->rope = (rg_rope){ .n_pairs = 32, .inv_freq = w->vector, .factor = 1 };
    for (size_t p = 0; p < RG_LEN(pass); p++) {
        int rows = pass[p].rows;
        w->norm.cols = w->width = pass[p].cols;
        if (!rg_shop_batch(w, rows, 0, false, err))
            return false;
        for (size_t i = 0; i < RG_LEN(cells); i++) {
            rg_op_kind k = cells[i].kind;
            double *const to[] = { &r->fixed_s[k], &r->row_s[k], &r->few_s[k], &r->many_s[k] };
            double s = rg_shop_seconds(w, cells[i].say), values = (double)rows * (p > 1 ? w->width : 1);
            *to[p] = p ? beyond(s, r->fixed_s[k] + (p > 1 ? rows * r->row_s[k] : 0), values) : s;
        }
    }
    r->few_s[RG_OP_GATED] = r->few_s[RG_OP_ACT_MUL];
    r->many_s[RG_OP_GATED] = r->many_s[RG_OP_ACT_MUL];
    return true;
}

/* What a product takes more that adds to what is there: of so few columns that it shows. */
static bool measure_adding(rg_shop *w, rg_machine *m, rg_type type, rg_error *err)
{
    const int block = rg_format_of(type)->block_len;
    const int64_t shape[3] = { 1, CELL_COLS, block > SHORT ? block : SHORT };
    rg_rates *r = &m->rates;

    w->spread = 0;
    if (!rg_shop_weights(w, type, 1, shape, err))
        return false;
    for (int many = 0; many < 2; many++) {
        int rows = many ? RG_RATE_MANY : RG_RATE_FEW;
        if (!rg_shop_batch(w, rows, 0, false, err))
            return false;
        double bare = rg_shop_seconds(w, rg_say_linear);
        double each = beyond(rg_shop_seconds(w, rg_say_linear_add), bare, (double)rows * CELL_COLS);
        *(many ? &r->many_s[RG_OP_LINEAR] : &r->few_s[RG_OP_LINEAR]) = each;
    }
    return true;
}

static bool measure_fixed_products(rg_shop *w, rg_machine *m, rg_type type, rg_error *err)
{
    const int64_t least[3] = { 1, 256, 256 };
    rg_rates *r = &m->rates;

    w->spread = 0;
    if (!rg_shop_weights(w, type, 1, least, err) || !rg_shop_batch(w, 1, 0, false, err))
        return false;
    double small = 256.0 * 256 * rg_format_of(type)->block_bytes / rg_format_of(type)->block_len / m->read_bytes_s;
    double linear = rg_shop_seconds(w, rg_say_linear) - small / 4, gated = rg_shop_seconds(w, rg_say_gated) - small / 2;
    r->fixed_s[RG_OP_LINEAR] = r->fixed_s[RG_OP_LINEAR_HEADS] = larger(linear, m->op_s);
    r->fixed_s[RG_OP_GATED] = larger(gated, m->op_s);
    r->fixed_s[RG_OP_EMBED] = rg_shop_seconds(w, rg_say_embed);
    if (!rg_shop_batch(w, RG_RATE_MANY, 0, false, err))
        return false;
    r->many_s[RG_OP_EMBED] = beyond(rg_shop_seconds(w, rg_say_embed), r->fixed_s[RG_OP_EMBED], RG_RATE_MANY * 256);
    r->few_s[RG_OP_EMBED] = r->many_s[RG_OP_EMBED];
    return true;
}

/* A store of a row of one sequence, of some, and of many rows of one; attention of a row that sees one block, of one
 * sequence and of some, which tells what is fixed. */
static bool measure_kv(rg_shop *w, rg_machine *m, rg_type type, rg_error *err)
{
    rg_rates *r = &m->rates;
    double store[2], see[2];

    w->kv = (rg_kv){ .type = type, .n_heads = 4, .k_dim = 64, .v_dim = 64 };
    w->n_heads = 4;
    for (int some = 0; some < 2; some++) {
        if (!set_layers(w, some ? NEAR_SPANS : 1, 1, err))
            return false;
        w->spread = 1;
        store[some] = rg_shop_seconds(w, rg_say_kv_store);
        see[some] = rg_shop_seconds(w, rg_say_attention);
    }
    double row = beyond(store[1], store[0], NEAR_SPANS - 1), block = beyond(see[1], see[0], NEAR_SPANS - 1);
    r->few_s[RG_OP_KV_STORE] = row / 512;
    r->fixed_s[RG_OP_KV_STORE] = larger(store[0] - row, m->op_s);
    r->fixed_s[RG_OP_ATTENTION] = r->fixed_s[RG_OP_MLA_ATTENTION] = larger(see[0] - block, m->op_s);
    if (!rg_shop_batch(w, RG_RATE_MANY, rg_kv_bytes(&w->kv), false, err))
        return false;
    double s = rg_shop_seconds(w, rg_say_kv_store);
    r->many_s[RG_OP_KV_STORE] = beyond(s, r->fixed_s[RG_OP_KV_STORE], RG_RATE_MANY * 512.0);
    return true;
}

static bool measure_experts(rg_shop *w, rg_machine *m, rg_type type, rg_error *err)
{
    const int64_t shape[3] = { RG_SHOP_EXPERTS, EXPERT_DIM, EXPERT_DIM };
    rg_rates *r = &m->rates;
    const rg_linear_rate *linear = &r->linear[type];
    double values = 3.0 * EXPERT_DIM * EXPERT_DIM;

    w->spread = 0;
    w->routing = (rg_routing){ .n_experts = RG_SHOP_EXPERTS, .n_used = RG_SHOP_USED, .scale = 1 };
    if (!rg_shop_weights(w, type, 3, shape, err) || !rg_shop_batch(w, 1, 0, false, err))
        return false;
    r->fixed_s[RG_OP_ROUTE] = rg_shop_seconds(w, rg_say_route);
    double one = rg_shop_seconds(w, rg_say_moe) - RG_SHOP_USED * values * linear->near_s[0]; /* experts of one row */
    r->fixed_s[RG_OP_MOE] = larger(one, r->fixed_s[RG_OP_LINEAR]);
    if (!rg_shop_batch(w, MOE_ROWS, 0, false, err))
        return false;
    double each = beyond(rg_shop_seconds(w, rg_say_route), r->fixed_s[RG_OP_ROUTE], MOE_ROWS * 2 * RG_SHOP_USED);
    r->few_s[RG_OP_ROUTE] = r->many_s[RG_OP_ROUTE] = each;
    /* What is neither fixed nor product, at MOE_ROWS * USED / EXPERTS = rg_rate_rows[FEW_AT] rows of each expert. */
    double products = RG_SHOP_EXPERTS * values * linear->near_s[FEW_AT];
    each = beyond(rg_shop_seconds(w, rg_say_moe), r->fixed_s[RG_OP_MOE] + products,
                  3.0 * MOE_ROWS * RG_SHOP_USED * EXPERT_DIM);
    r->few_s[RG_OP_MOE] = r->many_s[RG_OP_MOE] = each;
    return true;
}

/* Of one kind: a row of one sequence takes fixed + values each + bytes near; more rows of it values each; of other
 * sequences, bytes near too, or what these take from memory. */
static bool measure_recurrence(rg_shop *w, rg_machine *m, rg_op_kind kind, rg_error *err)
{
    static const int rows[] = { 1, RG_RATE_FEW, RG_RATE_MANY };
    rg_rates *r = &m->rates;
    rg_shop_text *say = kind == RG_OP_SCAN ? rg_say_scan : rg_say_conv;
    double values = kind == RG_OP_SCAN ? INNER * STATE : INNER;
    double bytes = 2 * sizeof(float) * INNER * (kind == RG_OP_SCAN ? STATE : CONV - 1.0), s[3];

    w->spread = 1;
    for (int i = 0; i < 3; i++) {
        if (!rg_shop_batch(w, rows[i], (w->tail.bytes + w->h.bytes), true, err))
            return false;
        s[i] = rg_shop_seconds(w, say);
    }
    r->few_s[kind] = beyond(s[1], s[0], (RG_RATE_FEW - 1) * values);
    r->many_s[kind] = beyond(s[2], s[0], (RG_RATE_MANY - 1) * values);
    if (!set_carried(w, NEAR_CARRIED, 1, err))
        return false;
    r->carry_near_s[kind] = beyond(rg_shop_seconds(w, say), s[0] + (NEAR_CARRIED - 1) * r->few_s[kind] * values,
                                   (NEAR_CARRIED - 1) * bytes);
    double row = r->few_s[kind] * values + r->carry_near_s[kind] * bytes;
    r->fixed_s[kind] = larger(s[0] - row, m->op_s);
    int few = (int)(CACHED * MEGABYTE / (LAYERS * bytes / 2));
    for (rg_source from = 0; from < RG_SOURCES; from++) {
        int n = from == RG_FROM_CACHE && few < FAR_CARRIED ? few : FAR_CARRIED;
        if (!set_carried(w, n, LAYERS, err))
            return false;
        double near = r->fixed_s[kind] + n * row;
        double far = rg_shop_far_seconds(w, say, from, near, rg_machine_comes_s(m, from, n * bytes));
        r->carry_far_s[from][kind] = beyond(far, near, n * bytes);
    }
    return true;
}

static bool measure_recurrent(rg_shop *w, rg_machine *m, rg_error *err)
{
    w->d_inner = INNER;
    w->d_state = STATE;
    w->taps = CONV;
    w->tail = rg_conv_tail("tail", INNER, CONV);
    w->h = rg_scan_state("h", INNER, STATE);
    return measure_recurrence(w, m, RG_OP_CONV, err) && measure_recurrence(w, m, RG_OP_SCAN, err);
}

static rg_type first_of(const bool wanted[RG_TYPE_COUNT], rg_type otherwise)
{
    for (int t = 0; t < RG_TYPE_COUNT; t++)
        if (wanted[t])
            return (rg_type)t;
    return otherwise;
}

/* Never slower with less to go through: what disturbs makes slower. */
static void measure_sets(rg_shop *w, rg_machine *m, const rg_cpu *cpu)
{
    double least = 0;

    for (int i = RG_RATE_SETS - 1; i >= 0; i--) {
        rg_shop_wait(w, false);
        double rate = rg_machine_bandwidth(cpu, w->pool, w->n_threads, (size_t)rg_rate_sets[i], false);
        rg_share now = rg_pulse_look(w->pulse, w->pool, true);
        double byte_s = rate > 0 ? rg_share_byte(m, &now, 1 / rate) : 0;
        byte_s = rg_shop_usual(w, byte_s, rg_shop_quiet(w, &now));
        least = byte_s > 0 && (byte_s < least || !least) ? byte_s : least;
        m->rates.set_bytes_s[i] = least > 0 ? 1 / least : 0;
    }
}

/* The most that the last cache holds, but for a tenth. */
static size_t held_set(const rg_machine *m)
{
    const double *rate = m->rates.set_bytes_s;
    double cache_s = 1 / rate[RG_RATE_CACHE], far_s = 1 / rate[RG_RATE_FAR];
    int i = RG_RATE_CACHE;

    while (i + 1 < RG_RATE_FAR && 1 / rate[i + 1] < cache_s + (far_s - cache_s) / 10)
        i++;
    return (size_t)rg_rate_sets[i];
}

/* What lies in the last cache comes more slowly after a while, as others use that cache too: as if a part of it came
 * from memory.  They take more of what fills it, so that is what is tried. */
static void measure_taken(rg_shop *w, rg_machine *m, const rg_cpu *cpu)
{
    const size_t set = held_set(m);
    const double far_s = 1 / m->rates.set_bytes_s[RG_RATE_FAR];
    double byte_s[RG_RATE_PAUSES + 1], last = 0;

    for (int i = 0; i <= RG_RATE_PAUSES; i++) {
        rg_share before = rg_shop_wait(w, true);
        double rate = rg_machine_bandwidth_after(cpu, w->pool, w->n_threads, set, i ? rg_rate_pauses[i - 1] : 0);
        byte_s[i] = rg_shop_usual(w, rate > 0 ? rg_share_byte(m, &before, 1 / rate) : 0, rg_shop_quiet(w, &before));
    }
    for (int i = 0; i < RG_RATE_PAUSES; i++) {
        double part = far_s > byte_s[0] ? (byte_s[i + 1] - byte_s[0]) / (far_s - byte_s[0]) : 0;
        last = part > 1 ? 1 : part > last ? part : last;
        m->rates.taken[i] = last;
    }
}

static bool measure_once(rg_shop *w, rg_machine *m, const rg_cpu *cpu, const rg_rates_wanted *wanted, rg_error *err)
{
    rg_type weights = first_of(wanted->linear, RG_BF16), kv = first_of(wanted->attention, RG_BF16);
    bool ok;

    memset(&m->rates, 0, sizeof m->rates);
    m->rates.n_threads = w->n_threads;
    measure_sets(w, m, cpu);
    measure_taken(w, m, cpu);
    ok = measure_cells(w, m, err) && measure_fixed_products(w, m, weights, err) &&
         measure_adding(w, m, weights, err) && measure_kv(w, m, kv, err);
    for (int t = 0; ok && t < RG_TYPE_COUNT; t++) {
        ok = !wanted->linear[t] || (measure_near(w, m, (rg_type)t, err) && measure_cached(w, m, (rg_type)t, err) &&
                                    measure_far(w, m, (rg_type)t, err));
        ok = ok && (!wanted->attention[t] || measure_attention(w, m, (rg_type)t, false, err));
        ok = ok && (!wanted->latent[t] || measure_attention(w, m, (rg_type)t, true, err));
    }
    ok = ok && (!wanted->experts || measure_experts(w, m, weights, err));
    ok = ok && (!wanted->recurrent || measure_recurrent(w, m, err));
    for (int i = 0; ok && i < RG_RATE_WINDOWS; i++)
        m->rates.lost[i] = rg_shop_lost(w, i);
    return ok;
}

bool rg_rates_measure(rg_machine *m, const rg_cpu *cpu, int n_threads, const rg_rates_wanted *wanted, rg_seen *seen,
                      rg_error *err)
{
    rg_shop *w = rg_shop_open(cpu, n_threads, wanted->exact, err);
    rg_seen *own = seen ? NULL : rg_zalloc(sizeof *own);
    rg_pulse *pulse = w ? rg_pulse_open(m, cpu, n_threads, err) : NULL;
    bool ok = w && pulse && (seen || own);

    for (int i = 0; ok && i < (wanted->passes ? wanted->passes : 1); i++) {
        w->seen = seen ? seen : own;
        w->pulse = pulse;
        w->patience_s = PATIENCE_S;
        w->n_timed = 0;
        ok = measure_once(w, m, cpu, wanted, err);
    }
    m->rates.measured = ok;
    m->share = ok ? rg_pulse_usual(pulse) : (rg_share){ 0 };
    if (w && !seen && !own)
        rg_fail_memory(err, sizeof *own);
    rg_free(own);
    rg_pulse_close(pulse);
    rg_shop_close(w);
    return ok;
}

/* ---- what a model needs ------------------------------------------------------------------------------------------ */

rg_rates_wanted rg_rates_for(const rg_model *m, bool exact)
{
    rg_rates_wanted wanted = { .exact = exact };

    for (int i = 0; i < m->weights.n; i++) {
        const rg_weight *w = &m->weights.all[i];
        if (!rg_spec_is_vector(m->weights.spec[i]) && rg_format_of(w->type)->encode && w->rows >= RG_PANEL)
            wanted.linear[w->type] = true;
        wanted.experts |= w->n_mats > 1 && m->config.routing.n_experts > 0;
    }
    for (int i = 0; i < m->config.n_layers; i++) {
        const rg_kv *kv = &m->keep[i].kv;
        if (kv->group >= 0)
            (kv->latent ? wanted.latent : wanted.attention)[kv->type] = true;
        wanted.recurrent |= m->keep[i].n_buffers > 0;
    }
    return wanted;
}
