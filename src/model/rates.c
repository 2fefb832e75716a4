/* rates.c -- see rates.h: what is timed (shop.h), and what follows from how long it takes. */
#include "model/rates.h"

#include <string.h>

#include "base/quantile.h"
#include "base/mem.h"
#include "model/origin.h"
#include "model/shop.h"

enum {
    COLS = 2048,             /* of a matrix of products */
    MATRIX_BYTES = 1 << 20,
    SHORT = 64, FEW_AT = 11, /* columns of a narrow one; and its rows are rg_rate_rows from this one on, 16 */
    CELL_COLS = 2048,        /* of what is made value by value */
    NEAR_SPANS = 8, FAR_SPANS = 12, LAYERS = 16,
    FAR_TIMES = 12, /* megabytes of a matrix that comes from memory; all together so many that no cache keeps a part, */
    PARTS = 8,     /* or in so many products */
    EXPERT_DIM = 512, MOE_ROWS = 64,
    INNER = 2048, STATE = 16, CONV = 4, /* of a recurrence, */
    NEAR_CARRIED = 4, FAR_CARRIED = 24, /* and its sequences */
    LATENT_K = 576, LATENT_V = 512,
};

static const double PATIENCE_S = 2; /* in a pass */

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static void say_linear(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", (int)w->weight[turn].cols), *y = rg_act_new(f, "y", (int)w->weight[turn].rows);

    rg_linear(f, y, x, &w->weight[turn], NULL);
}

/* Of a matrix's parts one after the other, each a product of its own. */
static void say_part(rg_fwd *f, rg_shop *w, int turn)
{
    rg_weight part = w->weight[turn / PARTS];
    rg_packed packed = *part.packed;

    part.rows = packed.rows /= PARTS;
    packed.data += (size_t)(turn % PARTS * (packed.rows / RG_PANEL)) * packed.panel_bytes;
    part.packed = &packed;
    rg_linear(f, rg_act_new(f, "y", (int)part.rows), rg_act_new(f, "x", (int)part.cols), &part, NULL);
}

static void say_gated(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", (int)w->weight[turn].cols), *y = rg_act_new(f, "y", (int)w->weight[turn].rows);

    rg_gated(f, y, x, &w->weight[turn], &w->weight[turn], NULL, NULL, RG_SILU);
}

/* Not in place: again and again, its weights would make of some values numbers so small that processors are slow. */
static void say_rmsnorm(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", w->width);

    (void)turn;
    rg_rmsnorm(f, rg_act_new(f, "y", w->width), x, &w->norm, 1e-5f);
}

static void say_add(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", w->width), *y = rg_act_new(f, "y", w->width);

    (void)turn;
    rg_add_to(f, y, x);
}

static void say_act_mul(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", w->width), *y = rg_act_new(f, "y", w->width), *z = rg_act_new(f, "z", w->width);

    (void)turn;
    rg_act_mul(f, z, x, y, RG_SILU);
}

static void say_softcap(rg_fwd *f, rg_shop *w, int turn)
{
    (void)turn;
    rg_softcap(f, rg_act_new(f, "x", w->width), 30.0f);
}

static void say_gather(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", w->width), *y = rg_act_new(f, "y", w->width);

    (void)turn;
    rg_gather(f, y, x);
}

static void say_rotate(rg_fwd *f, rg_shop *w, int turn)
{
    (void)turn;
    rg_rotate(f, rg_act_new(f, "x", w->width), &w->rope, 64, 0);
}

static void say_embed(rg_fwd *f, rg_shop *w, int turn)
{
    (void)turn;
    rg_embed(f, rg_act_new(f, "x", (int)w->weight[0].cols), &w->weight[0], 1.0f);
}

static void say_kv_store(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *k = rg_act_new(f, "k", w->kv.n_heads * w->kv.k_dim), *v = rg_act_new(f, "v", w->kv.n_heads * w->kv.v_dim);

    (void)turn;
    rg_kv_store(f, &w->kv, k, v);
}

static void say_attention(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *q = rg_act_new(f, "q", w->n_heads * w->kv.k_dim), *y = rg_act_new(f, "y", w->n_heads * w->kv.v_dim);

    (void)turn;
    rg_attention(f, y, q, &w->kv, w->n_heads, 0.1f, 0.0f);
}

