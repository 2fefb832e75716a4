/* world.h -- what the tests of operations share: a pool, a reader and an arena around a text of operations, and weights
 * made of random numbers.  Included by one test program at a time, hence static. */
#ifndef RG_TEST_WORLD_H
#define RG_TEST_WORLD_H

#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ops/cpu/fwd.h"
#include "ops/cpu/kernels.h"

enum { MAX_THREADS = 2, ARENA = 64 << 20 };

typedef struct world {
    rg_pool *pool;
    rg_cpu_reader *reader;
    uint8_t *arena;
    rg_cpu_fwd fwd[MAX_THREADS];
    int n_threads;
    bool exact, llm_int8, lazy; /* lazy: phases may be joined, as in a lane's step that nobody looks into */
    float attention_sparsity;
    rg_group_memory groups[3];
    const rg_batch *batch;
    void (*text)(rg_fwd *f, void *arg);
    void *arg;
} world;

static inline void world_init(world *w, const rg_cpu *cpu, int n_threads, const rg_reader_sizes *sizes)
{
    rg_reader_sizes s = *sizes;
    rg_error err;

    memset(w, 0, sizeof *w);
    s.n_threads = w->n_threads = n_threads;
    w->pool = rg_pool_new(n_threads, &err);
    assert_ok(w->pool, err);
    w->reader = rg_cpu_reader_new(cpu, &s, &err);
    assert_ok(w->reader, err);
    w->arena = rg_region_new(ARENA);
    assert_non_null(w->arena);
}

/* The i-th instruction set that operations are tried on; NULL after the last.  Of checked code the best alone: test_kernels
 * has the kernels of all. */
static inline const rg_cpu *world_cpu(int i)
{
    int best = 0;

    while (rg_cpu_nth(best + 1))
        best++;
    return rg_cpu_nth(TEST_SLOWER > 1 ? best + i : i);
}

static inline void world_fini(world *w)
{
    rg_cpu_reader_free(w->reader);
    rg_pool_free(w->pool);
    rg_region_free(w->arena, ARENA);
}

static inline void world_thread(void *arg, int thread)
{
    world *w = arg;
    rg_cpu_fwd *f = &w->fwd[thread];

    *f = (rg_cpu_fwd){ .base = { .reader = rg_cpu_reader_of(w->reader),
                                 .batch = w->batch,
                                 .exact = w->exact,
                                 .llm_int8 = w->llm_int8,
                                 .attention_sparsity = w->attention_sparsity,
                                 .layer = -1,
                                 .thread = thread,
                                 .n_threads = w->n_threads },
                       .groups = w->groups,
                       .pool = w->pool,
                       .lazy = w->lazy,
                       .arena = w->arena,
                       .arena_bytes = ARENA };
    w->text(&f->base, w->arg);
}

static inline void world_step(world *w, const rg_batch *b, void (*text)(rg_fwd *f, void *arg), void *arg)
{
    w->batch = b;
    w->text = text;
    w->arg = arg;
    rg_mem_forbid();
    rg_pool_run(w->pool, w->n_threads, world_thread, w);
    rg_mem_permit();
}

/* A step of two sequences, in slots 2 and 0, each with a span of n rows like this one. */
static inline void world_step_twice(world *w, const rg_span *like, int n, void (*text)(rg_fwd *f, void *arg), void *arg)
{
    static const int32_t slots[2] = { 2, 0 };
    rg_span spans[2] = { *like, *like };
    rg_batch b = { .n_rows = 2 * n, .n_spans = 2, .spans = spans };

    for (int i = 0; i < 2; i++) {
        spans[i].n_rows = n;
        spans[i].first_row = i * n;
        spans[i].tables[0] = &slots[i];
    }
    world_step(w, &b, text, arg);
}

/* A new activation holding rows of x, [rows, cols]. */
static inline rg_act *act_of(rg_fwd *f, const char *name, const float *x, int rows, int cols)
{
    rg_act *a = rg_act_rows(f, name, rows, cols);

    rg_cpu_place(rg_cpu_fwd_of(f));
    if (f->thread == 0)
        for (int i = 0; i < rows; i++)
            memcpy(rg_act_row(f, a, i), x + (size_t)i * (size_t)cols, (size_t)cols * sizeof(float));
    rg_fwd_barrier(f);
    return a;
}

