/* Skipped columns: what thresholds make of a row does not depend on its company, and columns of zeros change nothing. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/sparsity.h"
#include "ops/cpu/pack.h"

enum { N = 40 };

static rg_model *open_sparse(const rg_checkpoint *c, const rg_sparsity *s, rg_error *err)
{
    return rg_model_open(c, &(rg_model_options){ .kv_type = "f32", .sparsity = s }, err);
}

/* Logits of N ids in steps of `cut` rows. */
static float *logits_of(const test_model *t, const rg_backend *backend, int n_threads, int cut)
{
    return test_logits(t, &(test_rig_options){ .backend = backend, .n_threads = n_threads, .exact = true, .max_rows = N,
                                               .max_seqs = 1, .max_len = N }, cut, cut);
}

/* The same bits from rows alone, which skip, and together, which do not, on all instruction sets; returned. */
static float *same_however_cut(const test_model *t)
{
    const size_t bytes = (size_t)N * (size_t)t->m->config.vocab_size * sizeof(float);
    float *want = logits_of(t, test_backend(0), 1, 1);

    for (int i = 0; test_backend(i); i++)
        for (int threads = 1; threads <= 2; threads++)
            for (int cut = 1; cut <= N; cut += 13) {
                float *got = logits_of(t, test_backend(i), threads, cut);
                if (memcmp(got, want, bytes))
                    fail_msg("%s, %d threads, steps of %d: other logits", test_backend(i)->name, threads, cut);
                free(got);
            }
    return want;
}

static int n_wide(const rg_model *m)
{
    int n = 0;

    for (int i = 0; i < m->weights.n; i++)
        n += m->weights.all[i].wide && rg_packed_of(m->weights.placed[i])->column_bytes;
    return n;
}

/* q, k and v with thresholds that differ, gate and up too; or all of a layer with one. */
static void thresholds_apply_to_every_row(void **state)
{
    static const char *const names[] = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                         "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj" };
    test_model plain;
    char text[4096];

    (void)state;
    test_model_open(&plain, test_data("llama"), "f32");
    float *without = logits_of(&plain, test_backend(0), 1, N);
    for (int differ = 0; differ < 2; differ++) {
        test_model t = { .ckpt = plain.ckpt };
        rg_error err = { 0 };
        int n = snprintf(text, sizeof text, "{\"thresholds\": {");

        for (int l = 0; l < plain.m->config.n_layers; l++)
            for (int i = 0; i < 7; i++)
                n += snprintf(text + n, sizeof text - (size_t)n, "%s\"model.layers.%d.%s%s\": %g", l + i ? ", " : "", l,
                              names[i], "", i == 3 ? 0.01 : 0.3 + 0.05 * (i % 3) * differ);
        n += snprintf(text + n, sizeof text - (size_t)n, "}}");
        rg_sparsity *s = rg_sparsity_parse("text", text, (size_t)n, &err);
        assert_ok(s, err);
        t.m = open_sparse(t.ckpt, s, &err);
        assert_ok(t.m, err);
        assert_int_equal(n_wide(t.m), 7 * t.m->config.n_layers);
        float *with = same_however_cut(&t);
        assert_memory_not_equal(with, without, (size_t)(N * t.m->config.vocab_size) * sizeof *with);
        free(with);
        rg_sparsity_free(s);
        rg_model_close(t.m);
    }
    free(without);
    test_model_close(&plain);
}

/* Behind ReLU and its square (OPT, Nemotron), columns of zeros are skipped without being asked for by name. */
static void zeros_change_nothing(void **state)
{
    static const char *const folders[] = { "opt", "nemotron" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(folders); i++) {
        rg_error err = { 0 };
        test_model plain, t;
        rg_sparsity *s = rg_sparsity_read("zeros", &err);

        assert_ok(s, err);
        test_model_open(&plain, test_data(folders[i]), "f32");
        t = (test_model){ plain.ckpt, open_sparse(plain.ckpt, s, &err) };
        assert_ok(t.m, err);
        assert_int_equal(n_wide(t.m), t.m->config.n_layers);
        float *want = logits_of(&plain, test_backend(0), 1, N), *got = same_however_cut(&t);
        for (int k = 0; k < N * t.m->config.vocab_size; k++)
            assert_true(got[k] == want[k]);
        free(want);
        free(got);
        rg_sparsity_free(s);
        rg_model_close(t.m);
        test_model_close(&plain);
    }
}

static void refused(const char *folder, const char *text, const char *why)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data(folder), RG_CKPT_DEFAULT, &err);
    rg_sparsity *s = rg_sparsity_parse("text", text, strlen(text), &err);
    rg_model *m = s ? open_sparse(c, s, &err) : NULL;

    assert_null(m);
    if (!strstr(err.text, why))
        fail_msg("%s: %s", text, err.text);
    rg_sparsity_free(s);
    rg_checkpoint_close(c);
}

static void what_is_no_threshold_is_refused(void **state)
{
    (void)state;
    refused("llama", "[", "text");
    refused("llama", "{}", "has no \"thresholds\"");
    refused("llama", "{\"thresholds\": {\"a\": -1}}", "'a' is no number from 0 on");
    refused("llama", "{\"thresholds\": {\"a\": \"x\"}}", "'a' is no number from 0 on");
    refused("llama", "{\"thresholds\": {\"a\": 0.5}}", "'a' is no matrix of this model");
    refused("mixtral", "{\"thresholds\": {\"model.layers.0.w1[3]\": 0.5}}", "thresholds of experts are not supported");
    refused("llama", "{\"thresholds\": {\"model.layers.0.input_layernorm\": 0.5}}", "no plain product has it");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thresholds_apply_to_every_row),
        cmocka_unit_test(zeros_change_nothing),
        cmocka_unit_test(what_is_no_threshold_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