/* Attention in one layer of many after the other, each with its place in every block; and with a store before it. */
static void say_layer(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *q = rg_act_new(f, "q", w->n_heads * w->kv.k_dim), *y = rg_act_new(f, "y", w->n_heads * w->kv.v_dim);
    rg_kv kv = w->kv;

    kv.offset = (size_t)turn * rg_kv_bytes(&kv);
    rg_attention(f, y, q, &kv, w->n_heads, 0.1f, 0.0f);
}

static void say_store_in_layer(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *k = rg_act_new(f, "k", w->kv.n_heads * w->kv.k_dim), *v = rg_act_new(f, "v", w->kv.n_heads * w->kv.v_dim);
    rg_kv kv = w->kv;

    kv.offset = (size_t)turn * rg_kv_bytes(&kv);
    rg_kv_store(f, &kv, k, v);
    say_layer(f, w, turn);
}

static void say_mla_attention(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *q = rg_act_new(f, "q", w->n_heads * LATENT_V), *r = rg_act_new(f, "r", w->n_heads * (LATENT_K - LATENT_V));
    rg_act *y = rg_act_new(f, "y", w->n_heads * LATENT_V);

    (void)turn;
    rg_mla_attention(f, y, q, r, &w->kv, w->n_heads, 0.1f);
}

/* Every expert gets as many rows as any other. */
static void say_moe(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", EXPERT_DIM), *y = rg_act_new(f, "y", EXPERT_DIM);
    rg_act *r = rg_act_new(f, "r", 2 * RG_SHOP_USED);
    const rg_weight *all[3] = { &w->weight[0], &w->weight[1], &w->weight[2] };

    (void)turn;
    for (int row = 0; f->thread == 0 && row < r->rows; row++) {
        float *to = rg_act_data(f, r) + (size_t)row * (size_t)r->stride;
        for (int32_t k = 0; k < RG_SHOP_USED; k++) {
            int32_t e = row % (RG_SHOP_EXPERTS / RG_SHOP_USED) + k * (RG_SHOP_EXPERTS / RG_SHOP_USED);
            memcpy(to + k, &e, sizeof e);
            to[RG_SHOP_USED + k] = 0.5f;
        }
    }
    rg_fwd_barrier(f);
    rg_moe(f, y, x, r, &w->routing, all, RG_SILU);
}

static void say_route(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", RG_SHOP_EXPERTS), *r = rg_act_new(f, "r", 2 * RG_SHOP_USED);

    (void)turn;
    rg_route(f, r, x, &w->routing);
}

/* Of one layer of many after the other, each with its place in every state. */
static rg_recurrent of_layer(const rg_shop *w, int turn)
{
    rg_recurrent rec = w->rec;

    rec.offset = (size_t)turn * rg_recurrent_bytes(&rec);
    return rec;
}

/* As in a model, x and z are halves of one activation. */
static void say_conv(rg_fwd *f, rg_shop *w, int turn)
{
    rg_weight taps = { .name = "taps", .n_mats = 1, .rows = INNER, .cols = CONV, .vec = w->vector };
    rg_weight bias = { .name = "bias", .n_mats = 1, .rows = 1, .cols = INNER, .vec = w->vector };
    rg_recurrent rec = of_layer(w, turn);
    rg_act *xz = rg_act_new(f, "xz", 2 * INNER), *x = rg_act_view(f, "x", xz, 0, INNER), *y = rg_act_new(f, "y", INNER);

    rg_conv(f, y, x, &taps, &bias, &rec);
}

static void say_scan(rg_fwd *f, rg_shop *w, int turn)
{
    rg_weight a = { .name = "a", .n_mats = 1, .rows = STATE, .cols = INNER, .vec = w->vector };
    rg_weight d = { .name = "d", .n_mats = 1, .rows = 1, .cols = INNER, .vec = w->vector };
    rg_recurrent rec = of_layer(w, turn);
    rg_act *xz = rg_act_new(f, "xz", 2 * INNER), *z = rg_act_view(f, "z", xz, INNER, INNER);
    rg_act *x = rg_act_new(f, "x", INNER), *dt = rg_act_new(f, "dt", INNER), *bc = rg_act_new(f, "bc", 2 * STATE);
    rg_act *y = rg_act_new(f, "y", INNER);

    rg_scan(f, y, x, dt, bc, z, &a, &d, &rec);
}

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
        s[i] = beyond(rg_shop_seconds(w, say_linear), m->rates.fixed_s[RG_OP_LINEAR], 1);
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

