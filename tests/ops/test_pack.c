/* Tests of packing: for every format, what comes back from the panels equals the format's decode to the bit, whatever
 * the blocks hold. */
#include "support/test.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/cpu/narrow.h"
#include "ops/cpu/pack.h"

/* Random bytes; every third block's first half-words are hostile scales. */
static void fill(rg_rng *r, const rg_format *f, uint8_t *row, int64_t n_blocks)
{
    static const uint16_t hostile[] = { 0x7c00, 0xfc00, 0x7e01, 0x0001, 0x83ff, 0x8000, 0x7bff, 0x0000 };

    for (int64_t b = 0; b < n_blocks; b++, row += f->block_bytes) {
        for (int i = 0; i < f->block_bytes; i++)
            row[i] = (uint8_t)rg_rng_u64(r);
        if (rg_rng_below(r, 3) == 0) {
            uint16_t first = hostile[rg_rng_below(r, RG_LEN(hostile))],
                     last = hostile[rg_rng_below(r, RG_LEN(hostile))];
            memcpy(row, &first, f->block_bytes < 2 ? 1 : 2);
            if (f->block_bytes > 4) { /* q2_k, q3_k and q6_k have their scale at the end */
                memcpy(row + f->block_bytes - 4, &last, 2);
                memcpy(row + f->block_bytes - 2, &first, 2);
            }
        }
    }
}

static void expect_same(const rg_format *f, const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(got + i, want + i, sizeof *got) && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s: value %lld is %a, want %a", f->name, (long long)i, (double)got[i], (double)want[i]);
}

static void check_shape(rg_type type, int64_t n_mats, int64_t rows, int64_t cols)
{
    const rg_format *f = rg_format_of(type);
    rg_rng r = { .seed = test_seed + (uint64_t)type };
    int64_t n_rows = n_mats * rows, n_blocks = cols / f->block_len;
    uint64_t row_bytes;
    float *want, *got;
    uint8_t *src;
    rg_packed p;
    rg_error err;

    assert_true(rg_row_bytes(type, cols, &row_bytes));
    assert_ok(rg_packed_init(&p, type, n_mats, rows, cols, &err), err);
    assert_int_equal((uintptr_t)p.data % RG_ALIGN, 0);
    assert_int_equal(p.panel_bytes % RG_ALIGN, 0);
    want = rg_alloc((size_t)(n_rows * cols) * sizeof *want);
    /* The row ends at an unmapped page: reading past it would fault; and so would writing past a decoded row. */
    src = test_guard_new((size_t)row_bytes);
    got = test_guard_new((size_t)cols * sizeof *got);
    for (int64_t i = 0; i < n_rows; i++) {
        fill(&r, f, src, n_blocks);
        for (int64_t b = 1; type == RG_NVFP4_2 && b < n_blocks; b++) /* the tensor's scale */
            memcpy(src + b * f->block_bytes, src, 8);
        f->decode(src, n_blocks, want + i * cols);
        rg_pack_row(&p, i / rows, i % rows, src);
    }
    for (int64_t i = 0; i < n_rows; i++) {
        rg_unpack_row(&p, i / rows, i % rows, got);
        expect_same(f, got, want + i * cols, cols);
    }
    test_guard_free(src);
    test_guard_free(got);
    rg_free(want);
    rg_packed_fini(&p);
}

static void packing_loses_nothing(void **state)
{
    static const int64_t rows[] = { 1, 15, 16, 17, 33 };
    size_t n_live = rg_mem_count().n_live;

    (void)state;
    for (int type = 0; type < RG_TYPE_COUNT; type++) {
        const rg_format *f = rg_format_of((rg_type)type);
        if (f->layout == RG_LAYOUT_NONE)
            continue;
        for (size_t i = 0; i < RG_LEN(rows); i++) {
            check_shape((rg_type)type, 1, rows[i], f->block_len);
            check_shape((rg_type)type, 3, rows[i], 3 * f->block_len);
        }
        if (f->block_len == 1)
            check_shape((rg_type)type, 2, 5, 67);
    }
    assert_int_equal(rg_mem_count().n_live, n_live);
}

