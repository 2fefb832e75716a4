/* op_bench.c -- see op_bench.h. */
#include "measure/op_bench.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/quantile.h"
#include "base/rng.h"
#include "ops/count/count.h"

enum {
    ARENA_BYTES = 32 << 20,
    FILLED_VALUES = 1 << 19, /* of the arena, before each time; */
    KNOWN_VALUES = 1 << 14,  /* are drawn, the rest are copies of them */
    LEAST_TURNS = 3, LONG_TURNS = 2, MOST_TURNS = 100,
    EMPTY_STEPS = 50,
    OTHERS = 16,
    /* Pages that were never written all map to one page, so states are written.  As f32, f16 or bf16 these bytes are
     * small numbers. */
    STATE_BYTE = 0x3c,
};

static const double LONG_S = 1e-3; /* of all turns together, about */

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void drop_copies(rg_op_bench *b)
{
    for (int i = 0; i < b->n_copies; i++)
        rg_placed_free(b->copies[i]);
    rg_free(b->copies);
    b->copies = NULL;
    b->n_copies = 0;
    b->weight.placed = b->placed;
}

static void drop_weights(rg_op_bench *b)
{
    drop_copies(b);
    rg_placed_free(b->placed);
    b->weight.placed = b->placed = NULL;
}

void rg_op_bench_close(rg_op_bench *b)
{
    if (!b)
        return;
    drop_weights(b);
    b->backend->close(b->lane);
    b->backend->state_free(b->state);
    rg_pool_free(b->pool);
    rg_free(b->stamp);
    rg_free(b->vector);
    rg_free(b->ints);
    rg_free(b);
}

static bool allocate(rg_op_bench *b, rg_error *err)
{
    const size_t n = (size_t)b->n_threads;
    rg_lane_options o = { .sizes = { .max_rows = RG_BENCH_ROWS,
                                     .max_cols = RG_BENCH_COLS,
                                     .max_folded = RG_BENCH_COLS,
                                     .n_threads = b->n_threads,
                                     .max_heads = RG_BENCH_HEADS,
                                     .max_head_dim = RG_BENCH_LATENT,
                                     .max_keys = RG_BENCH_CONTEXT },
                          .activation_bytes = ARENA_BYTES };
    size_t bytes;

    o.pool = b->pool = rg_pool_new(b->n_threads, err);
    b->lane = b->pool ? b->backend->open(b->backend, &o, err) : NULL;
    if (!b->lane)
        return false;
    b->activations = b->backend->activations(b->lane, &bytes);
    if (!b->activations)
        return rg_fail(err, RG_E_UNSUPPORTED, "operations of '%s' cannot be timed one by one", b->backend->name);
    b->stamp = rg_array(n, MOST_TURNS * sizeof *b->stamp);
    b->vector = rg_array(RG_BENCH_VECTOR, sizeof *b->vector);
    b->ints = rg_array((size_t)RG_BENCH_ROWS * 9, sizeof *b->ints);
    return (b->stamp && b->vector && b->ints) || rg_fail_memory(err, ARENA_BYTES);
}

rg_op_bench *rg_op_bench_open(const rg_backend *backend, int n_threads, rg_error *err)
{
    rg_op_bench *b = rg_zalloc(sizeof *b);

    if (!b)
        return rg_fail_memory(err, sizeof *b), NULL;
    b->n_threads = n_threads;
    b->backend = backend;
    if (!allocate(b, err)) {
        rg_op_bench_close(b);
        return NULL;
    }
    for (int i = 0; i < RG_BENCH_VECTOR; i++)
        b->vector[i] = i % 2 ? -0.5f : -1.0f;
    b->norm = (rg_weight){ .name = "norm", .n_mats = 1, .rows = 1, .vec = b->vector };
    return b;
}

/* ---- what cases read --------------------------------------------------------------------------------------------- */

/* The blocks of the batch start at this one. */
static void set_table(rg_op_bench *b, int first)
{
    b->first_block = first;
    for (int i = 0; i < b->batch_blocks; i++)
        b->table[i] = first + i;
}

