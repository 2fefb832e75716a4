/* Tests of the pool: every chunk is taken once, phases do not overlap, runs of fewer threads, many runs. */
#include "support/test.h"

#include <sched.h>
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
        for (int c; (c = rg_phase_take(j->pool, phase, N_CHUNKS)) >= 0;)
            j->data[p][c] += p ? j->data[p - 1][(c + 1) % N_CHUNKS] + 1 : 1;
        rg_phase_end(j->pool, &phase);
        if (phase != p + 1)
            atomic_store(&j->wrong, true);
    }
}

/* Up to 8 threads meet at one counter, up to 64 at two levels of them, more at three. */
static void chunks_are_taken_once_in_order(void **state)
{
    static const int sizes[] = { 1, 2, 3, 4, 8, 9, 16, 67 };
    rg_error err;
    size_t n_live = rg_mem_count().n_live;

    (void)state;
    for (size_t s = 0; s < RG_LEN(sizes); s++) {
        const int n_threads = sizes[s], n_runs = n_threads > 8 ? 2 : N_RUNS;
        rg_pool *p = rg_pool_new(n_threads, &err);
        assert_ok(p, err);
        assert_int_equal(rg_pool_threads(p), n_threads);
        if (n_threads == 3)
            rg_pool_pin(p);
        for (int run = 0; run < n_runs; run++) {
            static job j;
            j = (job){ .pool = p, .n = n_threads > 8 ? n_threads - run % 2 : 1 + run % n_threads };
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

/* A thread's first chunk of a phase is its own number, whoever comes first. */
typedef struct own {
    rg_pool *pool;
    atomic_int firsts, later;
    atomic_bool wrong;
} own;

static void take_own(void *arg, int thread)
{
    own *o = arg;
    uint32_t phase = 0;

    for (int i = 0; i < N_PHASES; i++) {
        if (rg_phase_take(o->pool, phase, N_CHUNKS) != thread)
            atomic_store(&o->wrong, true);
        for (int c; (c = rg_phase_take(o->pool, phase, N_CHUNKS)) >= 0; atomic_fetch_add(&o->later, 1))
            if (c < 4)
                atomic_store(&o->wrong, true);
        atomic_fetch_add(&o->firsts, 1);
        rg_phase_end(o->pool, &phase);
    }
}

static void the_first_chunk_is_the_threads_own(void **state)
{
    rg_error err;
    own o = { .pool = rg_pool_new(4, &err) };

    (void)state;
    assert_ok(o.pool, err);
    rg_pool_run(o.pool, 4, take_own, &o);
    rg_pool_run(o.pool, 4, take_own, &o);
    assert_false(o.wrong);
    assert_int_equal(o.firsts, 2 * 4 * N_PHASES);
    assert_int_equal(o.later, 2 * (N_CHUNKS - 4) * N_PHASES);
    rg_pool_free(o.pool);
}

/* A thread's chunks rise, and it knows which comes next where no other takes any. */
typedef struct rising {
    rg_pool *pool;
    int n, alone;
    atomic_int taken;
    atomic_bool wrong;
    atomic_int second; /* threads, in order, that have taken a second chunk */
} rising;

static void take_rising(void *arg, int thread)
{
    rising *r = arg;
    uint32_t phase = 0;
    int last = -1, likely = thread;

    for (int c; (c = rg_phase_take(r->pool, phase, r->n)) >= 0; last = c) {
        if (c <= last || c >= r->n || (r->alone && c != likely))
            atomic_store(&r->wrong, true);
        likely = rg_phase_likely(r->pool, c);
        atomic_fetch_add(&r->taken, 1);
    }
    rg_phase_end(r->pool, &phase);
}

/* Thread 0 goes on with chunk 2, and has then taken some more, which thread 1 passes by. */
static void take_in_turn(void *arg, int thread)
{
    rising *r = arg;
    uint32_t phase = 0;
    int c[2];

    c[0] = rg_phase_take(r->pool, phase, r->n);
    while (atomic_load(&r->second) < thread)
        sched_yield();
    c[1] = rg_phase_take(r->pool, phase, r->n);
    atomic_fetch_add(&r->second, 1);
    while (atomic_load(&r->second) < 2)
        sched_yield();
    if (c[0] != thread || (thread == 0 ? c[1] != 2 : c[1] < 4))
        atomic_store(&r->wrong, true);
    while (rg_phase_take(r->pool, phase, r->n) >= 0)
        continue;
    rg_phase_end(r->pool, &phase);
}

static void many_chunks_are_taken_several_at_a_time(void **state)
{
    enum { MANY = 4096 };
    rg_error err;
    rg_pool *p = rg_pool_new(4, &err);
    rising turns = { .pool = p, .n = MANY };

    (void)state;
    assert_ok(p, err);
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        rising r = { .pool = p, .n = MANY, .alone = n_threads == 1 };

        rg_pool_run(p, n_threads, take_rising, &r);
        assert_false(r.wrong);
        assert_int_equal(r.taken, MANY);
    }
    rg_pool_run(p, 2, take_in_turn, &turns);
    assert_false(turns.wrong);
    rg_pool_free(p);
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
    for (int i = 0; i < 3; i++) {
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
    assert_true(rg_nodes() >= 1);
    assert_true(rg_memory_free() > 0);
    assert_true(rg_memory_free() <= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_taken_once_in_order), cmocka_unit_test(many_chunks_are_taken_several_at_a_time),
        cmocka_unit_test(the_first_chunk_is_the_threads_own), cmocka_unit_test(opening_can_be_refused),
        cmocka_unit_test(there_is_a_core),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
