/* Products that skip columns, against those that TEAL's authors compute: a row alone, which skips, and all rows together, on
 * every instruction set. */
#include "ops/world.h"

#include <jansson.h>
#include <stdio.h>

#include "base/file.h"
#include "support/model.h"

enum { ROWS = 128, COLS = 64, OUT = 24 };

typedef struct job {
    const float *x;
    const rg_weight *w;
    float *y;
} job;

static void text(rg_fwd *f, void *arg)
{
    const job *j = arg;
    const int n = f->batch->n_rows;
    rg_act *x = act_of(f, "x", j->x, n, COLS), *y = rg_act_rows(f, "y", n, OUT);

    rg_linear(f, y, x, j->w, NULL);
    act_out(f, y, j->y);
}

/* The same bits for rows alone and together, near the golden's. */
static void compare(const rg_cpu *cpu, const rg_weight *w, const float *x, const float *want, const char *what)
{
    static float one[ROWS * OUT], all[ROWS * OUT];
    const rg_reader_sizes sizes = { .max_rows = ROWS, .max_cols = COLS };
    rg_batch b = { .n_rows = ROWS };
    world u;

    world_init(&u, cpu, 2, &sizes);
    u.exact = true;
    world_step(&u, &b, text, &(job){ x, w, all });
    b.n_rows = 1;
    for (int r = 0; r < ROWS; r++)
        world_step(&u, &b, text, &(job){ x + r * COLS, w, one + r * OUT });
    world_fini(&u);
    assert_memory_equal(one, all, sizeof one);
    for (int i = 0; i < ROWS * OUT; i++)
        if (!(fabsf(all[i] - want[i]) <= 1e-5f * (1 + fabsf(want[i]))))
            fail_msg("%s, %s: output %d is %g, want %g", cpu->isa, what, i, (double)all[i], (double)want[i]);
}

static void run_case(const rg_checkpoint *c, const json_t *j)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    char key[64];
    rg_error err;
    rg_packed packed;
    size_t n;

    snprintf(key, sizeof key, "%s.W", name);
    float *w = test_floats(c, key, &n);
    assert_int_equal(n, OUT * COLS);
    snprintf(key, sizeof key, "%s.x", name);
    const rg_tensor *t = rg_checkpoint_find(c, key);
    static uint16_t raw[ROWS * COLS];
    static float x[ROWS * COLS];
    assert_ok(rg_tensor_read(c, t, 0, raw, sizeof raw, &err), err);
    rg_format_of(t->type)->decode(raw, ROWS * COLS, x);
    snprintf(key, sizeof key, "%s.s%d.out", name, (int)(100 * json_number_value(json_object_get(j, "sparsity")) + 0.5));
    float *want = test_floats(c, key, &n);
    assert_int_equal(n, ROWS * OUT);
    assert_ok(rg_packed_init_wide(&packed, RG_F32, 1, OUT, COLS, &err), err);
    for (int r = 0; r < OUT; r++)
        rg_pack_row(&packed, 0, r, w + r * COLS);
    const rg_weight weight = { .name = "w", .type = RG_F32, .n_mats = 1, .rows = OUT, .cols = COLS, .placed = &packed.placed,
                               .wide = true, .threshold = (float)json_number_value(json_object_get(j, "threshold")) };
    for (int i = 0; world_cpu(i); i++)
        compare(world_cpu(i), &weight, x, want, key);
    rg_packed_fini(&packed);
    free(w);
    free(want);
}

static void products_are_those_of_the_authors(void **state)
{
    rg_error err = { 0 };
    size_t n;
    rg_checkpoint *c = rg_checkpoint_open(test_data("shrink/teal/cases.safetensors"), RG_CKPT_DEFAULT, &err);
    char *read = rg_file_slurp(test_data("shrink/teal/thresholds.json"), 1 << 16, &n, &err);
    json_t *cases = json_loads(read, 0, NULL);

    (void)state;
    assert_int_equal(json_array_size(cases), 9);
    for (size_t i = 0; i < 9; i++)
        run_case(c, json_array_get(cases, i));
    json_decref(cases);
    rg_free(read);
    rg_checkpoint_close(c);
}

/* Products that are too small for f32 are -0, and so are their sums; which columns are left out after them must not show:
 * every output is +0. */
static void a_zero_has_no_sign(void **state)
{
    static const float want[ROWS * OUT];
    static float x[ROWS * COLS], w[COLS];
    rg_error err;
    rg_packed packed;

    (void)state;
    for (int k = 0; k < COLS; k++)
        w[k] = -1e-30f;
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < 4; k++) /* one in each of a product's sums */
            x[r * COLS + k] = 1e-30f;
    assert_ok(rg_packed_init_wide(&packed, RG_F32, 1, OUT, COLS, &err), err);
    for (int r = 0; r < OUT; r++)
        rg_pack_row(&packed, 0, r, w);
    const rg_weight weight = { .name = "w", .type = RG_F32, .n_mats = 1, .rows = OUT, .cols = COLS, .placed = &packed.placed,
                               .wide = true, .threshold = 1e-35f };
    for (int i = 0; world_cpu(i); i++)
        compare(world_cpu(i), &weight, x, want, "products that are too small");
    rg_packed_fini(&packed);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(products_are_those_of_the_authors),
                                        cmocka_unit_test(a_zero_has_no_sign) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
