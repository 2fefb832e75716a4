/* Tests of the pool: every chunk is taken once, phases do not overlap, runs of fewer threads, many runs. */
#include "support/test.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pool.h"

enum { N_PHASES = 50, N_CHUNKS = 37, N_RUNS = 40 };

typedef struct job {
    rg_pool *pool;
    int n;
    int data[N_PHASES][N_CHUNKS]; /* plain memory: the thread sanitizer judges the barrier */
    atomic_int n_threads;
    atomic_bool wrong;
} job;

/* Each phase's chunk reads what a neighbour wrote in the phase before. */
static void work(void *arg, int thread)
{
    job *j = arg;
    uint32_t phase = 0;

    atomic_fetch_add(&j->n_threads, 1);
    if (thread < 0 || thread >= j->n)
        atomic_store(&j->wrong, true);
    while (phase < N_PHASES) {
        uint32_t p = phase;
        for (int c; (c = rg_phase_take(j->pool, phase)) < N_CHUNKS;)
            j->data[p][c] += p ? j->data[p - 1][(c + 1) % N_CHUNKS] + 1 : 1;
        rg_phase_end(j->pool, &phase);
        if (phase != p + 1)
            atomic_store(&j->wrong, true);
    }
}

static void chunks_are_taken_once_in_order(void **state)
{
    rg_error err;
    size_t n_live = rg_mem_count().n_live;

    (void)state;
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        rg_pool *p = rg_pool_new(n_threads, &err);
        assert_ok(p, err);
        assert_int_equal(rg_pool_threads(p), n_threads);
        for (int run = 0; run < N_RUNS; run++) {
            static job j;
            j = (job){ .pool = p, .n = 1 + run % n_threads };
            rg_pool_run(p, j.n, work, &j);
            assert_int_equal(j.n_threads, j.n);
            assert_false(j.wrong);
            for (int i = 0; i < N_PHASES; i++)
                for (int c = 0; c < N_CHUNKS; c++)
                    assert_int_equal(j.data[i][c], i + 1);
        }
        rg_pool_free(p);
    }
    assert_int_equal(rg_mem_count().n_live, n_live);
}

static bool refuse(void *arg, size_t bytes)
{
    (void)bytes;
    return (*(int *)arg)-- != 0;
}

static void opening_can_be_refused(void **state)
{
    rg_error err;
    rg_pool *p;

    (void)state;
    assert_null(rg_pool_new(0, &err));
    assert_int_equal(err.code, RG_E_USAGE);
    for (int i = 0; i < 2; i++) {
        int left = i;
        rg_mem_set_gate(refuse, &left);
        p = rg_pool_new(2, &err);
        rg_mem_set_gate(NULL, NULL);
        assert_null(p);
        assert_int_equal(err.code, RG_E_MEMORY);
    }
    rg_pool_free(NULL);
}

static void there_is_a_core(void **state)
{
    (void)state;
    assert_true(rg_cores() >= 1);
    assert_int_equal(rg_cores(), rg_cores());
    assert_true(rg_memory_free() > 0);
    assert_true(rg_memory_free() <= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_taken_once_in_order),
        cmocka_unit_test(opening_can_be_refused),
        cmocka_unit_test(there_is_a_core),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
