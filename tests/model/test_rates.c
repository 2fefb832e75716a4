/* test_rates.c -- measuring this machine's rates: they are there for what was asked, positive where something takes
 * time, and a failing allocation is an error that leaves nothing behind. */
#include <math.h>

#include "support/test.h"

#include "base/mem.h"
#include "model/rates.h"

static void rates_are_measured(void **state)
{
    static rg_machine m;
    rg_rates_wanted wanted = { .experts = true, .recurrent = true };
    rg_error err = { 0 };
    const rg_cpu *cpu = rg_cpu_find("auto", &err);
    rg_pool *pool = rg_pool_new(1, &err);

    (void)state;
    assert_ok(cpu && pool, err);
    rg_machine_measure(&m, cpu, pool, 1, 0);
    rg_pool_free(pool);
    assert_true(m.read_bytes_s > 0 && m.f32_ops_s > 0 && !m.rates.measured);
    wanted.linear[RG_BF16] = wanted.attention[RG_BF16] = wanted.latent[RG_BF16] = true;
    assert_ok(rg_rates_measure(&m, cpu, 1, &wanted, NULL, &err), err);
    const rg_rates *r = &m.rates;
    assert_true(r->measured && r->linear[RG_BF16].measured && !r->linear[RG_F32].measured);
    assert_true(m.share.memory > 0 && m.share.compute > 0);
    assert_true(r->attention[RG_BF16].measured && r->latent[RG_BF16].measured);
    for (int i = 0; i < RG_RATE_ROWS; i++)
        assert_true(r->linear[RG_BF16].near_s[i] > 0 && r->linear[RG_BF16].far_s[i] >= 0);
    assert_true(r->linear[RG_BF16].near_s[RG_RATE_ROWS - 1] > 8 * r->linear[RG_BF16].near_s[0]);
    for (int i = 0; i < RG_RATE_QUERIES; i++)
        assert_true(r->attention[RG_BF16].pair_s[i] + r->attention[RG_BF16].width_s[i] > 0);
    for (int i = 0; i < RG_RATE_SETS; i++)
        assert_true(r->set_bytes_s[i] > 0);
    for (int k = 0; k < RG_OP_COUNT; k++)
        assert_true(k == RG_OP_NOTE || (r->fixed_s[k] > 0 && r->few_s[k] >= 0 && r->many_s[k] >= 0));
    assert_true(r->many_s[RG_OP_SCAN] > 0 && r->many_s[RG_OP_CONV] > 0 && r->many_s[RG_OP_RMSNORM] > 0);
    /* Rows of one sequence share what a row alone has to do. */
    assert_true(r->attention[RG_BF16].item_s[RG_RATE_QUERIES - 1] < r->attention[RG_BF16].item_s[0]);
}

/* Looks are of the roofs: against roofs twice as high, a machine gives half. */
static void a_pulse_is_taken(void **state)
{
    rg_machine m = { 0 };
    rg_error err = { 0 };
    const rg_cpu *cpu = rg_cpu_find("auto", &err);
    rg_pool *pool = rg_pool_new(2, &err);
    rg_share usual[2];

    (void)state;
    assert_ok(cpu && pool, err);
    rg_machine_measure(&m, cpu, pool, 2, 0);
    for (int i = 0; i < 2; i++) {
        rg_pulse *p = rg_pulse_open(&m, cpu, 2, &err);
        assert_ok(p, err);
        assert_true(rg_pulse_usual(p).memory == 0 && rg_pulse_usual(p).compute == 0); /* not looked */
        for (int n = 0; n < 9; n++) {
            rg_share s = rg_pulse_look(p, pool, n < 5);
            assert_true((s.memory > 0) == (n < 5) && s.compute > 0);
        }
        usual[i] = rg_pulse_usual(p);
        assert_true(rg_pulse_usual(p).compute == 0); /* it was asked */
        rg_pulse_close(p);
        m.read_bytes_s *= 100;
        m.f32_ops_s *= 100;
    }
    /* A busy machine changes by less than ten times. */
    assert_true(usual[1].memory < usual[0].memory / 10 && usual[1].memory > usual[0].memory / 1000);
    assert_true(usual[1].compute < usual[0].compute / 10 && usual[1].compute > usual[0].compute / 1000);
    rg_pool_free(pool);
}

