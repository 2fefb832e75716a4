/* test_cuda_draw.c -- what a GPU, emulated (support/cuda/), looks for in logits before they are copied: the ids drawn
 * are those that are drawn from all of them, and few bytes come to the host. */
#include "support/test.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/numeric.h"
#include "engine/sampler.h"
#include "ops/backend.h"
#include "support/cuda/emulated.h"

enum { ROWS = 12, FEW = 64, MOST = 256, MOST_IDS = 9001 };

/* A lane whose steps give logits that are told. */
typedef struct bench {
    const rg_backend *gpu;
    rg_lane *lane;
    rg_state_memory *state;
    rg_pool *pool;
    rg_sampler *sampler;
    int n;                    /* ids */
    float x[ROWS][MOST_IDS];  /* logits of the step, */
    rg_pick picks[ROWS];
    float got[ROWS][MOST_IDS]; /*   and as the sink gets them */
    rg_sampling way[ROWS];
    rg_sample_place place[ROWS];
} bench;

static void give(void *arg, int row, float *x)
{
    bench *b = arg;

    memcpy(x, b->x[row], (size_t)b->n * sizeof *x);
}

static rg_outputs text(const void *model, rg_fwd *f)
{
    bench *b = *(bench *const *)model;
    rg_act *y = rg_act_rows(f, "logits", f->batch->n_logits, b->n);

    rg_act_put(f, y, give, b);
    return (rg_outputs){ .logits = y };
}

static void take(void *arg, int thread, int i, float *logits)
{
    bench *b = arg;
    (void)thread;

    memcpy(b->got[i], logits, (size_t)b->n * sizeof *logits);
    for (int k = 0; k < b->n; k++) /* it may overwrite them */
        logits[k] = NAN;
}

static void step(bench *b, bool measures, rg_lane_options *o)
{
    static int32_t zeros[ROWS], index[ROWS], kv_end[ROWS], pos[ROWS][4];
    const rg_span span = { .n_rows = ROWS, .adapter = -1 };
    const rg_batch batch = { .n_rows = ROWS, .n_spans = 1, .spans = &span, .token = zeros, .index = index, .kv_end = kv_end,
                             .pos = (const int32_t(*)[4])pos, .n_logits = ROWS, .logit_rows = index, .picks = b->picks };
    const rg_sink sink = { .logits = take, .arg = b };
    rg_step s = { .text = text, .model = &b, .batch = &batch, .n_threads = 1, .state = b->state, .sink = &sink };
    rg_error err = { 0 };

    for (int i = 0; i < ROWS; i++) {
        index[i] = i;
        kv_end[i] = i + 1;
    }
    if (measures) {
        assert_ok(b->gpu->measure(b->gpu, &s, &o->activation_bytes, &err), err);
        return;
    }
    s.reader = b->lane->reader;
    b->gpu->submit(b->lane, &s);
    b->gpu->wait(b->lane);
}

static bench *bench_open(int n)
{
    static bench b;
    rg_state_shape shape = { 0 };
    rg_lane_options o = { .sizes = { .max_rows = ROWS, .max_cols = n, .n_threads = 1 } };
    rg_error err = { 0 };

    assert_true(n <= MOST_IDS);
    memset(&b, 0, sizeof b);
    b.n = n;
    b.gpu = rg_backend_find("cuda", &err);
    assert_ok(b.gpu, err);
    b.sampler = rg_sampler_new(n, 8, &err);
    assert_ok(b.sampler, err);
    b.pool = o.pool = rg_pool_new(1, &err);
    assert_ok(b.pool, err);
    b.state = b.gpu->state_new(b.gpu, &shape, &err);
    assert_ok(b.state, err);
    step(&b, true, &o);
    b.lane = b.gpu->open(b.gpu, &o, &err);
    assert_ok(b.lane, err);
    return &b;
}

static void bench_close(bench *b)
{
    b->gpu->close(b->lane);
    b->gpu->state_free(b->state);
    rg_pool_free(b->pool);
    rg_sampler_free(b->sampler);
}

/* ---- draws -------------------------------------------------------------------------------------------------------- */

static rg_sampling sampling(float temperature, int top_k)
{
    return (rg_sampling){ .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .temperature = temperature,
                          .top_k = top_k };
}

static void set_way(bench *b, int row, rg_sampling way, uint64_t seed, int position)
{
    b->way[row] = way;
    b->place[row] = (rg_sample_place){ .key = { .seed = seed, .sample = row, .draw = row / 3, .position = position } };
    b->picks[row] = rg_sample_pick(&way, &b->place[row].key);
}

