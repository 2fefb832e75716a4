/* test_phases.c -- phases of a step, ended by a barrier or by one that may be owed: whatever their chunks, each is taken
 * once and sees what the phases before it left; and how few barriers a layer of a small step needs. */
#include "support/test.h"

#include <stdatomic.h>
#include <string.h>

#include "base/pool.h"
#include "base/rng.h"
#include "ops/cpu/fwd.h"

enum { MOST_THREADS = 17, MOST_CHUNKS = 40, N_PHASES = 200 };

typedef struct phase {
    int n;
    bool full; /* a barrier ends it */
} phase;

typedef struct program {
    rg_pool *pool;
    const phase *phases;
    int n_phases, n_threads;
    bool lazy;
    uint64_t value[2][MOST_CHUNKS]; /* of the phase before, and of the present one; no atomics: races show */
    int taken[N_PHASES][MOST_CHUNKS];
    uint32_t n_gates[MOST_THREADS];
    atomic_bool wrong;
} program;

/* What chunk i of a phase makes of all values of the phase before, which had n chunks. */
static uint64_t mixed(const uint64_t *before, int n, int k, int i)
{
    uint64_t h = (uint64_t)(k * 1000 + i);

    for (int j = 0; j < n; j++)
        h = (h ^ before[j]) * 0x9e3779b97f4a7c15u + (h >> 29);
    return h;
}

static void run_program(void *arg, int thread)
{
    program *p = arg;
    rg_cpu_fwd own = { .base = { .thread = thread, .n_threads = p->n_threads }, .pool = p->pool, .lazy = p->lazy };
    rg_fwd *f = &own.base;
    int n_before = 0;

    for (int k = 0; k < p->n_phases; k++) {
        const phase *now = &p->phases[k];

        for (int i; (i = rg_chunk_next(f, now->n)) >= 0;) {
            p->value[k % 2][i] = mixed(p->value[!(k % 2)], n_before, k, i);
            p->taken[k][i]++;
        }
        if (now->full)
            rg_fwd_barrier(f);
        else
            rg_phase_done(f);
        for (int i = 0; now->full && i < now->n; i++) /* there for all threads */
            if (p->taken[k][i] != 1)
                atomic_store(&p->wrong, true);
        n_before = now->n;
    }
    p->n_gates[thread] = own.phase;
}

static void run_on(program *p, int n_threads)
{
    rg_error err = { 0 };

    p->n_threads = n_threads;
    p->pool = rg_pool_new(n_threads, &err);
    assert_ok(p->pool, err);
    memset(p->value, 0, sizeof p->value);
    memset(p->taken, 0, sizeof p->taken);
    rg_pool_run(p->pool, n_threads, run_program, p);
    rg_pool_free(p->pool);
    assert_false(atomic_load(&p->wrong));
    for (int k = 0; k < p->n_phases; k++)
        for (int i = 0; i < MOST_CHUNKS; i++)
            assert_int_equal(p->taken[k][i], i < p->phases[k].n);
    for (int i = 1; i < n_threads && p->phases[p->n_phases - 1].full; i++)
        assert_int_equal(p->n_gates[i], p->n_gates[0]);
}

/* Zero, one, few and many chunks in any order; a chunk taken twice, or before the phase before it ended, changes what
 * comes out of the last one. */
static void phases_follow_each_other(void **state)
{
    static const int sizes[] = { 0, 1, 1, 1, 2, 3, 7, MOST_CHUNKS };
    static const int threads[] = { 1, 2, 3, 9, MOST_THREADS };
    static phase phases[N_PHASES];
    rg_rng random = { .seed = test_seed };

    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        static program one, other;

        for (int k = 0; k < N_PHASES; k++)
            phases[k] = (phase){ sizes[rg_rng_below(&random, RG_LEN(sizes))], rg_rng_below(&random, 4) == 0 };
        phases[N_PHASES - 1] = (phase){ 3, true };
        memset(&one, 0, sizeof one);
        one.phases = phases;
        one.n_phases = N_PHASES;
        memcpy(&other, &one, sizeof one);
        run_on(&one, 1);
        other.lazy = turn != 0;
        for (size_t i = 0; i < RG_LEN(threads); i++) {
            run_on(&other, threads[i]);
            assert_memory_equal(other.value[(N_PHASES - 1) % 2], one.value[(N_PHASES - 1) % 2], 3 * sizeof(uint64_t));
        }
    }
}

/* A layer of one row: norm, round, q k v, rotate, store, rotate, attend, round, o; norm, round, gate and up, round,
 * down.  Only those that more than one thread computes begin together. */
static void a_small_layer_meets_five_times(void **state)
{
    static const phase layer[] = { { 1, 0 }, { 1, 0 }, { 2, 0 }, { 1, 0 }, { 1, 0 }, { 1, 0 }, { 2, 0 }, { 1, 0 }, { 2, 0 },
                                   { 1, 0 }, { 1, 0 }, { 2, 0 }, { 1, 0 }, { 2, 0 }, { 0, 1 } };
    static program p = { .phases = layer, .n_phases = RG_LEN(layer) };

    (void)state;
    p.lazy = true;
    run_on(&p, 2);
    assert_int_equal(p.n_gates[0], 6); /* the last is the barrier behind it */
    p.lazy = false;
    run_on(&p, 2);
    assert_int_equal(p.n_gates[0], 15);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_follow_each_other),
        cmocka_unit_test(a_small_layer_meets_five_times),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