/* What is timed while a quarter of the roofs is given counts a quarter. */
static void rates_are_of_the_roofs(void **state)
{
    static rg_machine m;
    rg_rates_wanted wanted = { .linear[RG_BF16] = true };
    rg_error err = { 0 };
    const rg_cpu *cpu = rg_cpu_find("auto", &err);
    rg_pool *pool = rg_pool_new(1, &err);
    double near[2], share[2];

    (void)state;
    assert_ok(cpu && pool, err);
    rg_machine_measure(&m, cpu, pool, 1, 0);
    rg_pool_free(pool);
    for (int i = 0; i < 2; i++) {
        assert_ok(rg_rates_measure(&m, cpu, 1, &wanted, NULL, &err), err);
        near[i] = m.rates.linear[RG_BF16].near_s[RG_RATE_ROWS - 1];
        share[i] = m.share.compute;
        m.read_bytes_s *= 4;
        m.f32_ops_s *= 4;
    }
    /* Shares and rates change alike, whatever else the machine does. */
    assert_true(share[1] < 0.6 * share[0] && near[1] < 0.6 * near[0]);
    double x = near[1] / share[1] / (near[0] / share[0]);
    assert_true(x > 0.2 && x < 5);
}

/* Of each time the median over the passes, of as many as are remembered. */
static void the_median_is_kept(void **state)
{
    static rg_seen seen;
    rg_shop w = { .seen = &seen };

    (void)state;
    for (int pass = 0; pass < 3; pass++) {
        static const double took[3][3] = { { 3, 5, 4 }, { 4, 6, 6 }, { 9, 2, 5 } };
        static const double want[3][3] = { { 3, 5, 4 }, { 3.5, 5.5, 5 }, { 4, 5, 5 } };
        w.n_timed = 0;
        for (int i = 0; i < 3; i++)
            assert_true(rg_shop_usual(&w, took[pass][i]) == want[pass][i]);
        assert_int_equal(seen.n, 3);
    }
    for (int pass = 0; pass < RG_SHOP_PASSES; pass++) { /* what was long ago is forgotten */
        w.n_timed = 0;
        assert_true(rg_shop_usual(&w, 8) <= 8);
    }
    w.n_timed = 0;
    assert_true(rg_shop_usual(&w, 1) == 8);
    w.n_timed = seen.n = RG_SHOP_TIMED; /* what there is no room for is as it is */
    assert_true(rg_shop_usual(&w, 7) == 7 && seen.n == RG_SHOP_TIMED);
}

static bool allow_some(void *arg, size_t bytes)
{
    int *left = arg;

    (void)bytes;
    return (*left)-- > 0;
}

static void failures_leave_nothing(void **state)
{
    static rg_machine m = { .read_bytes_s = 1e10, .f32_ops_s = 1e10 };
    rg_rates_wanted wanted = { .linear[RG_BF16] = true };
    rg_error err = { 0 };
    const rg_cpu *cpu = rg_cpu_find("auto", &err);

    (void)state;
    for (int n = 0; n < 8; n++) { /* those before the first measurement */
        int left = n;
        rg_mem_stats before = rg_mem_count();
        rg_mem_set_gate(allow_some, &left);
        bool ok = rg_rates_measure(&m, cpu, 1, &wanted, NULL, &err);
        rg_mem_set_gate(NULL, NULL);
        assert_false(ok);
        assert_false(m.rates.measured);
        assert_int_equal(err.code, RG_E_MEMORY);
        assert_int_equal(rg_mem_count().n_live, before.n_live);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rates_are_measured), cmocka_unit_test(the_median_is_kept),
                                      cmocka_unit_test(a_pulse_is_taken),
                                      cmocka_unit_test(rates_are_of_the_roofs),
                                      cmocka_unit_test(failures_leave_nothing) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