/* -1: the logits are not all numbers. */
static int32_t draw(bench *b, int row, const float *from)
{
    static float logits[MOST_IDS];

    if (!rg_all_finite(from, b->n))
        return -1;
    memcpy(logits, from, (size_t)b->n * sizeof *logits);
    rg_sample_rules(b->sampler, logits, &b->way[row], &b->place[row]);
    return rg_sample_draw(b->sampler, logits, &b->way[row], &b->place[row].key);
}

/* Compute the step; how many ids each row has, the others being left out. */
static void try_step(bench *b, const char *what, int *n_given)
{
    step(b, false, NULL);
    for (int i = 0; i < ROWS; i++) {
        int n = 0;

        for (int k = 0; k < b->n; k++) {
            const bool same = !memcmp(&b->got[i][k], &b->x[i][k], sizeof(float));

            if (!same && b->got[i][k] != RG_LEFT_OUT)
                fail_msg("%s: logit %d of row %d of %d ids is %a and not %a", what, k, i, b->n, (double)b->got[i][k],
                         (double)b->x[i][k]);
            n += same;
        }
        const int32_t want = draw(b, i, b->x[i]), got = draw(b, i, b->got[i]);
        if (want != got)
            fail_msg("%s: of row %d of %d ids, %d of them given, %d is drawn, and %d of all", what, i, b->n, n, got, want);
        if (n_given)
            n_given[i] = n;
    }
}

static const int sizes[] = { 1, 5, 63, 260, 1003, 4096, MOST_IDS };

/* Kinds of rows: usual ones; one id far ahead; the best several times; all alike. */
enum { USUAL, PEAK, TIES, ALIKE, N_KINDS };

static void make_row(bench *b, int row, int kind, rg_rng *g)
{
    float *x = b->x[row], best = -INFINITY;

    for (int k = 0; k < b->n; k++) {
        x[k] = kind == ALIKE ? -3.5f : 3 * rg_rng_normal(g);
        best = x[k] > best ? x[k] : best;
    }
    for (int k = 0; k < 5 && kind == TIES; k++)
        x[rg_rng_below(g, (uint32_t)b->n)] = best;
    if (kind == PEAK)
        x[rg_rng_below(g, (uint32_t)b->n)] = 40;
}

/* Rows with and without picks side by side, in every order. */
static void all_ways(void **state)
{
    static const float temperatures[] = { 0, 1, 0.7f, 0.01f, 1.7f, 1e-30f, 1e25f, 40, 1 };
    static const int top_k[] = { 0, 1, 5, 128, 40, 129 };
    rg_rng g = { .seed = 1 };

    (void)state;
    for (size_t s = 0; s < RG_LEN(sizes); s++) {
        bench *b = bench_open(sizes[s]);

        for (int round = 0; round < (test_all() ? 30 : 10); round++) {
            for (int i = 0; i < ROWS; i++) {
                const uint32_t way = rg_rng_below(&g, 4);
                rg_sampling p = sampling(temperatures[rg_rng_below(&g, RG_LEN(temperatures))], 0);

                if (way == 1) /* whatever the temperature, and of the k best those with the most mass */
                    p.top_k = top_k[rg_rng_below(&g, RG_LEN(top_k))];
                if (way == 2)
                    p.top_p = 0.8f; /* no pick */
                make_row(b, i, (int)rg_rng_below(&g, N_KINDS), &g);
                set_way(b, i, p, rg_rng_u64(&g), round);
            }
            try_step(b, "all ways", NULL);
        }
        bench_close(b);
    }
}

/* Twenty ids whose logit and noise add up to the same but for roundings: which is drawn is a matter of the last bits. */
static void near_ties(void **state)
{
    static const float temperatures[] = { 1, 0.3f, 2.5f };
    bench *b = bench_open(1003);
    rg_rng g = { .seed = 2 };
    int given[ROWS];

    (void)state;
    for (int round = 0; round < (test_all() ? 30 : 10); round++) {
        for (int i = 0; i < ROWS; i++) {
            const float t = temperatures[i % 3];

            set_way(b, i, sampling(t, 0), rg_rng_u64(&g), round);
            for (int k = 0; k < b->n; k++)
                b->x[i][k] = -100;
            for (int k = 0; k < 20; k++) {
                const int id = 50 * k + (int)rg_rng_below(&g, 50);
                b->x[i][id] = t * (5 - rg_sample_noise(&b->place[i].key, id));
            }
        }
        try_step(b, "near ties", given);
        for (int i = 0; i < ROWS; i++)
            assert_int_equal(given[i], 20);
    }
    bench_close(b);
}

/* ---- what is no number -------------------------------------------------------------------------------------------- */

