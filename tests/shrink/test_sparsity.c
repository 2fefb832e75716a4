/* Thresholds against those of the authors' histogram, and calibrated ones of a model. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "shrink/sparsity.h"

/* x as f32; its products of the columns above the threshold. */
static void check_case(const rg_checkpoint *c, const json_t *j)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    const double sparsity = json_number_value(json_object_get(j, "sparsity"));
    const double want = json_number_value(json_object_get(j, "threshold"));
    char key[48];
    rg_error err = { 0 };
    size_t n, below = 0, first = 0;

    snprintf(key, sizeof key, "%s.x", name);
    const rg_tensor *t = rg_checkpoint_find(c, key);
    assert_non_null(t);
    uint16_t *raw = malloc(t->bytes);
    n = (size_t)rg_tensor_count(t);
    float *x = malloc(n * sizeof *x), *sorted = malloc(n * sizeof *x);
    assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
    rg_format_of(t->type)->decode(raw, (int64_t)n, x);
    memcpy(sorted, x, n * sizeof *x);
    const double got = (double)rg_sparsity_threshold(sorted, n, sparsity);
    if (fabs(got - want) > 5e-3 * want) /* values next to each other lie that far apart */
        fail_msg("%s at %g: %g, want %g", name, sparsity, got, want);
    for (size_t i = 0; i < n; i++) {
        below += fabs((double)x[i]) <= want;
        first += i < (size_t)t->shape[1] && fabs((double)x[i]) <= want;
    }
    assert_true(fabs((double)below / (double)n - json_number_value(json_object_get(j, "realized"))) < 1e-6);
    assert_int_equal(first, json_integer_value(json_object_get(j, "zeros_of_first_row")));
    free(raw);
    free(x);
    free(sorted);
}

static void thresholds_are_those_of_the_authors(void **state)
{
    rg_error err = { 0 };
    size_t n;
    rg_checkpoint *c = rg_checkpoint_open(test_data("shrink/teal/cases.safetensors"), RG_CKPT_DEFAULT, &err);
    char *text = rg_file_slurp(test_data("shrink/teal/thresholds.json"), 1 << 16, &n, &err);
    json_t *cases = json_loads(text, 0, NULL);

    (void)state;
    assert_true(json_array_size(cases) == 9);
    for (size_t i = 0; i < 9; i++)
        check_case(c, json_array_get(cases, i));
    json_decref(cases);
    rg_free(text);
    rg_checkpoint_close(c);
}

static void a_model_is_calibrated(void **state)
{
    int32_t ids[2 * 32];
    rg_error err = { 0 };
    rg_buf json;
    double realized;
    rg_checkpoint *c = rg_checkpoint_open(test_data("mixtral"), RG_CKPT_DEFAULT, &err);
    const rg_backend *best = test_backend(0);

    (void)state;
    assert_ok(c, err);
    for (int i = 0; i < 64; i++)
        ids[i] = i * 29 % 300;
    for (int i = 0; test_backend(i); i++)
        best = test_backend(i);
    rg_stage *s = rg_stage_open(c, &(rg_stage_options){ best, 2, ids, 2, 32, false }, &err);
    assert_ok(s, err);
    rg_buf_init(&json, 1 << 20);
    assert_ok(rg_sparsity_calibrate(s, 2, 32, 0.5, &json, &realized, &err), err);
    json_t *v = json_loads(json.data, 0, NULL);
    assert_true(json_object_size(json_object_get(v, "thresholds")) > 10);
    assert_true(realized > 0.4 && realized < 0.6);
    json_decref(v);
    rg_buf_fini(&json);
    rg_stage_close(s);
    rg_checkpoint_close(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(thresholds_are_those_of_the_authors),
                                        cmocka_unit_test(a_model_is_calibrated) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