/* The documented places: panel, step, lane and nibble of single values. */
static void values_lie_where_the_header_says(void **state)
{
    rg_packed p;
    rg_error err;
    float row[64] = { 0 };
    uint8_t blocks[2 * 34];

    (void)state;
    row[40] = -1.0f; /* step 1, column 8: the extreme, code 0 of q4_0 */
    row[57] = 0.5f;  /* step 1, column 25: code 12 */
    rg_format_of(RG_Q4_0)->encode(row, 2, blocks);
    assert_ok(rg_packed_init(&p, RG_Q4_0, 2, 20, 64, &err), err);
    rg_pack_row(&p, 1, 18, blocks);
    {
        const rg_step_q4 *step = (const rg_step_q4 *)rg_panel_at(&p, 1, 1) + 1;
        assert_int_equal(step->d[2], rg_f32_to_f16(0.125f));
        assert_int_equal(step->q[8 / 4][2][0] & 15, 0);
        assert_int_equal(step->q[(25 - 16) / 4][2][(25 - 16) % 4] >> 4, 12);
        assert_int_equal(step->q[0][2][0], 0x88);
        assert_int_equal(step->d[3], 0);
    }
    rg_packed_fini(&p);
    assert_ok(rg_packed_init(&p, RG_BF16, 1, 17, 3, &err), err);
    {
        uint16_t three[3] = { 1, 2, 3 };
        rg_pack_row(&p, 0, 16, three);
        assert_int_equal(((const uint16_t *)rg_panel_at(&p, 0, 1))[2 * 16 + 0], 3);
        assert_int_equal(((const uint16_t *)rg_panel_at(&p, 0, 1))[2 * 16 + 1], 0);
    }
    rg_packed_fini(&p);
    rg_format_of(RG_Q8_0)->encode(row, 2, blocks);
    assert_ok(rg_packed_init(&p, RG_Q8_0, 1, 1, 64, &err), err);
    rg_pack_row(&p, 0, 0, blocks);
    assert_int_equal(((const rg_step_q8 *)rg_panel_at(&p, 0, 0) + 1)->q[8 / 4][0][0], 128 - 127);
    rg_packed_fini(&p);
}

/* Codes of 6 and 3 bits lie in two planes, and so do scales of 6 bits. */
static void bits_lie_in_planes(void **state)
{
    rg_ints ints = { .d = 0x3c00 };
    uint8_t block[110] = { 0 };
    rg_packed p;
    rg_error err;

    (void)state;
    assert_ok(rg_packed_init(&p, RG_Q3_K, 1, 16, 256, &err), err);
    block[9] = 1 << 4;                          /* third bit of column 4 * 32 + 9 */
    block[32 + 32 + 9] = 3;                     /* its lower two */
    block[96 + 0] = 0x50;                       /* lower bits of the scale of run 8: 5, */
    block[96 + 8] = 2 << 4;                     /* upper ones: 2 */
    rg_pack_row(&p, 0, 7, block);
    {
        const rg_step_k3 *step = (const rg_step_k3 *)(const void *)rg_panel_at(&p, 0, 0);
        assert_int_equal(step->q[4][0][7][1], 3 << 2);  /* group 2 of run 4: above group 0 */
        assert_int_equal(step->q[4][2][7][1], 1 << 2);  /* bit 2 of the plane of third bits */
        assert_int_equal(rg_k3_scale(step, 8, 7), (5 | 2 << 4) - 32);
        assert_int_equal(step->low[4][7] & 15, 5);
        assert_int_equal(step->high[0][7] >> 4 & 3, 2);
        rg_format_of(RG_Q3_K)->ints(block, &ints);
        for (int run = 0; run < 16; run++)
            assert_int_equal(rg_k3_scale(step, run, 7), ints.s[run]);
    }
    rg_packed_fini(&p);
}