static void no_numbers(void **state)
{
    static const float seldom[] = { NAN, INFINITY, -INFINITY, -3e38f, 3e38f };
    rg_rng g = { .seed = 3 };

    (void)state;
    for (size_t s = 0; s < RG_LEN(sizes); s++) {
        bench *b = bench_open(sizes[s]);

        for (int round = 0; round < (test_all() ? 20 : 8); round++) {
            for (int i = 0; i < ROWS; i++) {
                make_row(b, i, USUAL, &g);
                b->x[i][round ? (int)rg_rng_below(&g, (uint32_t)b->n) : b->n - 1] = seldom[i % 5];
                if (round == 7) /* less than what is left out would be */
                    for (int k = 0; k < b->n; k++)
                        b->x[i][k] = -1.5e30f - 1e29f * (float)rg_rng_below(&g, 3);
                set_way(b, i, sampling(i % 2 ? 0 : 0.9f, i % 3 ? 0 : 5), rg_rng_u64(&g), round);
            }
            try_step(b, "no numbers", NULL);
        }
        bench_close(b);
    }
}

/* ---- how much comes ----------------------------------------------------------------------------------------------- */

/* Of the emulated driver; false: it is another. */
static bool counts(emulated_counts *c)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    emulated_counts (*count)(void) = NULL;

    assert_non_null(driver);
    *(void **)(void *)&count = dlsym(driver, "emulated_count");
    if (count)
        *c = count();
    dlclose(driver);
    return count != NULL;
}

/* Bytes that the step brings to the host, and the graphs that it launches. */
static void try_counted(bench *b, const char *what, uint64_t bytes, uint64_t graphs)
{
    emulated_counts before, after;
    const bool known = counts(&before);

    try_step(b, what, NULL);
    if (!known)
        return;
    counts(&after);
    if (after.bytes_out - before.bytes_out != bytes || after.graphs - before.graphs != graphs)
        fail_msg("%s: %llu bytes come and not %llu, by %llu graphs and not %llu", what,
                 (unsigned long long)(after.bytes_out - before.bytes_out), (unsigned long long)bytes,
                 (unsigned long long)(after.graphs - before.graphs), (unsigned long long)graphs);
}

static void few_bytes_come(void **state)
{
    const uint64_t few = ROWS * 8 * (1 + FEW), most = ROWS * 8 * (1 + MOST);
    bench *b = bench_open(MOST_IDS);
    const uint64_t whole = (uint64_t)(b->n + 15) / 16 * 16 * 4;
    rg_rng g = { .seed = 4 };

    (void)state;
    for (int i = 0; i < ROWS; i++)
        make_row(b, i, i % 2 ? TIES : PEAK, &g);
    for (int i = 0; i < ROWS; i++)
        set_way(b, i, sampling(i % 2 ? 0 : 0.8f, 0), 7, 0);
    try_counted(b, "draws", few, 0);
    for (int round = 0; round < 5; round++) { /* other keys and temperatures: the same graph */
        for (int i = 0; i < ROWS; i++)
            set_way(b, i, sampling((i + round) % 3 ? 0.2f * (float)(round + 1) : 0, 0), 100 + (uint64_t)round, round);
        try_counted(b, "draws again", few, 1);
    }
    set_way(b, 3, sampling(0.5f, 128), 7, 0);
    try_counted(b, "one of 128", most, 0);
    for (int i = 4; i < 9; i++)
        b->picks[i].k = 0;
    try_counted(b, "some whole rows", most + 5 * whole, 1);
    make_row(b, 1, ALIKE, &g);
    make_row(b, 10, ALIKE, &g);
    make_row(b, 11, ALIKE, &g);
    try_counted(b, "some rows with too many", most + 8 * whole, 1);
    for (int i = 0; i < ROWS; i++)
        b->picks[i].k = 0;
    try_counted(b, "whole rows", ROWS * whole, 0);
    bench_close(b);
}

/* Hardly more than k. */
static void few_more_than_k(void **state)
{
    bench *b = bench_open(MOST_IDS);
    rg_rng g = { .seed = 5 };
    int given[ROWS];

    (void)state;
    for (int i = 0; i < ROWS; i++) {
        make_row(b, i, USUAL, &g);
        set_way(b, i, sampling(1, 128), 7, i);
    }
    try_step(b, "128", given);
    for (int i = 0; i < ROWS; i++)
        assert_in_range(given[i], 128, 170);
    bench_close(b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ways),       cmocka_unit_test(near_ties),       cmocka_unit_test(no_numbers),
        cmocka_unit_test(few_bytes_come), cmocka_unit_test(few_more_than_k),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("draws on a GPU", tests, NULL, NULL);
}
