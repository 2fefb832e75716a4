/* test_opening.c -- a server that is opened while memory runs out: it is refused with an error, or it works. */
#include "server/live.h"

#include <stdatomic.h>

#include "base/log.h"
#include "support/model.h"

/* Memory of which the n-th allocation is refused. */
typedef struct gate {
    atomic_int left;
    atomic_bool refused;
} gate;

static bool allow(void *arg, size_t bytes)
{
    gate *g = arg;

    (void)bytes;
    if (atomic_fetch_sub(&g->left, 1) != 0)
        return true;
    atomic_store(&g->refused, true);
    return false;
}

static void try_all(const char *batch_dir)
{
    static const char *const keys[] = { "one", "two" };
    rg_server_options o = test_server_options();
    int n_refused = 0;
    rg_mem_stats before, after;

    o.batch_dir = batch_dir;
    o.keys = keys;
    o.n_keys = 2;
    before = rg_mem_count();
    for (int n = 0;; n += batch_dir && !test_all() ? 9 : 1) {
        gate g = { 0 };
        rg_error err = { 0 };

        atomic_store(&g.left, n);
        rg_mem_set_gate(allow, &g);
        rg_server *s = rg_server_open(&o, &err);
        if (s)
            test_nap(0.05); /* its threads have begun */
        rg_mem_set_gate(NULL, NULL);
        if (!atomic_load(&g.refused)) {
            assert_ok(s, err);
            rg_server_close(s);
            break;
        }
        n_refused++;
        if (s && !batch_dir)
            fail_msg("allocation %d was refused, and the server was opened", n);
        rg_server_close(s); /* the thread of batches tries again when it has no memory */
        assert_true(s || err.code == RG_E_MEMORY);
    }
    after = rg_mem_count();
    assert_int_equal(after.n_live, before.n_live);
    assert_true(n_refused > 4);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    try_all(NULL);
    try_all(test_scratch("batches"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };

    test_init(argc, argv);
    rg_log_set_level(RG_LOG_ERROR - 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