/* As many blocks of state as fit in so many bytes, those of the batch at least. */
static bool set_state(rg_op_bench *b, size_t bytes, rg_error *err)
{
    const size_t fit = b->block_bytes ? bytes / b->block_bytes : 0;

    b->n_blocks = fit > (size_t)b->batch_blocks ? (int)fit / b->batch_blocks * b->batch_blocks : b->batch_blocks;
    b->backend->state_free(b->state);
    b->state = b->backend->state_new(
        b->backend, &(rg_state_shape){ .n_groups = 1, .block_bytes = { b->block_bytes }, .n_blocks = { b->n_blocks } },
        err);
    for (int i = 0; b->state && i < b->n_blocks; i++)
        b->backend->state_fill(b->state, 0, i, STATE_BYTE);
    set_table(b, 0);
    return b->state;
}

/* n_seqs sequences of n_rows rows each, the last of `end` positions. */
static void set_batch(rg_op_bench *b, int n_seqs, int n_rows, int end, size_t block_bytes)
{
    const int rows = n_seqs * n_rows, n_blocks = rg_ceil_div(end, RG_BLOCK);
    int32_t *token = b->ints, *logits = token + RG_BENCH_ROWS, *index = logits + RG_BENCH_ROWS;
    int32_t *kv_end = index + RG_BENCH_ROWS, *pos = kv_end + RG_BENCH_ROWS, *table = pos + 4 * RG_BENCH_ROWS;

    RG_ASSERT(rows <= RG_BENCH_ROWS && n_rows <= end && end <= RG_BENCH_CONTEXT && n_seqs * n_blocks <= RG_BENCH_ROWS);
    b->table = table;
    b->batch_blocks = n_seqs * n_blocks;
    b->block_bytes = block_bytes;
    for (int r = 0; r < rows; r++) {
        token[r] = logits[r] = r;
        index[r] = end - n_rows + r % n_rows;
        kv_end[r] = index[r] + 1;
        for (int d = 0; d < 4; d++)
            pos[4 * r + d] = index[r];
    }
    for (int s = 0; s < n_seqs; s++) {
        b->spans[s] = (rg_span){ .first_row = s * n_rows, .n_rows = n_rows, .start = end - n_rows, .adapter = -1 };
        b->spans[s].tables[0] = table + s * n_blocks;
    }
    b->batch = (rg_batch){ .n_rows = rows, .n_spans = n_seqs, .spans = b->spans, .token = token, .index = index,
                           .kv_end = kv_end, .pos = (const int32_t(*)[4])(const void *)pos, .n_logits = rows,
                           .logit_rows = logits };
    b->n_blocks = b->batch_blocks;
    set_table(b, 0);
}

void rg_op_bench_batch(rg_op_bench *b, int rows, int end)
{
    set_batch(b, 1, rows, end, 0);
}

bool rg_op_bench_batch_on(rg_op_bench *b, int rows, int end, size_t block_bytes, rg_error *err)
{
    set_batch(b, 1, rows, end, block_bytes);
    return set_state(b, 0, err);
}

bool rg_op_bench_streams(rg_op_bench *b, int n, int end, size_t block_bytes, rg_error *err)
{
    set_batch(b, n, 1, end, block_bytes);
    return set_state(b, 0, err);
}

static rg_placed *place(const rg_op_bench *b, rg_type type, int64_t rows, int64_t cols, rg_error *err)
{
    const rg_placing what = { .type = type, .n_mats = 1, .rows = rows, .cols = cols };

    return b->backend->weight_new(b->backend, &what, err);
}