/* The same from memory, with matrices so large that what begins and ends with each does not count; beyond 64 rows
 * arithmetic hides it. */
static bool measure_far(rg_shop *w, rg_machine *m, rg_type type, rg_error *err)
{
    rg_linear_rate *r = &m->rates.linear[type];
    const rg_format *fmt = rg_format_of(type);
    const int64_t shape[3] = { 1, FAR_TIMES * matrix_rows(type), COLS };
    double values = (double)(shape[1] * shape[2]), last = 0, bytes = values * fmt->block_bytes / fmt->block_len;
    double most = bytes / values / m->rates.set_bytes_s[RG_RATE_SETS - 1]; /* none hidden */

    w->spread = RG_SHOP_MATRICES;
    if (!rg_shop_weights(w, type, RG_SHOP_MATRICES, shape, err))
        return false;
    for (int i = 0; i < RG_RATE_ROWS; i++) {
        int rows = rg_rate_rows[i];
        if (rows <= 64 && !(rows & (rows - 1))) {
            if (!rg_shop_batch(w, rows, 0, false, err))
                return false;
            double near = r->near_s[i] * values + rows * (r->in_s * COLS + r->out_s * (double)shape[1]);
            double s = rg_shop_far_seconds(w, say_linear, near, bytes / m->read_bytes_s);
            last = beyond(s, m->rates.fixed_s[RG_OP_LINEAR] + near, values);
            last = last < most ? last : most;
        }
        r->far_s[i] = last;
    }
    if (!rg_shop_batch(w, 1, 0, false, err))
        return false;
    w->spread = RG_SHOP_MATRICES * PARTS;
    double near = values / PARTS * r->near_s[0] + r->in_s * COLS + r->out_s * (double)shape[1] / PARTS;
    double part = rg_shop_far_seconds(w, say_part, near, bytes / PARTS / m->read_bytes_s);
    r->far_start_s = beyond(part, m->rates.fixed_s[RG_OP_LINEAR] + near + values / PARTS * r->far_s[0], 1);
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
    if (!rg_shop_batch(w, 1, (size_t)n_layers * rg_recurrent_bytes(&w->rec), true, err))
        return false;
    for (int i = 0; i < n; i++)
        w->spans[i].first_row = i;
    batch_of_layers(w, n, n_layers);
    return true;
}

/* Short streams of K/V, from memory.  And a store, which alone finds its lines near; between layers and sequences it
 * does not, and where in a block it puts its values matters: the first half, and the second. */
static bool measure_short(rg_shop *w, rg_machine *m, rg_type type, rg_error *err)
{
    w->kv = (rg_kv){ .type = type, .n_heads = 4, .k_dim = 64, .v_dim = 64 };
    w->n_heads = 4;
    if (!set_layers(w, RG_SHOP_SPANS, 2, err))
        return false;
    rg_attention_rate *r = &m->rates.attention[type];
    double bytes = 2.0 * RG_SHOP_SPANS * rg_kv_bytes(&w->kv), memory_s = bytes / m->read_bytes_s;
    double seen_s = 4.0 * RG_SHOP_SPANS * (r->item_s[0] + 2 * RG_BLOCK * (r->pair_s[0] + 128 * r->width_s[0]));
    double near = m->rates.fixed_s[RG_OP_KV_STORE] + RG_SHOP_SPANS * 512 * m->rates.few_s[RG_OP_KV_STORE];
    double sweep = rg_shop_far_seconds(w, say_layer, seen_s, memory_s), both = 0;
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < RG_SHOP_SPANS; i++)
            w->index[i] = RG_BLOCK + RG_BLOCK / 4 + half * RG_BLOCK / 2;
        both += rg_shop_far_seconds(w, say_store_in_layer, seen_s + near, memory_s) / 2;
    }
    r->store_s = beyond(both, sweep + near, RG_SHOP_SPANS * 512.0);
    r->start_s = beyond(sweep, m->rates.fixed_s[RG_OP_ATTENTION] + seen_s + r->far_s[0] * bytes, RG_SHOP_SPANS * 4.0);
    return true;
}

