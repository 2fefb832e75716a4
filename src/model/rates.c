/* rates.c -- see rates.h.
 *
 * A workshop holds a pool, the reader that computes, an arena and a batch; a text is a few lines of seam that every
 * thread runs some hundred times between two looks at the clock.  Weights of a format come as many matrices of about a
 * megabyte: gone through in turn they come from memory, the first alone again and again stays in a near cache. */
#include "model/rates.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/origin.h"

enum {
    ROWS = 512,              /* the last of rg_rate_rows */
    COLS = 1024,             /* of a matrix of products */
    MATRIX_BYTES = 1 << 20, N_MATRICES = 64,
    CELL_COLS = 2048,        /* of what is made value by value */
    CONTEXT = 1024,          /* positions of a sequence; its K/V about a megabyte */
    N_SPANS = 64, FAR_SPANS = 4, LAYERS = 16,
    EXPERTS = 8, USED = 2, EXPERT_DIM = 512, MOE_ROWS = 64,
    INNER = 2048, STATE = 16, CONV = 4, /* of a recurrence */
    LATENT_K = 576, LATENT_V = 512,
    FILL_VALUES = 1 << 16, ARENA_FILLED = 8 << 20,
    NEAR_TRIES = 3, FAR_TRIES = 2, MOST_TURNS = 1000,
};

static const double AT_LEAST = 1e-3; /* seconds of a measurement of something near */

typedef struct workshop workshop;
typedef void text(rg_fwd *f, workshop *w, int turn);

struct workshop {
    rg_pool *pool;
    rg_cpu_reader *reader;
    bool exact;
    int n_threads;
    uint8_t *arena;
    size_t arena_bytes;
    rg_fwd *fwd;        /* [n_threads] */
    float *vector;      /* ones */
    rg_weight norm;
    /* What the text at work uses. */
    rg_weight weight[N_MATRICES];
    rg_packed packed[N_MATRICES];
    rg_kv kv;
    rg_recurrent rec;
    rg_rope rope;
    rg_routing routing;
    int n_heads;
    int width;          /* columns of an activation */
    int spread;         /* matrices or sequences gone through in turn */
    /* The batch: one span, or one sequence of many in turn. */
    uint8_t *state;
    size_t state_bytes;
    rg_group_memory group;
    int32_t *table, *ints;
    rg_span spans[N_SPANS];
    rg_batch batches[N_SPANS];
    /* The run. */
    text *fn;
    int repeats;
    uint64_t *begun, *ended; /* [n_threads] */
};

static void free_weights(workshop *w)
{
    for (int i = 0; i < N_MATRICES; i++)
        rg_packed_fini(&w->packed[i]);
    memset(w->packed, 0, sizeof w->packed);
}

static void free_state(workshop *w)
{
    if (w->state)
        rg_region_free(w->state, w->state_bytes);
    w->state = NULL;
}

static void close_workshop(workshop *w)
{
    if (!w)
        return;
    free_weights(w);
    free_state(w);
    rg_cpu_reader_free(w->reader);
    rg_pool_free(w->pool);
    if (w->arena)
        rg_region_free(w->arena, w->arena_bytes);
    rg_free(w->fwd);
    rg_free(w->begun);
    rg_free(w->ended);
    rg_free(w->vector);
    rg_free(w->table);
    rg_free(w->ints);
    rg_free(w);
}

static workshop *open_workshop(const rg_cpu *cpu, int n_threads, bool exact, rg_error *err)
{
    workshop *w = rg_zalloc(sizeof *w);
    rg_cpu_sizes sizes = { .max_rows = ROWS, .max_cols = 4 * CELL_COLS, .max_experts = EXPERTS,
                           .max_experts_used = USED, .n_threads = n_threads, .max_heads = 64,
                           .max_head_dim = LATENT_K, .max_keys = CONTEXT };

    if (!w)
        return rg_fail_memory(err, sizeof *w), NULL;
    w->n_threads = n_threads;
    w->exact = exact;
    w->arena_bytes = (size_t)64 << 20;
    w->arena = rg_region_new(w->arena_bytes);
    w->fwd = rg_array((size_t)n_threads, sizeof *w->fwd);
    w->begun = rg_array((size_t)n_threads, sizeof *w->begun);
    w->ended = rg_array((size_t)n_threads, sizeof *w->ended);
    w->vector = rg_array((size_t)STATE * 2 * CELL_COLS, sizeof *w->vector);
    w->table = rg_array(N_SPANS * CONTEXT / RG_BLOCK, sizeof *w->table);
    w->ints = rg_array((size_t)ROWS * 8, sizeof *w->ints);
    w->pool = rg_pool_new(n_threads, err);
    w->reader = w->pool ? rg_cpu_reader_new(cpu, &sizes, err) : NULL;
    if (!w->arena || !w->fwd || !w->begun || !w->ended || !w->vector || !w->table || !w->ints)
        rg_fail_memory(err, w->arena_bytes);
    else if (w->reader) {
        for (int i = 0; i < STATE * 2 * CELL_COLS; i++)
            w->vector[i] = i % 2 ? -0.5f : -1.0f; /* also a recurrence's A, which is negative */
        w->norm = (rg_weight){ .name = "norm", .n_mats = 1, .rows = 1, .vec = w->vector };
        return w;
    }
    close_workshop(w);
    return NULL;
}

