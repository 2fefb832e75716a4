/* Medusa heads: loss and gradients against another program's in float64 (golden/train/medusa.safetensors), and heads that
 * learn and load. */
#include "trained.h"
#include "values.h"

#include <math.h>

#include "base/mem.h"
#include "train/medusa.h"
#include "train/training.h"

enum { ROWS = 2, LENGTH = 32, HEADS = 4 };

static const char *golden(void)
{
    return test_data("train/medusa.safetensors");
}

static void same(const char *what, const float *got, const char *name, double tolerance)
{
    size_t n;
    float *want = values(golden(), name, &n);
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance * most))
            fail_msg("%s, value %zu: %.9g, not %.9g", what, i, (double)got[i], (double)want[i]);
    rg_free(want);
}

static void loss_and_gradients_as_the_golden(void **state)
{
    static const char *const parts[] = { "0.linear.weight", "0.linear.bias", "1.weight" };
    size_t n;
    float *of_ids = values(golden(), "input_ids", &n), *want = values(golden(), "loss.heads", &n), *w, *g;
    int32_t ids[ROWS * LENGTH];
    const rg_texts texts = { .rows = ROWS, .length = LENGTH, .ids = ids };
    char heads[512], name[64];
    double loss;
    trained t;
    rg_error err = { 0 };

    (void)state;
    for (int i = 0; i < ROWS * LENGTH; i++)
        ids[i] = (int32_t)of_ids[i];
    snprintf(heads, sizeof heads, "%s", test_data("speculation/medusa/medusa_lm_head.safetensors"));
    trained_open(&t, test_data("llama"), 2, 0);
    rg_medusa *d = rg_medusa_new(t.masters, HEADS, 0.8, &err);
    assert_ok(d, err);
    for (int k = 0; k < HEADS; k++)
        for (size_t p = 0; p < RG_LEN(parts); p++) {
            snprintf(name, sizeof name, "%d.%s", k, parts[p]);
            float *from = values(heads, name, &n);
            assert_true(rg_medusa_tensor(d, k, parts[p], &w, &g, &n));
            memcpy(w, from, n * sizeof *w);
            rg_free(from);
        }
    const rg_objective o = rg_medusa_objective(d);
    assert_ok(o.begin(o.arg, t.passes, &texts, 1, 0, &err), err);
    assert_ok(o.compute(o.arg, t.passes, &texts, 0, false, &loss, &err), err);
    for (int k = 0; k < HEADS; k++)
        assert_true(fabs(rg_medusa_losses(d)[k] - (double)want[k]) <= 1e-5 * (double)want[k]);
    float *sum = values(golden(), "loss", &n);
    assert_true(fabs(loss - (double)sum[0]) <= 1e-5 * loss);
    for (int k = 0; k < HEADS - 1; k++)
        for (size_t p = 0; p < RG_LEN(parts); p++) {
            snprintf(name, sizeof name, "grad.%d.%s", k, parts[p]);
            assert_true(rg_medusa_tensor(d, k, parts[p], &w, &g, &n));
            same(name, g, name, 1e-4);
        }
    rg_free(sum);
    rg_free(of_ids);
    rg_free(want);
    rg_medusa_free(d);
    trained_close(&t);
}

/* Heads begin as the model's own; steps make the loss smaller, documents do not see each other's ids, and the model stays
 * as it was. */
static void heads_learn(void **state)
{
    char file[512];
    const char *data[] = { file };
    rg_train_settings s = rg_train_settings_default();
    trained t;
    rg_training_step step;
    double first = 0;
    rg_error err = { 0 };

    (void)state;
    snprintf(file, sizeof file, "%s.jsonl", test_scratch("repeated"));
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    for (int i = 0; i < 20; i++)
        fprintf(f, "{\"ids\": [%d, 5, 9, 14, 20, 27, 35, 5, 9, 14, 20, 27, 35, 5, 9, 14]}\n", i);
    fclose(f);
    s.steps = 12;
    s.warmup = 2;
    s.rows = 2;
    s.length = LENGTH;
    s.peak = 5e-3;
    s.weight_decay = 0;
    trained_open(&t, test_data("llama"), 2, 0);
    rg_medusa *d = rg_medusa_new(t.masters, 3, 1, &err);
    assert_ok(d, err);
    const rg_objective o = rg_medusa_objective(d);
    rg_feed *feed = rg_feed_open(&(rg_feed_options){ .files = data, .n_files = 1, .vocab_size = 320 }, &s, &err);
    assert_ok(feed, err);
    rg_training *run = rg_training_new(&(rg_training_options){ .masters = t.masters,
                                                               .feed = feed,
                                                               .objective = &o,
                                                               .settings = &s,
                                                               .backend = trained_backend(),
                                                               .pool = t.pool,
                                                               .n_threads = 2 },
                                       &err);
    assert_ok(run, err);
    const float was = rg_masters_at(t.masters, 0)->w[7];
    for (int i = 0; i < s.steps; i++) {
        assert_ok(rg_training_next(run, &step, &err), err);
        first = i ? first : step.loss;
    }
    assert_true(step.loss < 0.95 * first);
    assert_true(rg_masters_at(t.masters, 0)->w[7] == was);
    assert_ok(rg_medusa_write(d, test_scratch("heads"), "model", RG_BF16, &err), err);
    snprintf(file, sizeof file, "%s/medusa_lm_head.safetensors", test_scratch("heads"));
    size_t n;
    float *w = values(file, "2.1.weight", &n);
    assert_int_equal(n, 320 * 64);
    rg_free(w);
    assert_null(rg_medusa_new(t.masters, 17, 1, &err));
    rg_training_free(run);
    rg_feed_close(feed);
    rg_medusa_free(d);
    trained_close(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradients_as_the_golden),
        cmocka_unit_test(heads_learn),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
