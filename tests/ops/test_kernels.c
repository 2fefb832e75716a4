/* test_kernels.c -- every kernel of every instruction set of this machine gives the bits of ref. */
#include "support/test.h"

#include "ops/kernel_cases.h"

#include <string.h>

static void run(const char *name)
{
    const rg_cpu *ref = rg_cpu_nth(0);
    int n_run = 0;

    for (int i = 0; rg_cpu_nth(i); i++) {
        cases c = { ref, rg_cpu_nth(i), NULL, { test_seed, 0 }, test_scale(2) < 2 };
        if (test_isa ? strcmp(test_isa, c.k->isa) != 0 : c.k == ref && rg_cpu_nth(1) != NULL)
            continue;
        n_run++;
        for (size_t j = 0; kernel_cases[j].name; j++)
            if (!strcmp(kernel_cases[j].name, name))
                assert_true(kernel_cases[j].same(&c));
    }
    assert_true(n_run > 0);
}

#define TEST(name)                                                                                                     \
    static void kernels_##name(void **state)                                                                           \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        run(#name);                                                                                                    \
    }

TEST(panels)
TEST(columns)
TEST(matrices)
TEST(sparse)
TEST(rows)
TEST(activations)
TEST(quantize)
TEST(store)
TEST(close)
TEST(unfold)
TEST(sketch)
TEST(latents)
TEST(attend)
TEST(merge)
TEST(recurrence)
TEST(probe)
TEST(index)

/* By name and by order; what is not there is refused with a sentence. */
static void tables(void **state)
{
    rg_error err = { 0 };
    int n = 0;

    (void)state;
    while (rg_cpu_nth(n))
        n++;
    assert_true(n >= 1);
    assert_string_equal(rg_cpu_nth(0)->isa, "ref");
    assert_null(rg_cpu_nth(-1));
    assert_ptr_equal(rg_backend_find("auto", &err)->kernels, rg_cpu_nth(n - 1));
    for (int i = 0; i < n; i++)
        assert_ptr_equal(rg_backend_find(rg_cpu_nth(i)->isa, &err)->kernels, rg_cpu_nth(i));
    assert_null(rg_backend_nth(n));
    assert_null(rg_backend_find("avx3", &err));
    assert_non_null(strstr(err.text, "avx3"));
    for (rg_layout l = RG_LAYOUT_F32; l < RG_LAYOUT_COUNT; l++)
        assert_non_null(rg_cpu_nth(n - 1)->product[RG_EXACT][rg_layout_unfolded(l)]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables),           cmocka_unit_test(kernels_panels), cmocka_unit_test(kernels_rows),
        cmocka_unit_test(kernels_quantize), cmocka_unit_test(kernels_store),  cmocka_unit_test(kernels_close),
        cmocka_unit_test(kernels_attend),   cmocka_unit_test(kernels_latents), cmocka_unit_test(kernels_unfold),
        cmocka_unit_test(kernels_sketch),
        cmocka_unit_test(kernels_merge),    cmocka_unit_test(kernels_recurrence), cmocka_unit_test(kernels_probe),
        cmocka_unit_test(kernels_activations), cmocka_unit_test(kernels_index), cmocka_unit_test(kernels_columns),
        cmocka_unit_test(kernels_sparse),   cmocka_unit_test(kernels_matrices),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