/* ---- the batch --------------------------------------------------------------------------------------------------- */

/* `rows` last rows of sequences of CONTEXT positions, one sequence in a batch, w->spread of them in turn.  Sequences
 * have blocks of block_bytes each, one if recurrent.  0: no state. */
static bool set_batch(workshop *w, int rows, size_t block_bytes, bool recurrent, rg_error *err)
{
    int32_t *token = w->ints, *index = token + ROWS, *kv_end = index + ROWS, *logits = kv_end + ROWS,
            *pos = logits + ROWS;
    int blocks = recurrent ? 1 : CONTEXT / RG_BLOCK, n = w->spread > 0 ? w->spread : 1;

    free_state(w);
    w->state_bytes = (size_t)n * (size_t)blocks * block_bytes;
    w->state = w->state_bytes ? rg_region_new(w->state_bytes) : NULL;
    if (w->state_bytes && !w->state)
        return rg_fail_memory(err, w->state_bytes);
    if (w->state) /* pages that nobody wrote are all the same one, and near; as f32 or bf16 this is 0.01 */
        memset(w->state, 0x3c, w->state_bytes);
    w->group = (rg_group_memory){ w->state, block_bytes };
    for (int r = 0; r < rows; r++) {
        token[r] = r;
        index[r] = CONTEXT - rows + r;
        kv_end[r] = index[r] + 1;
        logits[r] = r;
        for (int d = 0; d < 4; d++)
            pos[4 * r + d] = index[r];
    }
    for (int i = 0; i < n; i++) {
        for (int b = 0; b < blocks; b++)
            w->table[i * blocks + b] = i * blocks + b;
        w->spans[i] = (rg_span){ .n_rows = rows, .start = CONTEXT - rows, .adapter = -1 };
        w->spans[i].tables[0] = w->table + i * blocks;
        w->batches[i] = (rg_batch){ .n_rows = rows, .n_spans = 1, .spans = &w->spans[i], .token = token,
                                    .index = index, .kv_end = kv_end, .pos = (const int32_t(*)[4])(const void *)pos,
                                    .n_logits = rows, .logit_rows = logits };
    }
    return true;
}

/* ---- the clock --------------------------------------------------------------------------------------------------- */

static void turns(rg_fwd *f, workshop *w, int n)
{
    for (int i = 0; i < n; i++) {
        int mark = rg_act_mark(f), turn = w->spread > 1 ? i % w->spread : 0;

        f->batch = &w->batches[w->state && w->spread > 1 ? turn : 0];
        w->fn(f, w, turn);
        rg_act_release(f, mark);
    }
    rg_fwd_barrier(f);
}

static void program(void *arg, int thread)
{
    workshop *w = arg;
    rg_fwd *f = &w->fwd[thread];

    *f = (rg_fwd){ .reader = rg_cpu_reader_of(w->reader), .batch = &w->batches[0], .groups = &w->group,
                   .exact = w->exact, .layer = 0, .thread = thread, .n_threads = w->n_threads, .pool = w->pool,
                   .arena = w->arena, .arena_bytes = w->arena_bytes };
    turns(f, w, 1);
    w->begun[thread] = rg_now_ns();
    turns(f, w, w->repeats);
    w->ended[thread] = rg_now_ns();
}

/* From the first thread's beginning to the last one's end: a thread that had lost its core may find the work done. */
static double elapsed(const workshop *w)
{
    uint64_t first = w->begun[0], last = w->ended[0];

    for (int i = 1; i < w->n_threads; i++) {
        first = w->begun[i] < first ? w->begun[i] : first;
        last = w->ended[i] > last ? w->ended[i] : last;
    }
    return rg_seconds(first, last);
}

