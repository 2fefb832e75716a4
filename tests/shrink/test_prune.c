/* What matters, and a model cut down to it, against the reference: importance of every part, and the cut model's
 * logits. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shrink/prune.h"

enum { SAMPLES = 6, CTX = 24, N_VOCAB = 320 };

static const rg_backend *best(void)
{
    const rg_backend *b = test_backend(0);

    for (int i = 0; test_backend(i); i++)
        b = test_backend(i);
    return b;
}

static void compare(const rg_checkpoint *g, const char *name, const double *got)
{
    size_t n;
    float *want = test_floats(g, name, &n);
    double most = 0;

    assert_non_null(want);
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++)
        if (fabs(got[i] - (double)want[i]) > 2e-4 * most)
            fail_msg("%s: value %zu is %.7g, want %.7g", name, i, got[i], (double)want[i]);
    free(want);
}

static void compare_kept(const rg_checkpoint *g, const char *name, const double *v, int all, int each)
{
    size_t n;
    int32_t *want = test_ints(g, name, &n), kept[256];

    rg_keep_highest(v, all, (int)n, each, kept);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(kept[i], want[i]);
    free(want);
}

static void keep_logits(void *arg, int feed, int row, float *logits)
{
    (void)feed;
    memcpy((float *)arg + (size_t)row * N_VOCAB, logits, N_VOCAB * sizeof *logits);
}

static void compare_logits(const rg_checkpoint *g, const char *folder, const int32_t *ids)
{
    test_rig_options o = { .backend = best(), .n_threads = 2, .exact = true, .max_rows = CTX, .max_seqs = 1,
                           .max_len = CTX };
    rg_error err = { 0 };
    test_model t;
    test_rig rig;
    size_t n;
    float *want = test_floats(g, "pruned.logits", &n), *got = malloc(n * sizeof *got);
    double most = 0;

    test_model_open(&t, folder, "f32");
    test_rig_open(&rig, &t, &o);
    rg_seq *q = rg_seq_new(rig.states, CTX, 0, &err);
    assert_ok(q && rg_seq_grow(rig.states, q, CTX), err);
    test_rig_step(&rig, &(test_feed){ .seq = q, .ids = ids, .n = CTX }, 1, keep_logits, got);
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++)
        if (fabs((double)got[i] - (double)want[i]) > 1e-4 * most)
            fail_msg("logit %zu is %g, want %g", i, (double)got[i], (double)want[i]);
    rg_seq_free(rig.states, q);
    test_rig_close(&rig);
    test_model_close(&t);
    free(want);
    free(got);
}

static void cut_model_is_that_of_the_reference(void **state)
{
    rg_error err = { 0 };
    rg_importance i;
    uint64_t bytes;
    size_t n;
    char name[32];
    rg_checkpoint *g = rg_checkpoint_open(test_data("shrink/minitron/golden.safetensors"), RG_CKPT_DEFAULT, &err);
    assert_ok(g, err);
    rg_checkpoint *c = rg_checkpoint_open(test_data("llama"), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    int32_t *ids = test_ints(g, "input_ids", &n);
    rg_stage *s = rg_stage_open(c, &(rg_stage_options){ best(), 2, ids, SAMPLES, CTX, true }, &err);

    (void)state;
    assert_ok(s, err);
    assert_ok(rg_importance_measure(&i, s, &err), err);
    for (int l = 0; l < i.n_layers; l++) {
        snprintf(name, sizeof name, "head.%d", l);
        compare(g, name, i.head + l * i.n_heads);
        snprintf(name, sizeof name, "kept.head.%d", l);
        compare_kept(g, name, i.head + l * i.n_heads, i.n_heads, 2);
        snprintf(name, sizeof name, "neuron.%d", l);
        compare(g, name, i.neuron + l * i.n_neurons);
        snprintf(name, sizeof name, "kept.neuron.%d", l);
        compare_kept(g, name, i.neuron + l * i.n_neurons, i.n_neurons, 0);
    }
    compare(g, "embedding", i.channel);
    compare_kept(g, "kept.embedding", i.channel, i.n_channels, 0);
    compare(g, "block_importance", i.layer);
    compare_kept(g, "kept.layer", i.layer, i.n_layers, 0);
    const char *to = test_scratch("pruned");
    const rg_prune_options o = { .n_layers = 2, .n_channels = 48, .n_neurons = 96, .n_heads = 2 };
    assert_ok(rg_prune(c, &rg_stage_model(s)->config, &i, &o, to, &bytes, &err), err);
    compare_logits(g, to, ids);
    const rg_prune_options wrong = { .n_heads = 3 };
    assert_false(rg_prune(c, &rg_stage_model(s)->config, &i, &wrong, test_scratch("wrong"), &bytes, &err));
    assert_non_null(strstr(err.text, "3 heads do not fit"));
    rg_importance_fini(&i);
    rg_stage_close(s);
    rg_checkpoint_close(c);
    rg_checkpoint_close(g);
    free(ids);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(cut_model_is_that_of_the_reference) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
