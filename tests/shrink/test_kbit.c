/* Rounding to codes against what other programs store: bitsandbytes, compressed-tensors, SmoothQuant. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shrink/kbit.h"
#include "shrink/smoothquant.h"

/* A tensor as f32, whatever its type; its rows and columns. */
static float *floats(const rg_checkpoint *c, const char *name, const char *end, int64_t *rows, int64_t *cols)
{
    char whole[96];
    rg_error err = { 0 };

    snprintf(whole, sizeof whole, "%s%s", name, end);
    const rg_tensor *t = rg_checkpoint_find(c, whole);
    if (!t)
        fail_msg("no %s", whole);
    void *raw = malloc(t->bytes);
    float *to = malloc((size_t)rg_tensor_count(t) * sizeof *to);
    assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
    rg_format_of(t->type)->decode(raw, rg_tensor_count(t), to);
    free(raw);
    *rows = rg_tensor_rows(t);
    *cols = rg_tensor_cols(t);
    return to;
}

static rg_coded code(const rg_coding *c, const float *w, int64_t rows, int64_t cols)
{
    rg_coding full = *c;
    rg_coded to;
    rg_error err = { 0 };

    assert_ok(rg_coding_init(&full, &err) && rg_coded_init(&to, &full, rows, cols, &err), err);
    rg_round_to_nearest(&to, &full, w);
    return to;
}

static rg_checkpoint *open_golden(const char *name)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data(name), RG_CKPT_DEFAULT, &err);

    assert_ok(c, err);
    return c;
}

/* The goldens' `weight` and `SCB` are called codes and row_most here, so that they are read as they are. */
static void int8_is_that_of_bitsandbytes(void **state)
{
    static const char *const names[] = { "few", "many", "none", "one_row" };
    const rg_coding c = { .kind = RG_CODE_INT, .bits = 8, .sym = true, .narrow = true, .by_most = true };
    rg_checkpoint *file = open_golden("shrink/int8/cases.safetensors");

    (void)state;
    for (size_t i = 0; i < RG_LEN(names); i++) {
        int64_t rows, cols, n, one;
        float *w = floats(file, names[i], ".W", &rows, &cols), *scb = floats(file, names[i], ".row_most", &one, &n);
        char name[64];
        rg_error err = { 0 };
        rg_coded got = code(&c, w, rows, cols);
        int off = 0;
        snprintf(name, sizeof name, "%s.codes", names[i]);
        const rg_tensor *t = rg_checkpoint_find(file, name);
        int8_t *q = malloc(t->bytes);
        assert_ok(rg_tensor_read(file, t, 0, q, t->bytes, &err), err);
        for (int64_t r = 0; r < rows; r++) {
            assert_true(got.scale[r] == scb[r]);
            for (int64_t k = 0; k < cols; k++) {
                const int d = (int)got.q[r * cols + k] - 128 - q[r * cols + k];
                assert_true(abs(d) <= 1); /* 1: it lies half way between two codes */
                off += d != 0;
            }
        }
        assert_true(off <= rows * cols / 500);
        rg_coded_fini(&got);
        free(w);
        free(scb);
        free(q);
    }
    rg_checkpoint_close(file);
}

static void groups_are_those_of_compressed_tensors(void **state)
{
    static const struct {
        const char *name;
        rg_coding c;
    } cases[] = {
        { "int3-g32", { .bits = 3, .sym = true, .group = 32, .scale_type = RG_BF16 } },
        { "int4-g128", { .bits = 4, .sym = true, .group = 128, .scale_type = RG_BF16 } },
        { "int4-g128-asym", { .bits = 4, .group = 128, .scale_type = RG_BF16 } },
        { "int4-asym-odd-rows", { .bits = 4, .group = 32, .scale_type = RG_BF16 } },
        { "int8-channel-asym", { .bits = 8, .scale_type = RG_BF16 } },
    };
    rg_checkpoint *file = open_golden("shrink/compressed/layers.safetensors");

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        int64_t rows, cols;
        float *w = floats(file, cases[i].name, ".source", &rows, &cols);
        float *want = floats(file, cases[i].name, ".f32", &rows, &cols), *row = malloc((size_t)cols * sizeof *row);
        rg_coded got = code(&cases[i].c, w, rows, cols);
        double ours = 0, theirs = 0;
        int off = 0;
        for (int64_t r = 0; r < rows; r++) {
            rg_coded_row(&got, r, row);
            for (int64_t k = 0; k < cols; k++) {
                off += fabsf(row[k] - want[r * cols + k]) > 1e-5f * fabsf(want[r * cols + k]);
                ours += pow((double)row[k] - (double)w[r * cols + k], 2);
                theirs += pow((double)want[r * cols + k] - (double)w[r * cols + k], 2);
            }
        }
        print_message("    %s: %d of %d values differ, error %.4g, theirs %.4g\n", cases[i].name, off,
                      (int)(rows * cols), ours, theirs);
        assert_true(ours <= 1.02 * theirs && (!cases[i].c.sym || off <= rows * cols / 50));
        rg_coded_fini(&got);
        free(w);
        free(want);
        free(row);
    }
    rg_checkpoint_close(file);
}