/* Values as activations have them, without a pattern that branches could learn, and without the smallest of all, which
 * processors are slow at. */
static void fill_arena(workshop *w)
{
    rg_rng rng = { .seed = 1 };
    float *x = (float *)(void *)w->arena;
    size_t n = ARENA_FILLED / sizeof *x, known = n < FILL_VALUES ? n : FILL_VALUES;

    for (size_t i = 0; i < known; i++)
        x[i] = 2 * rg_rng_unit(&rng) - 1;
    for (; known < n; known *= 2)
        memcpy(x + known, x, (n - known < known ? n - known : known) * sizeof *x);
}

/* Seconds of one turn of fn: the best of a few tries.  Of something near a first run only tells how many turns make a
 * time worth measuring. */
static double seconds_of(workshop *w, text *fn)
{
    int tries = w->spread > 1 ? FAR_TRIES : NEAR_TRIES;
    double best = 0;

    fill_arena(w);
    w->fn = fn;
    w->repeats = w->spread > 1 ? w->spread : 2;
    for (int i = w->spread > 1 ? 1 : 0; i <= tries; i++) {
        rg_pool_run(w->pool, w->n_threads, program, w);
        double s = elapsed(w) / w->repeats;
        if (!i)
            w->repeats = s > 0 && s * MOST_TURNS > AT_LEAST ? (int)(AT_LEAST / s) + 1 : MOST_TURNS;
        else
            best = i == 1 || s < best ? s : best;
    }
    return best;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static void say_linear(rg_fwd *f, workshop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", (int)w->weight[turn].cols), *y = rg_act_new(f, "y", (int)w->weight[turn].rows);

    rg_linear(f, y, x, &w->weight[turn], NULL);
}

static void say_gated(rg_fwd *f, workshop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", (int)w->weight[turn].cols), *y = rg_act_new(f, "y", (int)w->weight[turn].rows);

    rg_gated(f, y, x, &w->weight[turn], &w->weight[turn], NULL, NULL, RG_SILU);
}

static void say_rmsnorm(rg_fwd *f, workshop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", w->width);

    (void)turn;
    rg_rmsnorm(f, x, x, &w->norm, 1e-5f);
}

static void say_add(rg_fwd *f, workshop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", w->width), *y = rg_act_new(f, "y", w->width);

    (void)turn;
    rg_add_to(f, y, x);
}

static void say_act_mul(rg_fwd *f, workshop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", w->width), *y = rg_act_new(f, "y", w->width), *z = rg_act_new(f, "z", w->width);

    (void)turn;
    rg_act_mul(f, z, x, y, RG_SILU);
}

static void say_softcap(rg_fwd *f, workshop *w, int turn)
{
    (void)turn;
    rg_softcap(f, rg_act_new(f, "x", w->width), 30.0f);
}

static void say_gather(rg_fwd *f, workshop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", w->width), *y = rg_act_new(f, "y", w->width);

    (void)turn;
    rg_gather(f, y, x);
}

static void say_rotate(rg_fwd *f, workshop *w, int turn)
{
    (void)turn;
    rg_rotate(f, rg_act_new(f, "x", w->width), &w->rope, 64, 0);
}

static void say_embed(rg_fwd *f, workshop *w, int turn)
{
    (void)turn;
    rg_embed(f, rg_act_new(f, "x", (int)w->weight[0].cols), &w->weight[0], 1.0f);
}

static void say_kv_store(rg_fwd *f, workshop *w, int turn)
{
    rg_act *k = rg_act_new(f, "k", w->kv.n_heads * w->kv.k_dim), *v = rg_act_new(f, "v", w->kv.n_heads * w->kv.v_dim);

    (void)turn;
    rg_kv_store(f, &w->kv, k, v);
}

static void say_attention(rg_fwd *f, workshop *w, int turn)
{
    rg_act *q = rg_act_new(f, "q", w->n_heads * w->kv.k_dim), *y = rg_act_new(f, "y", w->n_heads * w->kv.v_dim);

    (void)turn;
    rg_attention(f, y, q, &w->kv, w->n_heads, 0.1f, 0.0f);
}

/* Attention in one layer of many after the other, each with its place in every block; and with a store before it. */
static void say_layer(rg_fwd *f, workshop *w, int turn)
{
    rg_act *q = rg_act_new(f, "q", w->n_heads * w->kv.k_dim), *y = rg_act_new(f, "y", w->n_heads * w->kv.v_dim);
    rg_kv kv = w->kv;

    kv.offset = (size_t)turn * rg_kv_bytes(&kv);
    rg_attention(f, y, q, &kv, w->n_heads, 0.1f, 0.0f);
}

static void say_store_in_layer(rg_fwd *f, workshop *w, int turn)
{
    rg_act *k = rg_act_new(f, "k", w->kv.n_heads * w->kv.k_dim), *v = rg_act_new(f, "v", w->kv.n_heads * w->kv.v_dim);
    rg_kv kv = w->kv;

    kv.offset = (size_t)turn * rg_kv_bytes(&kv);
    rg_kv_store(f, &kv, k, v);
    say_layer(f, w, turn);
}

static void say_mla_attention(rg_fwd *f, workshop *w, int turn)
{
    rg_act *q = rg_act_new(f, "q", w->n_heads * LATENT_V), *r = rg_act_new(f, "r", w->n_heads * (LATENT_K - LATENT_V));
    rg_act *y = rg_act_new(f, "y", w->n_heads * LATENT_V);

    (void)turn;
    rg_mla_attention(f, y, q, r, &w->kv, w->n_heads, 0.1f);
}

/* Every expert gets as many rows as any other. */
static void say_moe(rg_fwd *f, workshop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", EXPERT_DIM), *y = rg_act_new(f, "y", EXPERT_DIM), *r = rg_act_new(f, "r", 2 * USED);
    const rg_weight *all[3] = { &w->weight[0], &w->weight[1], &w->weight[2] };

    (void)turn;
    for (int row = 0; f->thread == 0 && row < r->rows; row++) {
        float *to = rg_act_data(f, r) + (size_t)row * (size_t)r->stride;
        for (int32_t k = 0; k < USED; k++) {
            int32_t e = row % (EXPERTS / USED) + k * (EXPERTS / USED);
            memcpy(to + k, &e, sizeof e);
            to[USED + k] = 0.5f;
        }
    }
    rg_fwd_barrier(f);
    rg_moe(f, y, x, r, &w->routing, all, RG_SILU);
}

static void say_route(rg_fwd *f, workshop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", EXPERTS), *r = rg_act_new(f, "r", 2 * USED);

    (void)turn;
    rg_route(f, r, x, &w->routing);
}

/* As in a model, x and z are halves of one activation. */
static void say_conv(rg_fwd *f, workshop *w, int turn)
{
    rg_weight taps = { .name = "taps", .n_mats = 1, .rows = INNER, .cols = CONV, .vec = w->vector };
    rg_weight bias = { .name = "bias", .n_mats = 1, .rows = 1, .cols = INNER, .vec = w->vector };
    rg_act *xz = rg_act_new(f, "xz", 2 * INNER), *x = rg_act_view(f, "x", xz, 0, INNER), *y = rg_act_new(f, "y", INNER);

    (void)turn;
    rg_conv(f, y, x, &taps, &bias, &w->rec);
}

static void say_scan(rg_fwd *f, workshop *w, int turn)
{
    rg_weight a = { .name = "a", .n_mats = 1, .rows = STATE, .cols = INNER, .vec = w->vector };
    rg_weight d = { .name = "d", .n_mats = 1, .rows = 1, .cols = INNER, .vec = w->vector };
    rg_act *xz = rg_act_new(f, "xz", 2 * INNER), *z = rg_act_view(f, "z", xz, INNER, INNER);
    rg_act *x = rg_act_new(f, "x", INNER), *dt = rg_act_new(f, "dt", INNER), *bc = rg_act_new(f, "bc", 2 * STATE);
    rg_act *y = rg_act_new(f, "y", INNER);

    (void)turn;
    rg_scan(f, y, x, dt, bc, z, &a, &d, &w->rec);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* n stacks of mats matrices, all alike: one row of plausible values, everywhere. */
static bool set_weights(workshop *w, rg_type type, int n, const int64_t shape[3], rg_error *err)
{
    const rg_format *fmt = rg_format_of(type);
    size_t row_bytes = (size_t)(shape[2] / fmt->block_len * fmt->block_bytes);
    float *x = rg_array((size_t)shape[2], sizeof *x);
    uint8_t *row = rg_alloc(row_bytes);
    bool ok = x && row;

    free_weights(w);
    if (!ok)
        rg_fail_memory(err, row_bytes);
    for (int64_t i = 0; ok && i < shape[2]; i++)
        x[i] = (float)(i * 37 % 101 - 50) / 1000.0f;
    if (ok)
        fmt->encode(x, shape[2] / fmt->block_len, row);
    for (int i = 0; ok && i < n; i++) {
        rg_packed *p = &w->packed[i];
        ok = rg_packed_init(p, type, shape[0], shape[1], shape[2], err);
        for (int64_t r = 0; ok && !i && r < shape[0] * shape[1]; r++)
            rg_pack_row(p, r / shape[1], r % shape[1], row);
        if (ok && i)
            memcpy(p->data, w->packed[0].data, p->bytes);
        w->weight[i] = (rg_weight){ .name = "weight", .type = type, .n_mats = shape[0], .rows = shape[1],
                                    .cols = shape[2], .packed = p };
    }
    rg_free(x);
    rg_free(row);
    return ok;
}

/* Rows of COLS values that make up about a megabyte as stored. */
static int64_t matrix_rows(rg_type type)
{
    const rg_format *fmt = rg_format_of(type);
    int64_t rows = MATRIX_BYTES / (COLS / fmt->block_len * fmt->block_bytes);

    return rows / RG_PANEL * RG_PANEL;
}

/* ---- measurements ------------------------------------------------------------------------------------------------ */

/* Seconds per value beyond what is fixed. */
static double beyond(double seconds, double fixed, double values)
{
    return seconds > fixed ? (seconds - fixed) / values : 0;
}

static bool measure_linear(workshop *w, rg_machine *m, rg_type type, rg_error *err)
{
    rg_linear_rate *r = &m->rates.linear[type];
    const int64_t shape[3] = { 1, matrix_rows(type), COLS };
    double values = (double)(shape[1] * shape[2]), fixed = m->rates.fixed_s[RG_OP_LINEAR], last = 0;

    if (!set_weights(w, type, N_MATRICES, shape, err))
        return false;
    for (int i = 0; i < RG_RATE_ROWS; i++) {
        int rows = rg_rate_rows[i];
        w->spread = 0;
        if (!set_batch(w, rows, 0, false, err))
            return false;
        double near = seconds_of(w, say_linear) - fixed;
        r->near_s[i] = near > 0 ? near / values : 0;
        if (rows <= 64 && !(rows & (rows - 1))) { /* far; beyond 64 rows arithmetic hides it */
            w->spread = N_MATRICES;
            double far = seconds_of(w, say_linear) - fixed;
            last = far > near ? (far - near) / values : 0;
        }
        r->far_s[i] = last;
    }
    r->measured = true;
    return true;
}

/* One row of each of n sequences of n_blocks blocks, each block holding LAYERS layers, which are gone through in turn:
 * how K/V lies in a model, so that what is measured meets memory as a model's does. */
static bool set_layers(workshop *w, int n, int n_blocks, rg_error *err)
{
    w->spread = n * n_blocks * RG_BLOCK / CONTEXT; /* so many sequences of CONTEXT have as much memory */
    if (!set_batch(w, 1, LAYERS * rg_kv_bytes(&w->kv), false, err))
        return false;
    for (int i = 0; i < n; i++) {
        for (int b = 0; b < n_blocks; b++)
            w->table[i * n_blocks + b] = i * n_blocks + b;
        w->spans[i] = (rg_span){ .first_row = i, .n_rows = 1, .start = n_blocks * RG_BLOCK - 1, .adapter = -1 };
        w->spans[i].tables[0] = w->table + i * n_blocks;
        w->ints[ROWS + i] = n_blocks * RG_BLOCK - 1;
        w->ints[2 * ROWS + i] = n_blocks * RG_BLOCK;
    }
    w->batches[0].n_rows = w->batches[0].n_spans = n;
    w->batches[0].spans = w->spans;
    for (int i = 1; i < LAYERS; i++)
        w->batches[i] = w->batches[0];
    w->spread = LAYERS;
    return true;
}

/* A store alone always finds its lines near; between layers and sequences it does not. */
static bool measure_store(workshop *w, rg_machine *m, rg_type type, rg_error *err)
{
    w->kv = (rg_kv){ .type = type, .n_heads = 4, .k_dim = 64, .v_dim = 64 };
    w->n_heads = 4;
    if (!set_layers(w, N_SPANS, 2, err))
        return false;
    double sweep = seconds_of(w, say_layer), both = seconds_of(w, say_store_in_layer);
    double near = m->rates.fixed_s[RG_OP_KV_STORE] + N_SPANS * 512 * m->rates.few_s[RG_OP_KV_STORE];
    m->rates.attention[type].store_s = beyond(both, sweep + near, N_SPANS * 512.0);
    return true;
}

/* Seconds of a row and a head that see next to nothing, from many sequences of one position. */
static bool measure_items(workshop *w, rg_machine *m, rg_type type, bool latent, rg_error *err)
{
    rg_attention_rate *r = latent ? &m->rates.latent[type] : &m->rates.attention[type];
    double fixed = m->rates.fixed_s[RG_OP_ATTENTION];

    w->kv = latent ? (rg_kv){ .type = type, .n_heads = 1, .k_dim = LATENT_K, .v_dim = LATENT_V, .latent = true }
                   : (rg_kv){ .type = type, .n_heads = 4, .k_dim = 64, .v_dim = 64 };
    w->n_heads = 4;
    if (!set_layers(w, N_SPANS, 1, err))
        return false;
    for (int i = 0; i < N_SPANS; i++) {
        w->spans[i].start = 0;
        w->ints[ROWS + i] = 0;
        w->ints[2 * ROWS + i] = 1;
    }
    w->spread = 1;
    r->item_s = beyond(seconds_of(w, latent ? say_mla_attention : say_attention), fixed, (N_SPANS - 1) * 4.0);
    return true;
}

/* Seconds per pair of query and key, of the last rows of a sequence; near, or from memory. */
static double attend(workshop *w, const rg_machine *m, const rg_kv *kv, int queries[2], bool far, rg_error *err)
{
    const rg_attention_rate *r = kv->latent ? &m->rates.latent[kv->type] : &m->rates.attention[kv->type];
    int per_kv = queries[0], rows = queries[1];
    bool layers = far && rows == 1 && !kv->latent;
    double keys = CONTEXT - (rows - 1) / 2.0;
    int n = layers ? FAR_SPANS : 1;

    w->kv = *kv;
    w->n_heads = kv->n_heads * per_kv;
    w->spread = far ? N_SPANS : 1;
    if (!(layers ? set_layers(w, n, CONTEXT / RG_BLOCK, err) : set_batch(w, rows, rg_kv_bytes(kv), false, err)))
        return -1;
    double s = seconds_of(w, kv->latent ? say_mla_attention : layers ? say_layer : say_attention);
    double items = (double)n * rows * w->n_heads, each = s / items - r->item_s;
    return each > 0 ? each / keys : 0;
}

/* 1, 2, 4, 8 and 32 queries that share their keys: heads of a kv head, times rows. */
static bool measure_attention(workshop *w, rg_machine *m, rg_type type, bool latent, rg_error *err)
{
    static const int per_kv[RG_RATE_QUERIES] = { 1, 2, 4, 8, 4 }, n_rows[RG_RATE_QUERIES] = { 1, 1, 1, 1, 32 };
    static const int of_latent[RG_RATE_QUERIES] = { 1, 2, 4, 8, 16 }, latent_rows[RG_RATE_QUERIES] = { 1, 1, 1, 1, 8 };
    rg_attention_rate *r = latent ? &m->rates.latent[type] : &m->rates.attention[type];
    int size = rg_format_of(type)->block_bytes;

    if (!measure_items(w, m, type, latent, err))
        return false;
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
        double near = attend(w, m, &kv, each, false, err), far = attend(w, m, &kv, each, true, err);
        double two = latent ? 0 : attend(w, m, &wide, each, false, err);
        if (near < 0 || far < 0 || two < 0)
            return false;
        double per_column = latent ? near / (LATENT_K + LATENT_V) : (two - near) / 128;
        per_column = per_column < 0 ? 0 : per_column;
        r->width_s[i] = per_column;
        r->pair_s[i] = latent || near < 128 * per_column ? 0 : near - 128 * per_column;
        /* Of a key and its value, for as many pairs as there are queries. */
        double bytes = latent ? (double)LATENT_K * size : 128.0 * size;
        r->far_s[i] = far > near ? (far - near) * queries / bytes : 0;
    }
    r->measured = true;
    return latent || measure_store(w, m, type, err);
}

static const struct {
    rg_op_kind kind;
    text *say;
} cells[] = {
    { RG_OP_RMSNORM, say_rmsnorm }, { RG_OP_ADD, say_add },       { RG_OP_ACT_MUL, say_act_mul },
    { RG_OP_SOFTCAP, say_softcap }, { RG_OP_GATHER, say_gather }, { RG_OP_ROTATE, say_rotate },
};

/* Fixed: one row of the least width.  Then few rows, then many. */
static bool measure_cells(workshop *w, rg_machine *m, rg_error *err)
{
    static const int rows[] = { 1, RG_RATE_FEW, RG_RATE_MANY };
    rg_rates *r = &m->rates;

    w->spread = 0;
    w->rope = (rg_rope){ .n_pairs = 32, .inv_freq = w->vector, .factor = 1 };
    for (int pass = 0; pass < 3; pass++) {
        w->width = pass ? CELL_COLS : 64;
        w->norm.cols = w->width;
        if (!set_batch(w, rows[pass], 0, false, err))
            return false;
        for (size_t i = 0; i < RG_LEN(cells); i++) {
            rg_op_kind k = cells[i].kind;
            double s = seconds_of(w, cells[i].say), each = beyond(s, r->fixed_s[k], (double)rows[pass] * CELL_COLS);
            *(pass == 0 ? &r->fixed_s[k] : pass == 1 ? &r->few_s[k] : &r->many_s[k]) = pass ? each : s;
        }
    }
    r->few_s[RG_OP_GATED] = r->few_s[RG_OP_ACT_MUL];
    r->many_s[RG_OP_GATED] = r->many_s[RG_OP_ACT_MUL];
    return true;
}

static bool measure_fixed_products(workshop *w, rg_machine *m, rg_type type, rg_error *err)
{
    const int64_t least[3] = { 1, 256, 256 };
    rg_rates *r = &m->rates;

    w->spread = 0;
    if (!set_weights(w, type, 1, least, err) || !set_batch(w, 1, 0, false, err))
        return false;
    double small = 256.0 * 256 * rg_format_of(type)->block_bytes / rg_format_of(type)->block_len / m->read_bytes_s;
    double linear = seconds_of(w, say_linear) - small / 4, gated = seconds_of(w, say_gated) - small / 2;
    r->fixed_s[RG_OP_LINEAR] = r->fixed_s[RG_OP_LINEAR_HEADS] = linear > m->op_s ? linear : m->op_s;
    r->fixed_s[RG_OP_GATED] = gated > m->op_s ? gated : m->op_s;
    r->fixed_s[RG_OP_EMBED] = seconds_of(w, say_embed);
    if (!set_batch(w, RG_RATE_MANY, 0, false, err))
        return false;
    r->many_s[RG_OP_EMBED] = beyond(seconds_of(w, say_embed), r->fixed_s[RG_OP_EMBED], RG_RATE_MANY * 256);
    r->few_s[RG_OP_EMBED] = r->many_s[RG_OP_EMBED];
    return true;
}

static bool measure_kv(workshop *w, rg_machine *m, rg_type type, rg_error *err)
{
    rg_rates *r = &m->rates;

    w->spread = 1;
    w->kv = (rg_kv){ .type = type, .n_heads = 4, .k_dim = 64, .v_dim = 64 };
    w->n_heads = 4;
    for (int pass = 0; pass < 2; pass++) {
        int rows = pass ? RG_RATE_MANY : 1;
        if (!set_batch(w, rows, rg_kv_bytes(&w->kv), false, err))
            return false;
        double s = seconds_of(w, say_kv_store);
        if (pass) {
            r->many_s[RG_OP_KV_STORE] = beyond(s, r->fixed_s[RG_OP_KV_STORE], rows * 512.0);
            r->few_s[RG_OP_KV_STORE] = r->many_s[RG_OP_KV_STORE];
            continue;
        }
        r->fixed_s[RG_OP_KV_STORE] = s;
        for (int i = 0; i < N_SPANS; i++) /* attention that sees next to nothing */
            w->spans[i].start = 0;
        w->ints[ROWS] = 0;
        w->ints[2 * ROWS] = 1;
        r->fixed_s[RG_OP_ATTENTION] = r->fixed_s[RG_OP_MLA_ATTENTION] = seconds_of(w, say_attention);
    }
    return true;
}

static bool measure_experts(workshop *w, rg_machine *m, rg_type type, rg_error *err)
{
    const int64_t shape[3] = { EXPERTS, EXPERT_DIM, EXPERT_DIM };
    rg_rates *r = &m->rates;
    const rg_linear_rate *linear = &r->linear[type];
    double values = 3.0 * EXPERT_DIM * EXPERT_DIM;

    w->spread = 0;
    w->routing = (rg_routing){ .n_experts = EXPERTS, .n_used = USED, .scale = 1 };
    if (!set_weights(w, type, 3, shape, err) || !set_batch(w, 1, 0, false, err))
        return false;
    r->fixed_s[RG_OP_ROUTE] = seconds_of(w, say_route);
    double one = seconds_of(w, say_moe) - USED * values * linear->near_s[0]; /* two experts of one row */
    r->fixed_s[RG_OP_MOE] = one > r->fixed_s[RG_OP_LINEAR] ? one : r->fixed_s[RG_OP_LINEAR];
    if (!set_batch(w, MOE_ROWS, 0, false, err))
        return false;
    double each = beyond(seconds_of(w, say_route), r->fixed_s[RG_OP_ROUTE], MOE_ROWS * 2 * USED);
    r->few_s[RG_OP_ROUTE] = r->many_s[RG_OP_ROUTE] = each;
    /* What is neither fixed nor product, at MOE_ROWS * USED / EXPERTS = rg_rate_rows[11] rows of each expert. */
    each = beyond(seconds_of(w, say_moe), r->fixed_s[RG_OP_MOE] + EXPERTS * values * linear->near_s[11],
                  2.0 * MOE_ROWS * USED * EXPERT_DIM);
    r->few_s[RG_OP_MOE] = r->many_s[RG_OP_MOE] = each;
    return true;
}

static bool measure_recurrent(workshop *w, rg_machine *m, rg_error *err)
{
    rg_rates *r = &m->rates;

    w->spread = 1;
    w->rec = (rg_recurrent){ .d_inner = INNER, .d_state = STATE, .d_conv = CONV };
    static const int rows[] = { 1, RG_RATE_FEW, RG_RATE_MANY };
    double conv[3], scan[3];

    for (int i = 0; i < 3; i++) {
        if (!set_batch(w, rows[i], rg_recurrent_bytes(&w->rec), true, err))
            return false;
        conv[i] = seconds_of(w, say_conv);
        scan[i] = seconds_of(w, say_scan);
    }
    r->few_s[RG_OP_CONV] = beyond(conv[1], conv[0], (RG_RATE_FEW - 1) * INNER);
    r->many_s[RG_OP_CONV] = beyond(conv[2], conv[0], (RG_RATE_MANY - 1) * INNER);
    r->few_s[RG_OP_SCAN] = beyond(scan[1], scan[0], (RG_RATE_FEW - 1) * INNER * STATE);
    r->many_s[RG_OP_SCAN] = beyond(scan[2], scan[0], (RG_RATE_MANY - 1) * INNER * STATE);
    conv[0] -= r->few_s[RG_OP_CONV] * INNER;
    scan[0] -= r->few_s[RG_OP_SCAN] * INNER * STATE;
    r->fixed_s[RG_OP_CONV] = conv[0] > m->op_s ? conv[0] : m->op_s;
    r->fixed_s[RG_OP_SCAN] = scan[0] > m->op_s ? scan[0] : m->op_s;
    return true;
}

static rg_type first_of(const bool wanted[RG_TYPE_COUNT], rg_type otherwise)
{
    for (int t = 0; t < RG_TYPE_COUNT; t++)
        if (wanted[t])
            return (rg_type)t;
    return otherwise;
}

bool rg_rates_measure(rg_machine *m, const rg_cpu *cpu, int n_threads, const rg_rates_wanted *wanted, rg_error *err)
{
    workshop *w = open_workshop(cpu, n_threads, wanted->exact, err);
    rg_type weights = first_of(wanted->linear, RG_BF16), kv = first_of(wanted->attention, RG_BF16);
    bool ok = w;

    memset(&m->rates, 0, sizeof m->rates);
    m->rates.n_threads = n_threads;
    for (int i = 0; ok && i < RG_RATE_SETS; i++)
        m->rates.set_bytes_s[i] = rg_machine_bandwidth(cpu, w->pool, n_threads, (size_t)RG_RATE_SMALLEST_SET << i);
    ok = ok && measure_cells(w, m, err) && measure_fixed_products(w, m, weights, err) && measure_kv(w, m, kv, err);
    for (int t = 0; ok && t < RG_TYPE_COUNT; t++) {
        ok = !wanted->linear[t] || measure_linear(w, m, (rg_type)t, err);
        ok = ok && (!wanted->attention[t] || measure_attention(w, m, (rg_type)t, false, err));
        ok = ok && (!wanted->latent[t] || measure_attention(w, m, (rg_type)t, true, err));
    }
    ok = ok && (!wanted->experts || measure_experts(w, m, weights, err));
    ok = ok && (!wanted->recurrent || measure_recurrent(w, m, err));
    m->rates.measured = ok;
    close_workshop(w);
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