/* Packed weights take no more memory than their file's, but for what 16 rows and cache lines round up. */
static void formats_keep_their_bits(void **state)
{
    static const rg_type types[] = { RG_Q2_K, RG_Q3_K, RG_Q4_K, RG_Q5_K, RG_Q6_K, RG_Q4_0, RG_Q4_1,
                                     RG_Q5_0, RG_Q5_1, RG_Q8_0, RG_IQ4_NL, RG_MXFP4, RG_NVFP4 };
    rg_packed p;
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(types); i++) {
        uint64_t row;
        assert_true(rg_row_bytes(types[i], 4096, &row));
        assert_ok(rg_packed_shape(&p, types[i], 1, 1024, 4096, &err), err);
        assert_true((double)p.placed.bytes <= 1.03 * 1024 * (double)row);
    }
}

/* Two matrices of [17, 3], all of whose values are 1 but one, the last. */
static void pack_last(rg_packed *p, rg_type type, uint16_t one, uint16_t last)
{
    rg_error err;

    assert_ok(rg_packed_init(p, type, 2, 17, 3, &err), err);
    for (int i = 0; i < 2 * 17; i++) {
        const uint16_t row[] = { one, one, i == 2 * 17 - 1 ? last : one };
        rg_pack_row(p, i / 17, i % 17, row);
    }
}

/* Every f16 there is: it fits if its f32 ends in 16 zeros, and then becomes what is packed from bf16. */
static void f16_becomes_bf16_if_nothing_is_lost(void **state)
{
    rg_packed half, brain;
    int n_fit = 0;

    (void)state;
    for (int h = 0; h < 65536; h++) {
        const float x = rg_f16_to_f32((uint16_t)h);
        uint32_t bits;

        memcpy(&bits, &x, sizeof bits);
        pack_last(&half, RG_F16, 0x3c00, (uint16_t)h);
        assert_int_equal(rg_packed_fits_bf16(&half), (bits & 0xffff) == 0);
        if (rg_packed_fits_bf16(&half)) {
            pack_last(&brain, RG_BF16, 0x3f80, (uint16_t)(bits >> 16));
            rg_packed_to_bf16(&half);
            assert_int_equal(half.layout, brain.layout);
            assert_int_equal(half.placed.type, brain.placed.type);
            assert_int_equal(half.placed.bytes, brain.placed.bytes);
            assert_memory_equal(half.data, brain.data, brain.placed.bytes);
            assert_false(rg_packed_fits_bf16(&half)); /* it is none of F16 any more */
            rg_packed_fini(&brain);
            n_fit++;
        }
        rg_packed_fini(&half);
    }
    assert_true(n_fit > 2 * 31 * 128);
}

static bool refuse(void *arg, size_t bytes)
{
    (void)arg;
    (void)bytes;
    return false;
}

static void bad_shapes_are_refused(void **state)
{
    rg_packed p;
    rg_error err;

    (void)state;
    assert_false(rg_packed_init(&p, RG_I32, 1, 1, 32, &err));
    assert_int_equal(err.code, RG_E_UNSUPPORTED);
    assert_false(rg_packed_init(&p, RG_Q4_K, 1, 1, 128, &err));
    assert_int_equal(err.code, RG_E_INPUT);
    assert_false(rg_packed_init(&p, RG_F32, 1, -1, 32, &err));
    assert_false(rg_packed_init(&p, RG_F32, INT64_MAX, INT64_MAX, 32, &err));
    assert_false(rg_packed_init(&p, RG_F32, 1, INT64_MAX, 32, &err));
    assert_false(rg_packed_init(&p, RG_F32, 1, 1, INT64_MAX, &err));
    assert_int_equal(err.code, RG_E_INPUT);
    rg_packed_fini(&p);
    rg_mem_set_gate(refuse, NULL);
    assert_false(rg_packed_init(&p, RG_F32, 1, 4, 4, &err));
    rg_mem_set_gate(NULL, NULL);
    assert_int_equal(err.code, RG_E_MEMORY);
    rg_packed_fini(&p);
    assert_ok(rg_packed_init(&p, RG_F32, 1, 0, 32, &err), err);
    rg_packed_fini(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_loses_nothing),
        cmocka_unit_test(values_lie_where_the_header_says),
        cmocka_unit_test(bits_lie_in_planes),
        cmocka_unit_test(formats_keep_their_bits),
        cmocka_unit_test(f16_becomes_bf16_if_nothing_is_lost),
        cmocka_unit_test(bad_shapes_are_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
