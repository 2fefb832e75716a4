/* Encoders with importance against llama.cpp's: their weighted error is no larger. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

enum { ROWS = 8, COLS = 512 };

/* Root of the mean of all values' square errors, times `by` (NULL: 1). */
static double error_of(rg_type type, const float *x, const float *importance, const float *by)
{
    const rg_format *f = rg_format_of(type);
    uint8_t blocks[4 * COLS];
    float got[COLS];
    double sum = 0;

    for (int r = 0; r < ROWS; r++) {
        rg_encode_weighted(type, x + r * COLS, importance, COLS / f->block_len, blocks);
        f->decode(blocks, COLS / f->block_len, got);
        for (int k = 0; k < COLS; k++) {
            double d = (double)got[k] - (double)x[r * COLS + k];
            sum += (by ? (double)by[k] : 1) * d * d;
        }
    }
    return sqrt(sum / (ROWS * COLS));
}

static void errors_are_no_larger(void **state)
{
    rg_error err = { 0 };
    size_t n;
    rg_checkpoint *c = rg_checkpoint_open(test_data("shrink/formats/encode.safetensors"), RG_CKPT_DEFAULT, &err);
    char *text = rg_file_slurp(test_data("shrink/formats/encode.json"), 1 << 20, &n, &err);
    json_t *cases = json_loads(text, 0, NULL), *one;
    float *x = test_floats(c, "src", &n), *importance = test_floats(c, "importance", &n);
    const char *name;
    int bad = 0;

    (void)state;
    assert_true(json_object_size(cases) > 30);
    json_object_foreach(cases, name, one)
    {
        char type_name[32];
        rg_type type;
        const char *dot = strchr(name, '.');
        snprintf(type_name, sizeof type_name, "%.*s", dot ? (int)(dot - name) : 31, name);
        assert_true(rg_type_by_name(type_name, &type));
        double want = json_number_value(json_object_get(one, dot ? "weighted_rmse" : "rmse"));
        double got = error_of(type, x, dot ? importance : NULL, dot ? importance : NULL);
        if (got > want * 1.000001) {
            print_message("    %s: %.6f, llama.cpp's %.6f\n", name, got, want);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
    json_decref(cases);
    rg_free(text);
    free(x);
    free(importance);
    rg_checkpoint_close(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(errors_are_no_larger) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