static inline void act_out(rg_fwd *f, const rg_act *a, float *y)
{
    if (f->thread == 0)
        for (int i = 0; i < a->rows; i++)
            memcpy(y + (size_t)i * (size_t)a->cols, rg_act_row(f, a, i), (size_t)a->cols * sizeof(float));
    rg_fwd_barrier(f);
}

static inline float *random_floats(rg_rng *rng, size_t n, float scale)
{
    float *x = rg_array(n, sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = rg_rng_normal(rng) * scale;
    return x;
}

/* A bound weight of random numbers, and what it decodes to: dense [n_mats * rows, cols].  `packed` is filled.  Encoding is
 * slow: rows come again, at distances that are no size of a panel or of a matrix. */
static inline rg_weight random_weight(rg_rng *rng, rg_packed *packed, rg_type type, const int shape[3], float **dense)
{
    enum { PERIOD = 61 };
    int n_mats = shape[0], rows = shape[1], cols = shape[2];
    const rg_format *format = rg_format_of(type);
    const size_t row_bytes = (size_t)(cols / format->block_len) * (size_t)format->block_bytes;
    float *x = random_floats(rng, (size_t)n_mats * (size_t)rows * (size_t)cols, 1.0f / sqrtf((float)cols));
    uint8_t *coded = rg_alloc(PERIOD * row_bytes);
    rg_error err;

    assert_ok(rg_packed_init(packed, type, n_mats, rows, cols, &err), err);
    for (int i = 0; i < n_mats * rows; i++) {
        uint8_t *row = coded + (size_t)(i % PERIOD) * row_bytes;

        if (i < PERIOD)
            format->encode(x + (size_t)i * (size_t)cols, cols / format->block_len, row);
        rg_pack_row(packed, i / rows, i % rows, row);
        rg_unpack_row(packed, i / rows, i % rows, x + (size_t)i * (size_t)cols);
    }
    rg_free(coded);
    *dense = x;
    return (rg_weight){ .name = "w", .type = type, .n_mats = n_mats, .rows = rows, .cols = cols, .placed = &packed->placed };
}

static inline rg_weight vector(const float *x, int n)
{
    return (rg_weight){ .name = "v", .type = RG_F32, .n_mats = 1, .rows = 1, .cols = n, .vec = x };
}

static inline double act_of_double(rg_activation act, double x)
{
    switch (act) {
    case RG_SILU: return x / (1 + exp(-x));
    case RG_GELU: return x * erfc(-x / sqrt(2)) / 2;
    case RG_GELU_TANH: return x / (1 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
    case RG_RELU: return fmax(x, 0);
    case RG_RELU2: return fmax(x, 0) * fmax(x, 0);
    case RG_SIGMOID: return 1 / (1 + exp(-x));
    case RG_SWIGLU_CLAMPED: return fmin(x, 7) / (1 + exp(-1.702 * fmin(x, 7)));
    case RG_TANH: return tanh(x);
    case RG_EXP: return exp(x);
    case RG_SOFTPLUS: return log1p(exp(x));
    case RG_IDENTITY: return x;
    case RG_INVERSE: return 1 / x;
    default: abort();
    }
}

static inline double gated_double(rg_activation act, double gate, double up)
{
    return act_of_double(act, gate) * (act == RG_SWIGLU_CLAMPED ? fmax(fmin(up, 7), -7) + 1 : up);
}

static inline void assert_near(const float *got, const double *want, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * (1.0 + fabs(want[i])))) {
            print_error("value %zu of %zu: %.9g, want %.9g\n", i, n, (double)got[i], want[i]);
            fail();
        }
}

/* Rows place[0, n_rows) of numbers [places, cols], as an activation. */
static inline rg_act *world_rows(rg_fwd *f, const float *from, const int *place, int n_rows, int cols)
{
    rg_act *a = rg_act_new(f, "rows", cols);

    rg_cpu_place(rg_cpu_fwd_of(f));
    if (f->thread == 0)
        for (int i = 0; i < n_rows; i++)
            memcpy(rg_act_row(f, a, i), from + (size_t)place[i] * (size_t)cols, (size_t)cols * sizeof(float));
    rg_fwd_barrier(f);
    return a;
}

#endif