/* ---- SmoothQuant ------------------------------------------------------------------------------------------------- */

static void close_to(const float *got, const float *want, int64_t n, double share, const char *what)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)want[i]));
    for (int64_t i = 0; i < n; i++)
        if (fabs((double)got[i] - (double)want[i]) > share * most)
            fail_msg("%s: value %d is %g, want %g", what, (int)i, (double)got[i], (double)want[i]);
}

/* x in 8 bits per row times w in 8 bits per row. */
static float *product(const float *x, int64_t n, const float *w, int64_t rows, int64_t cols)
{
    const rg_coding c = { .kind = RG_CODE_INT, .bits = 8, .sym = true, .narrow = true };
    rg_coded qx = code(&c, x, n, cols), qw = code(&c, w, rows, cols);
    float *y = malloc((size_t)(n * rows) * sizeof *y);

    for (int64_t i = 0; i < n; i++)
        for (int64_t r = 0; r < rows; r++) {
            int64_t sum = 0;
            for (int64_t k = 0; k < cols; k++)
                sum += ((int64_t)qx.q[i * cols + k] - 128) * ((int64_t)qw.q[r * cols + k] - 128);
            y[i * rows + r] = (float)((double)sum * (double)qx.scale[i] * (double)qw.scale[r]);
        }
    rg_coded_fini(&qx);
    rg_coded_fini(&qw);
    return y;
}

static void smoothing_is_that_of_the_authors(void **state)
{
    static const struct {
        const char *name;
        float alpha;
    } cases[] = { { "a0.5", 0.5f }, { "a0.8", 0.8f } };
    rg_checkpoint *file = open_golden("shrink/smoothquant/cases.safetensors");
    int64_t rows[3], cols, n, one;
    float *w[3], *act = floats(file, "act_max", "", &one, &n), *x = floats(file, "X", "", &n, &cols);
    float most[64] = { 0 }, scale[64];

    (void)state;
    for (int i = 0; i < 3; i++) {
        w[i] = floats(file, (const char *[]){ "W0", "W1", "W2" }[i], "", &rows[i], &cols);
        for (int64_t k = 0; k < rows[i] * cols; k++)
            most[k % cols] = fmaxf(most[k % cols], fabsf(w[i][k]));
    }
    for (size_t c = 0; c < RG_LEN(cases); c++) {
        int64_t r, k;
        float *want = floats(file, cases[c].name, ".scales", &r, &k), *folded = floats(file, cases[c].name, ".W0", &r, &k);
        float *out = floats(file, cases[c].name, ".W8A8.per_token", &r, &k);
        float *own = malloc((size_t)(rows[0] * cols) * sizeof *own), *xs = malloc((size_t)(n * cols) * sizeof *xs);
        rg_smooth_scales(act, most, cols, cases[c].alpha, scale);
        close_to(scale, want, cols, 1e-5, "scales");
        for (int64_t i = 0; i < rows[0] * cols; i++)
            own[i] = w[0][i] * scale[i % cols];
        close_to(own, folded, rows[0] * cols, 1e-5, "weights");
        for (int64_t i = 0; i < n * cols; i++)
            xs[i] = x[i] / scale[i % cols];
        float *y = product(xs, n, own, rows[0], cols);
        close_to(y, out, n * rows[0], 0.01, "product");
        free(want);
        free(folded);
        free(out);
        free(own);
        free(xs);
        free(y);
    }
    for (int i = 0; i < 3; i++)
        free(w[i]);
    free(act);
    free(x);
    rg_checkpoint_close(file);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(int8_is_that_of_bitsandbytes),
                                        cmocka_unit_test(groups_are_those_of_compressed_tensors),
                                        cmocka_unit_test(smoothing_is_that_of_the_authors) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
