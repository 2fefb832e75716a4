/* Models whose weights a quantizer stored in its own form: their logits, exactly and by the fast recipe. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    float *logits;
    size_t vocab;
} job;

static void keep_row(void *arg, int feed, int row, float *logits)
{
    job *j = arg;

    (void)feed;
    memcpy(j->logits + (size_t)row * j->vocab, logits, j->vocab * sizeof *logits);
}

/* Largest distance from the golden logits, as a share of the largest of them. */
static double distance(const test_model *t, bool exact, const int32_t *ids, size_t n_ids, const float *want,
                       size_t n_want)
{
    test_rig_options o = { .backend = test_backend(0), .n_threads = 2, .exact = exact, .max_rows = (int)n_ids,
                           .max_seqs = 1, .max_len = (int)n_ids };
    job j = { malloc(n_want * sizeof *want), n_want / n_ids };
    double most = 0, off = 0;
    rg_error err = { 0 };
    test_rig rig;
    rg_seq *q;

    for (int i = 0; test_backend(i); i++)
        o.backend = test_backend(i); /* the best; the kernels' tests compare the others with it */
    test_rig_open(&rig, t, &o);
    q = rg_seq_new(rig.states, (int)n_ids, 0, &err);
    assert_ok(q, err);
    assert_true(rg_seq_grow(rig.states, q, (int)n_ids));
    test_rig_step(&rig, &(test_feed){ .seq = q, .ids = ids, .n = (int)n_ids }, 1, keep_row, &j);
    for (size_t i = 0; i < n_want; i++) {
        most = fmax(most, fabs((double)want[i]));
        off = fmax(off, fabs((double)j.logits[i] - (double)want[i]));
    }
    rg_seq_free(rig.states, q);
    test_rig_close(&rig);
    free(j.logits);
    return off / most;
}

static void logits_equal_golden(void **state)
{
    static const char *const folders[] = { "gptq-4bit-g32-act", "bnb-nf4-nested", "ct-fp8-block" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(folders); i++) {
        char path[128];
        rg_error err = { 0 };
        size_t n_ids, n_want;
        test_model t;

        snprintf(path, sizeof path, "quantized/%s/golden.safetensors", folders[i]);
        rg_checkpoint *c = rg_checkpoint_open(test_data(path), RG_CKPT_DEFAULT, &err);
        assert_ok(c, err);
        int32_t *ids = test_ints(c, "input_ids", &n_ids);
        float *want = test_floats(c, "logits", &n_want);
        snprintf(path, sizeof path, "quantized/%s", folders[i]);
        test_model_open(&t, test_data(path), "f32");
        double exact = distance(&t, true, ids, n_ids, want, n_want);
        double fast = distance(&t, false, ids, n_ids, want, n_want);
        print_message("    %s: exact %.1e, fast %.1e of the largest logit\n", folders[i], exact, fast);
        assert_true(exact < 1e-4 && fast < 0.06);
        test_model_close(&t);
        rg_checkpoint_close(c);
        free(ids);
        free(want);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(logits_equal_golden) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
