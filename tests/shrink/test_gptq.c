/* GPTQ against codes that its authors' program made: every width, group and order. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "shrink/gptq.h"
#include "shrink/linear.h"

/* A tensor of bytes. */
static uint8_t *read_bytes(rg_checkpoint *c, const char *name, const char *end, size_t *n)
{
    char whole[96];
    rg_error err = { 0 };

    snprintf(whole, sizeof whole, "%s%s", name, end);
    const rg_tensor *t = rg_checkpoint_find(c, whole);
    assert_true(t && t->type == RG_U8);
    uint8_t *to = malloc(*n = (size_t)t->bytes);
    assert_ok(rg_tensor_read(c, t, 0, to, *n, &err), err);
    return to;
}

typedef struct layer {
    rg_checkpoint *file;
    float *w, *h;
    double *gram;
    int64_t rows, cols;
} layer;

static float *read_one(rg_checkpoint *c, const char *name, const char *end, size_t *n)
{
    char whole[96];

    snprintf(whole, sizeof whole, "%s%s", name, end);
    return test_floats(c, whole, n);
}

static void layer_open(layer *l, rg_checkpoint *c, char name)
{
    char text[2] = { name, 0 };
    size_t n_w, n_h;

    *l = (layer){ .file = c, .w = read_one(c, text, ".W", &n_w), .h = read_one(c, text, ".H", &n_h) };
    l->cols = (int64_t)lround(sqrt((double)n_h));
    l->rows = (int64_t)n_w / l->cols;
    l->gram = malloc(n_h * sizeof *l->gram);
    for (size_t i = 0; i < n_h; i++)
        l->gram[i] = (double)l->h[i];
}

static void layer_close(layer *l)
{
    free(l->w);
    free(l->h);
    free(l->gram);
}

static double error_of(const layer *l, const rg_coded *c, rg_pool *pool)
{
    float *lost = malloc((size_t)(l->rows * l->cols) * sizeof *lost);

    for (int64_t r = 0; r < l->rows; r++) {
        rg_coded_row(c, r, lost + r * l->cols);
        for (int64_t k = 0; k < l->cols; k++)
            lost[r * l->cols + k] -= l->w[r * l->cols + k];
    }
    double sum;
    assert_true(rg_quadratic(&sum, lost, l->rows, l->gram, l->cols, pool));
    free(lost);
    return sum;
}

/* True if the authors' range is half of what it should be: sym, and no weight of the row is below zero. */
static bool is_halved(const layer *l, int64_t r, bool sym)
{
    for (int64_t k = 0; k < l->cols; k++)
        if (l->w[r * l->cols + k] < 0)
            return false;
    return sym;
}

static void compare(const layer *l, const char *name, const rg_coded *got, bool sym, int n_differing)
{
    size_t n, n_codes;
    float *scale = read_one(l->file, name, ".scale", &n);
    uint8_t *zero = read_bytes(l->file, name, ".zero", &n), *q = read_bytes(l->file, name, ".q", &n_codes);
    char order_name[96];
    int off = 0;

    snprintf(order_name, sizeof order_name, "%s.g_idx", name);
    int32_t *order = test_ints(l->file, order_name, &n);

    for (int64_t r = 0; r < l->rows; r++) {
        if (is_halved(l, r, sym))
            continue;
        for (int64_t k = 0; k < l->cols; k++)
            off += got->q[r * l->cols + k] != q[r * l->cols + k];
        for (int64_t g = 0; g < got->n_groups && !n_differing; g++) {
            const int64_t at = r * got->n_groups + g;
            if (fabs((double)got->scale[at] - (double)scale[at]) > 1e-3 * fabs((double)scale[at]) ||
                got->zero[at] != (float)zero[at])
                fail_msg("%s: row %d, group %d: scale %g, zero %g, want %g, %g", name, (int)r, (int)g,
                         (double)got->scale[at], (double)got->zero[at], (double)scale[at], (double)zero[at]);
        }
    }
    for (int64_t k = 0; order && k < l->cols; k++)
        assert_int_equal(order[k], rg_group_of(got, k));
    if (off > n_differing + (int)n_codes * 3 / 1000)
        fail_msg("%s: %d of %zu codes differ", name, off, n_codes);
    free(scale);
    free(zero);
    free(q);
    free(order);
}

