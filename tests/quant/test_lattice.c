/* Weights that lie on a grid already, as those of a model that was trained for it: they are stored on that grid, and
 * ordinary weights as they were. */
#include <math.h>
#include <string.h>

#include "support/test.h"

#include "base/rng.h"
#include "quant/lattice.h"
#include "quant/quant.h"
#include "shrink/kbit.h"

enum { BLOCKS = 400, COLS = 32 };

static float as_bf16(float x)
{
    uint8_t half[2];

    rg_format_of(RG_BF16)->encode(&x, 1, half);
    rg_format_of(RG_BF16)->decode(half, 1, &x);
    return x;
}

/* Codes between low and high, whose extreme is seldom the format's last one, times a step. */
static void make_block(rg_rng *rng, int low, int high, bool bf16, float *x, int *code)
{
    const float step = (0.5f + rg_rng_unit(rng)) / 64;

    for (int i = 0; i < COLS; i++) {
        code[i] = low + (int)rg_rng_below(rng, (uint32_t)(high - low + 1));
        x[i] = (float)code[i] * step;
        x[i] = bf16 ? as_bf16(x[i]) : x[i];
    }
}

static void codes_of_a_grid_are_found(void **state)
{
    static const struct {
        rg_type type;
        int low, high;
        bool bf16;
    } cases[] = {
        { RG_Q4_0, -8, 7, true },   { RG_Q4_0, -5, 6, true }, { RG_Q4_0, -7, 7, false },
        { RG_Q5_0, -13, 11, true }, { RG_Q5_0, -8, 7, true },
    };
    rg_rng rng = { .seed = 7 };

    (void)state;
    for (size_t c = 0; c < RG_LEN(cases); c++)
        for (int b = 0; b < BLOCKS; b++) {
            const rg_format *f = rg_format_of(cases[c].type);
            float x[COLS], y[COLS];
            int code[COLS];
            uint8_t block[64];

            make_block(&rng, cases[c].low, cases[c].high, cases[c].bf16, x, code);
            f->encode(x, 1, block);
            f->decode(block, 1, y);
            for (int i = 0; i < COLS; i++) /* the step's own rounding to f16, and that of the values */
                if (!(fabsf(y[i] - x[i]) <= fabsf(x[i]) * (cases[c].bf16 ? 0x1p-7f : 0x1p-10f)))
                    fail_msg("case %zu, block %d: %g became %g", c, b, (double)x[i], (double)y[i]);
        }
}

/* A block that is on no grid keeps the codes of the published rule. */
static void ordinary_blocks_stay_as_they_were(void **state)
{
    rg_rng rng = { .seed = 8 };

    (void)state;
    for (int b = 0; b < 20 * BLOCKS; b++) {
        float x[COLS], most = 0;
        uint8_t block[64];

        for (int i = 0; i < COLS; i++) {
            x[i] = as_bf16(rg_rng_normal(&rng) / 50);
            most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
        }
        assert_true(rg_lattice_step(x, COLS, 8) == 0.0f && rg_lattice_step(x, COLS, 127) == 0.0f);
        rg_format_of(RG_Q4_0)->encode(x, 1, block);
        const float inverse = 1.0f / (most / -8.0f);
        for (int i = 0; i < COLS; i++) {
            const float want = fminf(floorf(x[i] * inverse + 8.5f), 15.0f);
            assert_int_equal(i < 16 ? block[2 + i] & 15 : block[2 + i - 16] >> 4, (int)want);
        }
    }
}

/* Nothing, or a few equal values, or infinity: no step is made of them that is worse. */
static void strange_blocks_lose_no_more(void **state)
{
    float x[COLS] = { 0 }, y[COLS];
    uint8_t block[64];

    (void)state;
    assert_true(rg_lattice_step(x, COLS, 8) == 0.0f);
    for (int i = 0; i < COLS; i++)
        x[i] = i % 3 == 0 ? 0.25f : i % 3 == 1 ? -0.25f : 0.0f;
    rg_format_of(RG_Q4_0)->encode(x, 1, block);
    rg_format_of(RG_Q4_0)->decode(block, 1, y);
    assert_memory_equal(x, y, sizeof x);
    x[3] = INFINITY;
    assert_true(rg_lattice_step(x, COLS, 8) == 0.0f);
    x[3] = NAN;
    rg_format_of(RG_Q4_0)->encode(x, 1, block);
}

/* Codes of the Hugging Face forms too. */
static void other_forms_find_the_grid(void **state)
{
    rg_coding coding = { .kind = RG_CODE_INT, .bits = 4, .sym = true, .group = COLS, .scale_type = RG_F16 };
    rg_coded coded;
    rg_rng rng = { .seed = 9 };
    rg_error err = { 0 };

    (void)state;
    assert_ok(rg_coding_init(&coding, &err), err);
    assert_ok(rg_coded_init(&coded, &coding, 1, COLS, &err), err);
    for (int b = 0; b < BLOCKS; b++) {
        float x[COLS];
        int code[COLS];

        make_block(&rng, -6, 7, true, x, code);
        rg_round_row(&coded, &coding, 0, x);
        for (int i = 0; i < COLS; i++) /* a block may be on a coarser grid, too: its values count */
            if (!(fabsf(coded.scale[0] * (float)(coded.q[i] - 8) - x[i]) <= fabsf(x[i]) * 0x1p-7f))
                fail_msg("block %d: code %d for %d, scale %g", b, coded.q[i] - 8, code[i], (double)coded.scale[0]);
    }
    rg_coded_fini(&coded);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_of_a_grid_are_found),
        cmocka_unit_test(ordinary_blocks_stay_as_they_were),
        cmocka_unit_test(strange_blocks_lose_no_more),
        cmocka_unit_test(other_forms_find_the_grid),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