/* Seconds of a row and a head that see one block, near: of some sequences, or of many rows of one. */
static double attend_block(rg_shop *w, const rg_machine *m, const rg_kv *kv, const int queries[2], rg_error *err)
{
    int n = queries[1] > 1 ? RG_RATE_MANY : NEAR_SPANS;

    w->kv = *kv;
    w->n_heads = kv->n_heads * queries[0];
    w->spread = 1;
    if (!(queries[1] > 1 ? rg_shop_batch(w, n, rg_kv_bytes(kv), false, err) : set_layers(w, n, 1, err)))
        return -1;
    w->spread = 1;
    for (int i = 0; i < n; i++) {
        w->index[i] = RG_BLOCK - 1;
        w->kv_end[i] = RG_BLOCK;
    }
    return beyond(rg_shop_seconds(w, kv->latent ? say_mla_attention : say_attention),
                  m->rates.fixed_s[RG_OP_ATTENTION], (double)n * w->n_heads);
}

/* Seconds per pair of query and key, of the last rows of a sequence, without item_s: near, where near_s is below 0, or
 * from memory what takes near_s near. */
static double attend(rg_shop *w, const rg_machine *m, const rg_kv *kv, const int queries[2], double item_s,
                     double near_s, rg_error *err)
{
    int per_kv = queries[0], rows = queries[1];
    bool far = near_s >= 0, layers = far && rows == 1 && !kv->latent;
    const double keys = RG_SHOP_CONTEXT; /* of all rows, which differ within a block */
    int n = layers ? FAR_SPANS : 1, n_blocks = RG_SHOP_CONTEXT / RG_BLOCK;

    w->kv = *kv;
    w->n_heads = kv->n_heads * per_kv;
    w->spread = far ? RG_SHOP_SPANS : 1;
    if (!(layers ? set_layers(w, n, n_blocks, err) : rg_shop_batch(w, rows, rg_kv_bytes(kv), false, err)))
        return -1;
    rg_shop_text *say = kv->latent ? say_mla_attention : layers ? say_layer : say_attention;
    double items = (double)n * rows * w->n_heads, memory_s = (double)(n * n_blocks) * rg_kv_bytes(kv) / m->read_bytes_s;
    double s = far ? rg_shop_far_seconds(w, say, items * (item_s + near_s * keys), memory_s) : rg_shop_seconds(w, say);
    double each = s / items - item_s;
    return each > 0 ? each / keys : 0;
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
        double block = attend_block(w, m, &kv, each, err), all = RG_SHOP_CONTEXT * attend(w, m, &kv, each, 0, -1, err);
        if (block < 0 || all < 0)
            return false;
        double near = beyond(all, block, RG_SHOP_CONTEXT - RG_BLOCK), item = beyond(block, RG_BLOCK * near, 1);
        double far = attend(w, m, &kv, each, item, near, err);
        double two = far < 0 || latent ? 0 : attend(w, m, &wide, each, item, -1, err);
        if (far < 0 || two < 0)
            return false;
        r->item_s[i] = item;
        double per_column = latent ? near / (LATENT_K + LATENT_V) : (two - near) / 128;
        per_column = per_column < 0 ? 0 : per_column;
        r->width_s[i] = per_column;
        r->pair_s[i] = latent || near < 128 * per_column ? 0 : near - 128 * per_column;
        /* Of a key and its value, for as many pairs as there are queries. */
        double bytes = (latent ? LATENT_K : 128) * rg_kv_value_bytes(type);
        r->far_s[i] = far > near ? (far - near) * queries / bytes : 0;
    }
    r->measured = true;
    return latent || measure_short(w, m, type, err);
}

static const struct {
    rg_op_kind kind;
    rg_shop_text *say;
} cells[] = {
    { RG_OP_RMSNORM, say_rmsnorm }, { RG_OP_ADD, say_add },       { RG_OP_ACT_MUL, say_act_mul },
    { RG_OP_SOFTCAP, say_softcap }, { RG_OP_GATHER, say_gather }, { RG_OP_ROTATE, say_rotate },
};