static void run_case(layer layers[3], const json_t *j, rg_pool *pool)
{
    const char *name = json_string_value(json_object_get(j, "case"));
    const layer *l = &layers[name[0] - 'a'];
    const int64_t group = json_integer_value(json_object_get(j, "group"));
    rg_coding c = { .bits = (int)json_integer_value(json_object_get(j, "bits")), .group = group > 0 ? group : 0,
                    .sym = json_is_true(json_object_get(j, "sym")) };
    rg_gptq_options o = { json_is_true(json_object_get(j, "act_order")),
                          json_is_true(json_object_get(j, "static_groups")), 0 };
    double want = json_number_value(json_object_get(j, "error")), damped;
    rg_error err = { 0 };
    rg_coded coded;

    assert_ok(rg_coding_init(&c, &err) && rg_coded_init(&coded, &c, l->rows, l->cols, &err), err);
    assert_ok(rg_gptq(&coded, &c, l->w, l->gram, &o, pool, &damped, &err), err);
    assert_true(damped == 0.01);
    compare(l, name, &coded, c.sym,
            (int)json_integer_value(json_object_get(j, "codes_differing_in_float64")) * 2);
    double error = error_of(l, &coded, pool);
    if (error > 1.025 * want || (error < want / 1.025 && !(c.sym && name[0] == 'c')))
        fail_msg("%s: error %g, want %g", name, error, want);
    rg_coded_fini(&coded);
}

static void codes_are_those_of_the_authors(void **state)
{
    rg_error err = { 0 };
    size_t n;
    rg_checkpoint *c = rg_checkpoint_open(test_data("shrink/gptq/cases.safetensors"), RG_CKPT_DEFAULT, &err);
    char *text = rg_file_slurp(test_data("shrink/gptq/cases.json"), 1 << 20, &n, &err);
    json_t *cases = json_loads(text, 0, NULL);
    rg_pool *pool = rg_pool_new(2, &err);
    layer layers[3];

    (void)state;
    assert_ok(c && text && pool, err);
    assert_true(json_array_size(cases) > 50);
    for (int i = 0; i < 3; i++)
        layer_open(&layers[i], c, (char)('a' + i));
    for (size_t i = 0; i < json_array_size(cases); i++)
        run_case(layers, json_array_get(cases, i), pool);
    for (int i = 0; i < 3; i++)
        layer_close(&layers[i]);
    json_decref(cases);
    rg_free(text);
    rg_pool_free(pool);
    rg_checkpoint_close(c);
}

/* The sum of outer products of the calibration rows is the authors' matrix, up to its factor; on one thread as on
 * two. */
static void gram_is_that_of_the_rows(void **state)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data("shrink/gptq/cases.safetensors"), RG_CKPT_DEFAULT, &err);
    size_t n, n_h;
    float *x = test_floats(c, "c.X", &n), *h = test_floats(c, "c.H", &n_h);
    double *gram[2];

    (void)state;
    for (int t = 0; t < 2; t++) {
        rg_pool *pool = rg_pool_new(t + 1, &err);
        gram[t] = calloc(n_h, sizeof **gram);
        rg_gram_add(gram[t], x, 100, 160, pool);
        rg_gram_add(gram[t], x + 100 * 160, (int64_t)n / 160 - 100, 160, pool);
        rg_gram_mirror(gram[t], 160);
        rg_pool_free(pool);
    }
    assert_memory_equal(gram[0], gram[1], n_h * sizeof **gram);
    for (size_t i = 0; i < n_h; i++) /* 2 / (four sequences) */
        if (fabs(gram[0][i] / 2 - (double)h[i]) > 1e-4 * (1 + fabs((double)h[i])))
            fail_msg("at %zu: %g, want %g", i, gram[0][i] / 2, (double)h[i]);
    free(gram[0]);
    free(gram[1]);
    free(x);
    free(h);
    rg_checkpoint_close(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(codes_are_those_of_the_authors),
                                        cmocka_unit_test(gram_is_that_of_the_rows) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
