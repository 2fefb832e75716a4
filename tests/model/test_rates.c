/* test_rates.c -- measuring this machine's rates: they are there for what was asked, positive where something takes
 * time, and a failing allocation is an error that leaves nothing behind. */
#include <math.h>
#include <string.h>

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
    assert_ok(rg_rates_measure(&m, cpu, 1, &wanted, &err), err);
    const rg_rates *r = &m.rates;
    assert_true(r->measured && r->linear[RG_BF16].measured && !r->linear[RG_F32].measured);
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
}

/* Of two machines whose every value is 1, and 4: each value is the mean, as a time or a rate, or the highest, and only
 * what is no value (a flag for each format and K/V type, and the threads) stays. */
static void every_value_is_averaged(void **state)
{
    enum { WORDS = sizeof(rg_machine) / sizeof(double) };
    static rg_machine a, b;
    static double one[WORDS], four[WORDS];
    int n_mean = 0, n_rates = 0, n_most = 0, n_same = 0;

    (void)state;
    for (int i = 0; i < WORDS; i++) {
        one[i] = 1;
        four[i] = 4;
    }
    memcpy(&a, one, sizeof one);
    memcpy(&b, four, sizeof four);
    rg_machine_mix(&a, 1, &b);
    memcpy(one, &a, sizeof one);
    for (int i = 0; i < WORDS; i++) {
        n_mean += fabs(one[i] - 2.5) < 1e-12;
        n_rates += fabs(one[i] - 1.6) < 1e-12;
        n_most += one[i] == 4;
        n_same += one[i] == 1;
    }
    assert_int_equal(n_most, 4);
    assert_int_equal(n_rates, RG_RATE_SETS);
    assert_int_equal(n_same, 1 + 3 * RG_TYPE_COUNT);
    assert_int_equal(n_mean + n_rates + n_most + n_same, WORDS);
    rg_machine_mix(&a, 0, &b);
    assert_memory_equal(&a, &b, sizeof a);
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
        bool ok = rg_rates_measure(&m, cpu, 1, &wanted, &err);
        rg_mem_set_gate(NULL, NULL);
        assert_false(ok);
        assert_false(m.rates.measured);
        assert_int_equal(err.code, RG_E_MEMORY);
        assert_int_equal(rg_mem_count().n_live, before.n_live);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rates_are_measured), cmocka_unit_test(every_value_is_averaged),
                                      cmocka_unit_test(failures_leave_nothing) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