/* Fixed: one row of the least width.  Then few rows, then many. */
static bool measure_cells(rg_shop *w, rg_machine *m, rg_error *err)
{
    static const int rows[] = { 1, RG_RATE_FEW, RG_RATE_MANY };
    rg_rates *r = &m->rates;

    w->spread = 0;
    w->rope = (rg_rope){ .n_pairs = 32, .inv_freq = w->vector, .factor = 1 };
    for (int pass = 0; pass < 3; pass++) {
        w->width = pass ? CELL_COLS : 64;
        w->norm.cols = w->width;
        if (!rg_shop_batch(w, rows[pass], 0, false, err))
            return false;
        for (size_t i = 0; i < RG_LEN(cells); i++) {
            rg_op_kind k = cells[i].kind;
            double s = rg_shop_seconds(w, cells[i].say);
            double each = beyond(s, r->fixed_s[k], (double)rows[pass] * CELL_COLS);
            *(pass == 0 ? &r->fixed_s[k] : pass == 1 ? &r->few_s[k] : &r->many_s[k]) = pass ? each : s;
        }
    }
    r->few_s[RG_OP_GATED] = r->few_s[RG_OP_ACT_MUL];
    r->many_s[RG_OP_GATED] = r->many_s[RG_OP_ACT_MUL];
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
    double linear = rg_shop_seconds(w, say_linear) - small / 4, gated = rg_shop_seconds(w, say_gated) - small / 2;
    r->fixed_s[RG_OP_LINEAR] = r->fixed_s[RG_OP_LINEAR_HEADS] = linear > m->op_s ? linear : m->op_s;
    r->fixed_s[RG_OP_GATED] = gated > m->op_s ? gated : m->op_s;
    r->fixed_s[RG_OP_EMBED] = rg_shop_seconds(w, say_embed);
    if (!rg_shop_batch(w, RG_RATE_MANY, 0, false, err))
        return false;
    r->many_s[RG_OP_EMBED] = beyond(rg_shop_seconds(w, say_embed), r->fixed_s[RG_OP_EMBED], RG_RATE_MANY * 256);
    r->few_s[RG_OP_EMBED] = r->many_s[RG_OP_EMBED];
    return true;
}