bool rg_op_bench_weights(rg_op_bench *b, rg_type type, int64_t rows, int64_t cols, rg_error *err)
{
    const rg_format *fmt = rg_format_of(type);
    size_t row_bytes = (size_t)(cols / fmt->block_len * fmt->block_bytes);
    float *x = rg_array((size_t)cols, sizeof *x);
    uint8_t *row = rg_zalloc(row_bytes); /* where a format is never written: zeros, which every format takes */
    bool ok = (x && row) || rg_fail_memory(err, row_bytes);

    drop_weights(b);
    b->placed = ok ? place(b, type, rows, cols, err) : NULL;
    ok = b->placed;
    if (ok) {
        for (int64_t i = 0; i < cols; i++)
            x[i] = (float)(i * 37 % 101 - 50) / 1000.0f;
        if (fmt->encode)
            fmt->encode(x, cols / fmt->block_len, row);
        for (int64_t r = 0; r < rows; r++)
            b->backend->weight_put(b->placed, 0, r, row);
    }
    b->weight = (rg_weight){ .name = "weight", .type = type, .n_mats = 1, .rows = rows, .cols = cols,
                             .placed = b->placed };
    rg_free(x);
    rg_free(row);
    return ok;
}

static bool fill_copy(void *arg, void *image, size_t bytes, rg_error *err)
{
    (void)err;
    memcpy(image, arg, bytes);
    return true;
}

/* The image of the matrix: all copies are made from it. */
static bool make_copies(void *arg, const void *image, size_t bytes, rg_error *err)
{
    rg_op_bench *b = arg;
    bool ok = true;

    (void)bytes;
    for (int i = 0; ok && i < b->n_copies; i++)
        ok = b->backend->image_load(b->copies[i], 0, fill_copy, (void *)(uintptr_t)image, err);
    return ok;
}

bool rg_op_bench_spread(rg_op_bench *b, size_t bytes, rg_error *err)
{
    const int n = (int)(bytes / b->placed->bytes);

    drop_copies(b);
    b->copies = rg_array((size_t)n, sizeof *b->copies);
    if (!b->copies)
        return rg_fail_memory(err, (size_t)n * sizeof *b->copies);
    b->next_copy = 0;
    for (; b->n_copies < n; b->n_copies++) {
        b->copies[b->n_copies] = place(b, b->placed->type, b->placed->rows, b->placed->cols, err);
        if (!b->copies[b->n_copies])
            return false;
    }
    return b->backend->image_save(b->placed, 0, make_copies, b, err);
}

bool rg_op_bench_spread_state(rg_op_bench *b, size_t bytes, rg_error *err)
{
    return set_state(b, bytes, err);
}

/* ---- the clock --------------------------------------------------------------------------------------------------- */

/* In a step, an operation reads what the one before it wrote: part of it is in this thread's cache, the rest in the
 * caches of others.  So every thread first rewrites its part of the activations. */
static void hand_over(rg_fwd *f, rg_op_bench *b)
{
    const size_t line = 64 / sizeof(uint32_t), run = 16 * line, all = b->used_bytes / sizeof(uint32_t);
    volatile uint32_t *at = b->activations;

    for (size_t i = (size_t)f->thread * run; i < all; i += (size_t)f->n_threads * run)
        for (size_t k = i; k < i + run && k < all; k += line)
            at[k] = at[k];
    if (f->thread == 0 && b->n_copies > 1) {
        b->weight.placed = b->copies[b->next_copy];
        b->next_copy = (b->next_copy + 1) % b->n_copies;
    }
    if (f->thread == 0 && b->n_blocks > b->batch_blocks) /* goes on behind the last turn's: what was read is near */
        set_table(b, (b->first_block + b->batch_blocks) % b->n_blocks);
    rg_fwd_meet(f);
}

static rg_outputs turns(const void *bench, rg_fwd *f)
{
    rg_op_bench *b = (rg_op_bench *)(uintptr_t)bench;

    for (int i = 0; i < b->n_turns; i++) {
        uint64_t *stamp = b->stamp[f->thread * MOST_TURNS + i];
        int mark = rg_act_mark(f);

        hand_over(f, b);
        stamp[0] = rg_now_ns();
        for (int k = 0; k < b->n_repeats; k++) {
            b->run(f, b);
            rg_act_release(f, mark);
        }
        if (b->n_repeats > 1)
            rg_fwd_meet(f);
        stamp[1] = rg_now_ns();
    }
    rg_fwd_meet(f);
    return (rg_outputs){ 0 };
}

