/* test_emulated.c -- kernels for processors that we seldom have, their instructions emulated, give the bits of ref.
 *
 * The kernel files are compiled here a second time, with support/emulated.h in front.  What they stand on is this
 * machine's own AVX2 or AVX512; without it there is nothing to do. */
#include "support/test.h"

#include <string.h>

#include "ops/kernel_cases.h"

#if defined(__x86_64__)

void emulated_init_avx_vnni(rg_cpu *k);
void emulated_init_avx512_bf16(rg_cpu *k);
void emulated_add_avx512_pairs_f8(rg_cpu *k);
void emulated_add_avx512_unfold_vbmi(rg_cpu *k);
void emulated_init_amx(rg_cpu *k);

/* The table that it would stand on, or skip. */
static rg_cpu table(const char *isa)
{
    rg_error err;
    const rg_backend *b = rg_backend_find(isa, &err);

    if (!b)
        skip();
    return *(const rg_cpu *)b->kernels;
}

static void are_same(const char *name, const rg_cpu *k, const rg_cpu *below)
{
    cases c = { rg_cpu_nth(0), k, below, { test_seed, 0 }, true };

    for (size_t i = 0; kernel_cases[i].name; i++)
        if (!strcmp(kernel_cases[i].name, name))
            assert_true(kernel_cases[i].same(&c));
}

static void panels_are_same(const rg_cpu *k, const rg_cpu *below)
{
    are_same("panels", k, below);
}

static void dots_of_int8(void **state)
{
    const rg_cpu below = table("avx2");
    rg_cpu k = below;

    (void)state;
    emulated_init_avx_vnni(&k);
    for (rg_layout l = RG_LAYOUT_Q4; l < RG_LAYOUT_F8; l++)
        assert_ptr_not_equal(k.product[RG_INT8][l], below.product[RG_INT8][l]);
    panels_are_same(&k, &below);
}

static void pairs_of_bf16(void **state)
{
    const rg_cpu below = table("avx512");
    rg_cpu k = below;

    (void)state;
    emulated_init_avx512_bf16(&k);
    assert_int_equal(k.fast[RG_LAYOUT_BF16], RG_BF16_PAIRS);
    assert_ptr_not_equal(k.product[RG_BF16_PAIRS][RG_LAYOUT_BF16], below.product[RG_BF16_PAIRS][RG_LAYOUT_BF16]);
    panels_are_same(&k, &below);
}

static void pairs_of_f8(void **state)
{
    const rg_cpu below = table("avx512");
    rg_cpu k = below;

    (void)state;
    emulated_add_avx512_pairs_f8(&k);
    assert_int_equal(k.fast[RG_LAYOUT_F8], RG_BF16_PAIRS);
    assert_ptr_not_equal(k.product[RG_BF16_PAIRS][RG_LAYOUT_F8], below.product[RG_BF16_PAIRS][RG_LAYOUT_F8]);
    panels_are_same(&k, &below);
}

static void lookups_in_registers(void **state)
{
    const rg_cpu below = table("avx512");
    rg_cpu k = below;

    (void)state;
    emulated_add_avx512_unfold_vbmi(&k);
    assert_ptr_not_equal(k.unfold, below.unfold);
    are_same("unfold", &k, &below);
}

static void tiles(void **state)
{
    const rg_cpu below = table("avx512");
    rg_cpu k = below;

    (void)state;
    emulated_init_amx(&k);
    assert_int_equal(k.fast[RG_LAYOUT_BF16], RG_BF16_TILES);
    assert_int_equal(k.fast[RG_LAYOUT_F8], RG_BF16_TILES);
    assert_ptr_not_equal(k.product[RG_BF16_TILES][RG_LAYOUT_BF16], below.product[RG_BF16_TILES][RG_LAYOUT_BF16]);
    assert_ptr_not_equal(k.product[RG_BF16_TILES][RG_LAYOUT_F8], below.product[RG_BF16_TILES][RG_LAYOUT_F8]);
    for (rg_layout l = RG_LAYOUT_Q4; l < RG_LAYOUT_F8; l++)
        assert_ptr_not_equal(k.product[RG_INT8][l], below.product[RG_INT8][l]);
    panels_are_same(&k, &below);
}

#else

static void dots_of_int8(void **state)
{
    (void)state;
    skip();
}

static void pairs_of_bf16(void **state)
{
    (void)state;
    skip();
}

static void pairs_of_f8(void **state)
{
    (void)state;
    skip();
}

static void lookups_in_registers(void **state)
{
    (void)state;
    skip();
}

static void tiles(void **state)
{
    (void)state;
    skip();
}

#endif

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dots_of_int8),
        cmocka_unit_test(pairs_of_bf16),
        cmocka_unit_test(pairs_of_f8),
        cmocka_unit_test(lookups_in_registers),
        cmocka_unit_test(tiles),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("emulated", tests, NULL, NULL);
}