static bool measure_kv(rg_shop *w, rg_machine *m, rg_type type, rg_error *err)
{
    rg_rates *r = &m->rates;

    w->spread = 1;
    w->kv = (rg_kv){ .type = type, .n_heads = 4, .k_dim = 64, .v_dim = 64 };
    w->n_heads = 4;
    for (int pass = 0; pass < 2; pass++) {
        int rows = pass ? RG_RATE_MANY : 1;
        if (!rg_shop_batch(w, rows, rg_kv_bytes(&w->kv), false, err))
            return false;
        double s = rg_shop_seconds(w, say_kv_store);
        if (pass) {
            r->many_s[RG_OP_KV_STORE] = beyond(s, r->fixed_s[RG_OP_KV_STORE], rows * 512.0);
            r->few_s[RG_OP_KV_STORE] = r->many_s[RG_OP_KV_STORE];
            continue;
        }
        r->fixed_s[RG_OP_KV_STORE] = s;
        for (int i = 0; i < RG_SHOP_SPANS; i++) /* attention that sees next to nothing */
            w->spans[i].start = 0;
        w->index[0] = 0;
        w->kv_end[0] = 1;
        r->fixed_s[RG_OP_ATTENTION] = r->fixed_s[RG_OP_MLA_ATTENTION] = rg_shop_seconds(w, say_attention);
    }
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
    r->fixed_s[RG_OP_ROUTE] = rg_shop_seconds(w, say_route);
    double one = rg_shop_seconds(w, say_moe) - RG_SHOP_USED * values * linear->near_s[0]; /* two experts of one row */
    r->fixed_s[RG_OP_MOE] = one > r->fixed_s[RG_OP_LINEAR] ? one : r->fixed_s[RG_OP_LINEAR];
    if (!rg_shop_batch(w, MOE_ROWS, 0, false, err))
        return false;
    double each = beyond(rg_shop_seconds(w, say_route), r->fixed_s[RG_OP_ROUTE], MOE_ROWS * 2 * RG_SHOP_USED);
    r->few_s[RG_OP_ROUTE] = r->many_s[RG_OP_ROUTE] = each;
    /* What is neither fixed nor product, at MOE_ROWS * USED / EXPERTS = rg_rate_rows[FEW_AT] rows of each expert. */
    double products = RG_SHOP_EXPERTS * values * linear->near_s[FEW_AT];
    each = beyond(rg_shop_seconds(w, say_moe), r->fixed_s[RG_OP_MOE] + products,
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
    rg_shop_text *say = kind == RG_OP_SCAN ? say_scan : say_conv;
    double values = kind == RG_OP_SCAN ? INNER * STATE : INNER;
    double bytes = 2 * sizeof(float) * INNER * (kind == RG_OP_SCAN ? STATE : CONV - 1.0), s[3];

    w->spread = 1;
    for (int i = 0; i < 3; i++) {
        if (!rg_shop_batch(w, rows[i], rg_recurrent_bytes(&w->rec), true, err))
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
    r->fixed_s[kind] = s[0] - row > m->op_s ? s[0] - row : m->op_s;
    if (!set_carried(w, FAR_CARRIED, LAYERS, err))
        return false;
    double near = r->fixed_s[kind] + FAR_CARRIED * row;
    double far = rg_shop_far_seconds(w, say, near, FAR_CARRIED * bytes / m->read_bytes_s);
    r->carry_far_s[kind] = beyond(far, near, FAR_CARRIED * bytes);
    return true;
}

static bool measure_recurrent(rg_shop *w, rg_machine *m, rg_error *err)
{
    w->rec = (rg_recurrent){ .d_inner = INNER, .d_state = STATE, .d_conv = CONV };
    return measure_recurrence(w, m, RG_OP_CONV, err) && measure_recurrence(w, m, RG_OP_SCAN, err);
}

static rg_type first_of(const bool wanted[RG_TYPE_COUNT], rg_type otherwise)
{
    for (int t = 0; t < RG_TYPE_COUNT; t++)
        if (wanted[t])
            return (rg_type)t;
    return otherwise;
}

/* Never quicker with more to go through.  What goes at memory's pace goes at the share of it that is given. */
static void measure_sets(rg_shop *w, rg_machine *m, const rg_cpu *cpu)
{
    double last = 0;

    for (int i = 0; i < RG_RATE_SETS; i++) {
        rg_shop_wait(w, false);
        double rate = rg_machine_bandwidth(cpu, w->pool, w->n_threads, (size_t)RG_RATE_SMALLEST_SET << i, false);
        rg_share now = rg_pulse_look(w->pulse, w->pool, true);
        double byte_s = rate > 0 ? 1 / rate : 0;
        if (now.memory > 0 && rate < 1.2 * now.memory * m->read_bytes_s)
            byte_s *= now.memory;
        byte_s = rg_shop_usual(w, byte_s, rg_shop_quiet(w, &now));
        last = byte_s > last ? byte_s : last;
        m->rates.set_bytes_s[i] = last > 0 ? 1 / last : 0;
    }
}

static bool measure_once(rg_shop *w, rg_machine *m, const rg_cpu *cpu, const rg_rates_wanted *wanted, rg_error *err)
{
    rg_type weights = first_of(wanted->linear, RG_BF16), kv = first_of(wanted->attention, RG_BF16);
    bool ok;

    memset(&m->rates, 0, sizeof m->rates);
    m->rates.n_threads = w->n_threads;
    measure_sets(w, m, cpu);
    ok = measure_cells(w, m, err) && measure_fixed_products(w, m, weights, err) && measure_kv(w, m, kv, err);
    for (int t = 0; ok && t < RG_TYPE_COUNT; t++) {
        ok = !wanted->linear[t] || measure_near(w, m, (rg_type)t, err);
        ok = ok && (!wanted->linear[t] || measure_far(w, m, (rg_type)t, err));
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
        const rg_kv *kv = &m->kv[i];
        if (kv->group >= 0)
            (kv->latent ? wanted.latent : wanted.attention)[kv->type] = true;
        wanted.recurrent |= m->recurrent[i].group >= 0;
    }
    return wanted;
}
