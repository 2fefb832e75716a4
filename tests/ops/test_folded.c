/* test_folded.c -- a product with a folded matrix has the bits of one with the same matrix unfolded: any rows, any number
 * of panels, every recipe. */
#include "support/test.h"

#include <string.h>

#include "base/mem.h"
#include "ops/cpu/reader.h"

enum { COLS = 256, ROWS = 16 * (RG_UNFOLDED + 3), MOST = 13, N_BLOCKS = COLS / 32 };

/* Any bytes are blocks of these types. */
static void pack_bytes(rg_rng *rng, rg_type type, rg_packed *p)
{
    const rg_format *f = rg_format_of(type);
    uint8_t row[COLS / 256 * 110];
    rg_error err;

    assert_ok(rg_packed_init(p, type, 1, ROWS, COLS, &err), err);
    for (int i = 0; i < ROWS; i++) {
        for (size_t k = 0; k < sizeof row; k++)
            row[k] = (uint8_t)rg_rng_below(rng, 256);
        for (int b = 0; b < COLS / 256; b++) { /* d, or a part of it, such that it is a number */
            row[b * f->block_bytes + 1] &= 0x3b;
            row[b * f->block_bytes + f->block_bytes - 1] &= type == RG_IQ1_M || type == RG_TQ1_0 ? 0x3b : 0xff;
        }
        rg_pack_row(p, 0, i, row);
    }
}

/* Rows of x from the second on; y has ROWS values of each. */
static void multiply(const rg_cpu *cpu, rg_recipe recipe, const rg_packed *w, const rg_operand *x, int m, float *y)
{
    uint8_t *room = rg_alloc(rg_cpu_room_bytes(COLS));

    rg_cpu_product(cpu, recipe, w, x, 1,
                   (rg_product){ .panel = w->data, .n_panels = ROWS / RG_PANEL, .m = m, .y = y, .ldy = ROWS, .room = room });
    rg_free(room);
}

static void check(const rg_cpu *cpu, rg_type type, rg_recipe recipe)
{
    static const int rows[] = { 1, 2, MOST - 1 };
    static float x[MOST * COLS], got[MOST * ROWS], want[MOST * ROWS];
    const size_t ldr = rg_round_stride(COLS);
    rg_rounded *rounded = rg_array(MOST * ldr, sizeof *rounded);
    rg_rng rng = { .seed = test_seed };
    rg_packed folded, unfolded = { 0 };

    for (size_t i = 0; i < RG_LEN(x); i++) /* with outliers */
        x[i] = rg_rng_normal(&rng) * (i % 97 ? 1.0f : 9.0f);
    for (size_t i = 0; i < MOST && recipe != RG_EXACT; i++)
        rg_cpu_round_row(cpu, recipe, x + i * COLS, COLS, rounded + i * ldr);
    pack_bytes(&rng, type, &folded);
    unfolded = (rg_packed){ .layout = rg_layout_unfolded(folded.layout), .placed.cols = COLS };
    unfolded.panel_bytes = rg_unfolded_bytes(folded.layout, COLS);
    unfolded.data = rg_zalloc(ROWS / RG_PANEL * unfolded.panel_bytes);
    for (size_t i = 0; i < ROWS / RG_PANEL; i++)
        rg_unfold(folded.layout, rg_panel_at(&folded, 0, (int64_t)i), COLS, unfolded.data + i * unfolded.panel_bytes);
    const rg_operand in = { .x = x, .r = rounded, .ldx = COLS, .ldr = ldr, .n_blocks = N_BLOCKS };

    for (size_t i = 0; i < RG_LEN(rows); i++) {
        memset(got, 1, sizeof got);
        memset(want, 1, sizeof want);
        multiply(cpu, recipe, &unfolded, &in, rows[i], want);
        multiply(cpu, recipe, &folded, &in, rows[i], got);
        assert_memory_equal(got, want, sizeof got);
    }
    assert_true(want[0] != want[ROWS] && want[0] != want[ROWS - 1]);
    rg_free(unfolded.data);
    rg_free(rounded);
    rg_packed_fini(&folded);
}

static void products_are_those_of_the_unfolded(void **state)
{
    static const rg_recipe recipes[] = { RG_EXACT, RG_INT8, RG_LLM_INT8 };

    (void)state;
    for (int i = 0; rg_cpu_nth(i); i++)
        for (int type = 0; type < RG_TYPE_COUNT; type++)
            for (size_t r = 0; rg_layout_is_folded(rg_format_of((rg_type)type)->layout) && r < RG_LEN(recipes); r++)
                check(rg_cpu_nth(i), (rg_type)type, recipes[r]);
}

/* What lies in memory is what lies in the file, but for a table in each panel. */
static void they_are_as_small_as_the_file(void **state)
{
    int n = 0;

    (void)state;
    for (int type = 0; type < RG_TYPE_COUNT; type++) {
        const rg_format *f = rg_format_of((rg_type)type);
        uint64_t file;
        rg_packed p;
        rg_error err;

        if (!rg_layout_is_folded(f->layout))
            continue;
        assert_ok(rg_packed_shape(&p, (rg_type)type, 1, 2048, 2048, &err), err);
        assert_true(rg_row_bytes((rg_type)type, 2048 * 2048, &file));
        assert_true(p.placed.bytes >= file && (double)p.placed.bytes <= 1.03 * (double)file);
        n++;
    }
    assert_int_equal(n, 8);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_the_unfolded),
        cmocka_unit_test(they_are_as_small_as_the_file),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("folded", tests, NULL, NULL);
}