static rg_outputs once(const void *bench, rg_fwd *f)
{
    const rg_op_bench *b = bench;

    b->run(f, b);
    return (rg_outputs){ 0 };
}

/* Operations of a step end with barriers that may be owed, one alone with a barrier. */
static void run_turns(rg_op_bench *b)
{
    const rg_step step = { .text = turns,
                           .model = b,
                           .batch = &b->batch,
                           .reader = b->lane->reader,
                           .exact = b->exact,
                           .settled = b->n_repeats == 1,
                           .n_threads = b->n_threads,
                           .state = b->state };

    b->backend->submit(b->lane, &step);
    b->backend->wait(b->lane);
}

/* A turn lasts from when the last thread begins it to when the last one is done with it, which is where the next
 * operation of a step begins.  The lower quartile of n turns, since other work on the machine makes some longer. */
static double quick_turn(rg_op_bench *b, int n)
{
    double took[MOST_TURNS];

    b->n_turns = n;
    run_turns(b);
    for (int i = 0; i < n; i++) {
        uint64_t begun = 0, ended = 0;
        for (int t = 0; t < b->n_threads; t++) {
            const uint64_t *stamp = b->stamp[t * MOST_TURNS + i];
            begun = stamp[0] > begun ? stamp[0] : begun;
            ended = stamp[1] > ended ? stamp[1] : ended;
        }
        took[i] = rg_seconds(begun, ended);
    }
    return rg_quantile(took, n, 0.25);
}

/* Values without a pattern that branch prediction could learn, and without denormals, which are slow. */
static void fill_activations(rg_op_bench *b)
{
    rg_rng rng = { .seed = 1 };
    float *x = b->activations;

    for (int i = 0; i < KNOWN_VALUES; i++)
        x[i] = 2 * rg_rng_unit(&rng) - 1;
    for (int i = KNOWN_VALUES; i < FILLED_VALUES; i += KNOWN_VALUES)
        memcpy(x + i, x, KNOWN_VALUES * sizeof *x);
}

static double time_repeats(rg_op_bench *b, rg_op_case *run, int n_repeats)
{
    fill_activations(b);
    b->run = run;
    b->used_bytes = 0;
    RG_ASSERT(b->backend->measure(b->backend, &(rg_step){ .text = once, .model = b, .batch = &b->batch },
                                  &b->used_bytes, NULL));
    b->n_repeats = n_repeats;
    const int least = quick_turn(b, 1) > LONG_S ? LONG_TURNS : LEAST_TURNS; /* the first one is to get warm */
    double s = quick_turn(b, least);
    if (s * least > LONG_S)
        return s;
    return quick_turn(b, s * MOST_TURNS > LONG_S ? (int)(LONG_S / s) : MOST_TURNS);
}

double rg_op_bench_seconds(rg_op_bench *b, rg_op_case *run)
{
    return time_repeats(b, run, 1);
}

double rg_op_bench_among_others(rg_op_bench *b, rg_op_case *run)
{
    return time_repeats(b, run, OTHERS) / OTHERS;
}

double rg_op_bench_cells(const rg_op_bench *b, rg_op_case *run)
{
    rg_counted counted = { 0 };
    rg_counter counter;
    rg_fwd f;

    rg_counter_init(&counter, &counted, 1);
    rg_count_fwd(&f, &counter, &b->batch);
    run(&f, b);
    return counted.cells;
}

static void nothing(void *arg, int thread)
{
    (void)arg;
    (void)thread;
}

double rg_op_bench_empty_step(rg_op_bench *b)
{
    double took[EMPTY_STEPS];

    for (int i = 0; i < EMPTY_STEPS; i++) {
        uint64_t t0 = rg_now_ns();
        rg_pool_run(b->pool, b->n_threads, nothing, b);
        took[i] = rg_seconds(t0, rg_now_ns());
    }
    return rg_quantile(took, EMPTY_STEPS, 0.25);
}
