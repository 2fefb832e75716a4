/* test_mixture.c -- which matrices of a mixture of k-types have more bits: what llama.cpp's llama-quantize gives for 32
 * layers. */
#include <stdio.h>
#include <string.h>

#include "model/mixture.h"
#include "support/test.h"

static rg_type of(const char *mixture, const char *name)
{
    const rg_mixture *m = rg_mixture_find(mixture);

    assert_non_null(m);
    return rg_mixture_type(m, name, 32, false);
}

static void matrices_that_matter_have_more_bits(void **state)
{
    static const int more[] = { 0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31 };
    char name[64];
    size_t k = 0;

    (void)state;
    for (int i = 0; i < 32; i++) {
        bool is_more = k < RG_LEN(more) && more[k] == i;

        k += is_more;
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
        assert_int_equal(of("Q4_K_M", name), is_more ? RG_Q6_K : RG_Q4_K);
        assert_int_equal(of("q5_k_m", name), is_more ? RG_Q6_K : RG_Q5_K);
        assert_int_equal(of("q4_k_s", name), i < 4 ? RG_Q5_K : RG_Q4_K);
        assert_int_equal(of("q3_k_m", name), i < 2 ? RG_Q5_K : RG_Q4_K);
        snprintf(name, sizeof name, "blk.%d.ffn_down_exps.weight", i);
        assert_int_equal(of("Q4_K_M", name), is_more ? RG_Q6_K : RG_Q4_K);
        assert_int_equal(of("Q3_K_M", name), i < 2 ? RG_Q5_K : RG_Q4_K);
        snprintf(name, sizeof name, "blk.%d.ffn_up.weight", i);
        assert_int_equal(of("Q4_K_M", name), RG_Q4_K);
        assert_int_equal(of("Q3_K_L", name), RG_Q3_K);
    }
    assert_int_equal(of("Q3_K_S", "output.weight"), RG_Q6_K);
    assert_int_equal(of("Q4_K_M", "token_embd.weight"), RG_Q4_K);
    assert_int_equal(rg_mixture_type(rg_mixture_find("q4_k_m"), "token_embd.weight", 32, true), RG_Q6_K);
    assert_null(rg_mixture_find("q4_k"));
    assert_null(rg_mixture_find("q4_k_mm"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_that_matter_have_more_bits),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("mixture", tests, NULL, NULL);
}
