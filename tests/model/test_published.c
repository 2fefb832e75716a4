/* test_published.c -- the same weights as they are published in other ways: tensors without the name of the class that
 * holds them or below that of a language model among parts, classes without a head and such whose rows see each other. */
#include "support/tensors.h"

#include "model/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 24 };

/* ---- what a model gives ------------------------------------------------------------------------------------------ */

static test_rig_options options(void)
{
    return (test_rig_options){
        .backend = test_backend(0), .n_threads = 1, .exact = true, .max_rows = ROWS, .max_seqs = 1, .max_len = ROWS
    };
}

static float *logits_of(const char *folder, int *vocab)
{
    const test_rig_options o = options();
    test_model m;

    test_model_open(&m, folder, "f32");
    assert_true(rg_config_has_logits(&m.m->config));
    *vocab = m.m->config.vocab_size;
    float *out = test_logits(&m, &o, ROWS, ROWS);
    test_model_close(&m);
    return out;
}

static void same_logits(const char *folder, const float *want, int vocab, const char *how)
{
    int n;
    float *got = logits_of(folder, &n);

    if (n != vocab || memcmp(got, want, (size_t)ROWS * (size_t)vocab * sizeof *want) != 0)
        fail_msg("%s, %s: other logits", folder, how);
    free(got);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *model, *root;
} families[] = {
    { "llama", "model." },          { "mistral-swa", "model." },  { "qwen2", "model." },
    { "qwen3", "model." },          { "qwen3-moe", "model." },    { "gemma2", "model." },
    { "gemma3", "model." },         { "phi3", "model." },         { "mixtral", "model." },
    { "gpt-oss", "model." },        { "opt", "model." },          { "gpt-neox", "gpt_neox." },
    { "mamba", "backbone." },       { "falcon", "transformer." }, { "deepseek-v2", "model." },
    { "granite-hybrid", "model." },
};

static void by_other_names(void **state)
{
    static const struct {
        const char *root, *rest; /* what names begin with instead of the class's, and where they do not begin so */
        bool models;             /* only where the class is "model." */
    } spellings[] = {
        { "", "" },
        { "model.language_model.", "", true },
        { "language_model.model.", "language_model.", true },
        { "language_model.", "language_model." },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(families); i++) {
        int vocab;
        float *want = logits_of(test_data(families[i].model), &vocab);

        for (size_t k = 0; k < RG_LEN(spellings); k++) {
            if (spellings[k].models && strcmp(families[i].root, "model.") != 0)
                continue;
            const char *folder = test_variant(families[i].model, families[i].model, "config.json", NULL, NULL);
            test_tensors *s = test_tensors_read(families[i].model);

            assert_true(test_tensors_rename(s, families[i].root, "\1") > 0);
            if (spellings[k].rest[0])
                test_tensors_rename(s, "lm_head", "language_model.lm_head");
            test_tensors_rename(s, "\1", spellings[k].root);
            test_tensors_write(s, folder);
            test_tensors_free(s);
            same_logits(folder, want, vocab, spellings[k].root);
        }
        free(want);
    }
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

static void classes_without_a_head(void **state)
{
    static const struct {
        const char *model, *class;
    } cases[] = {
        { "llama", "[\"LlamaModel\"]" },       { "mistral-swa", "[\"MistralModel\"]" },
        { "qwen2", "[\"Qwen2Model\"]" },       { "qwen3", "[\"Qwen3Model\"]" },
        { "gemma2", "[\"Gemma2Model\"]" },     { "phi3", "[\"Phi3Model\"]" },
        { "gemma3", "[\"Gemma3TextModel\"]" }, { "qwen3-moe", "[\"Qwen3MoeModel\"]" },
        { "gpt2", "[\"GPT2Model\"]" },         { "qwen35", "[\"Qwen3_5TextModel\"]" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        int vocab;
        float *want = logits_of(test_data(cases[i].model), &vocab);
        const char *folder = test_variant(cases[i].model, cases[i].model, "config.json", NULL, NULL);

        test_config_set(folder, "architectures", cases[i].class);
        same_logits(folder, want, vocab, cases[i].class);
        free(want);
    }
}

/* Neither a head nor one tied to the embedding: the model opens, and has no logits. */
static void no_head(void **state)
{
    const char *folder = test_variant("headless", "qwen3", "config.json", NULL, NULL);
    test_tensors *s = test_tensors_read("qwen3");
    test_tensor *head = test_tensors_find(s, "lm_head.weight");
    test_model m;

    (void)state;
    if (head)
        head->name[0] = 0;
    test_config_set(folder, "tie_word_embeddings", "false");
    test_tensors_write(s, folder);
    test_tensors_free(s);
    test_model_open(&m, folder, "f32");
    assert_false(rg_config_has_logits(&m.m->config));
    assert_false(rg_config_generates(&m.m->config));
    assert_null(m.m->outer.w[W_LM_HEAD]);
    test_model_close(&m);
}

/* ---- rows that see each other ------------------------------------------------------------------------------------ */

static const struct {
    const char *key, *json;
    bool both_ways;
} sayings[] = {
    { "is_causal", "false", true },
    { "is_causal", "true", false },
    { "use_bidirectional_attention", "true", true },
    { "use_bidirectional_attention", "\"all\"", true },
    { "use_bidirectional_attention", "\"vision\"", false },
    { "use_bidirectional_attention", "null", false },
    { "bidirectional", "true", true },
};

static void keys_say_so(void **state)
{
    static const char *const models[] = { "llama", "qwen2", "qwen3", "gemma3", "gemma4", "mistral-swa", "deepseek-v2" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        for (size_t k = 0; k < RG_LEN(sayings); k++) {
            const char *folder = test_variant(models[i], models[i], "config.json", NULL, NULL);
            test_model m;

            test_config_set(folder, sayings[k].key, sayings[k].json);
            test_model_open(&m, folder, NULL);
            if ((m.m->config.sees == RG_SEES_ALL) != sayings[k].both_ways)
                fail_msg("%s, %s %s", models[i], sayings[k].key, sayings[k].json);
            assert_int_equal(rg_config_generates(&m.m->config), !sayings[k].both_ways);
            for (int l = 0; l < m.m->config.n_layers; l++)
                assert_int_equal(m.m->config.layer[l].around, sayings[k].both_ways && m.m->config.layer[l].window > 0);
            test_model_close(&m);
        }
    }
}

static void class_says_so(void **state)
{
    const char *folder = test_variant("bidirectional", "llama", "config.json", NULL, NULL);
    test_model m;

    (void)state;
    test_config_set(folder, "architectures", "[\"LlamaBidirectionalModel\"]");
    test_config_set(folder, "model_type", "\"llama_bidirec\"");
    test_model_open(&m, folder, NULL);
    assert_int_equal(m.m->config.sees, RG_SEES_ALL);
    assert_int_equal(m.m->config.embedding.pooling, RG_POOLING_MEAN);
    test_model_close(&m);
}

/* A GGUF file of an embedder gives what the folder gives, and is an embedder as well. */
static void as_gguf(void **state)
{
    const char *folder = test_variant("to-gguf", "qwen3", "config.json", NULL, NULL), *file = test_scratch("made.gguf");
    const rg_convert_options o = { .type = RG_F32, .n_threads = 1 };
    test_tensors *s = test_tensors_read("qwen3");
    test_tensor *head = test_tensors_find(s, "lm_head.weight");
    rg_convert_report report;
    rg_error err = { 0 };
    test_model m;

    (void)state;
    if (head)
        head->name[0] = 0;
    test_tensors_rename(s, "model.", "");
    test_config_set(folder, "tie_word_embeddings", "false");
    test_config_set(folder, "is_causal", "false");
    test_tensors_write(s, folder);
    test_tensors_free(s);
    rg_checkpoint *c = rg_checkpoint_open(folder, RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    assert_ok(rg_convert(&report, c, file, &o, &err), err);
    rg_convert_report_fini(&report);
    rg_checkpoint_close(c);
    test_model_open(&m, file, "f32");
    assert_false(rg_config_has_logits(&m.m->config));
    assert_int_equal(m.m->config.sees, RG_SEES_ALL);
    test_model_close(&m);
}

/* Of a recurrence, and of keys that are chosen, rows are read in their order. */
static void refused_by_name(void **state)
{
    static const char *const models[] = { "mamba", "jamba", "qwen35", "deepseek-v32", "rwkv7", "sparse-streaming" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        const char *folder = test_variant(models[i], models[i], "config.json", NULL, NULL);
        rg_error err = { 0 };

        test_config_set(folder, "is_causal", "false");
        rg_checkpoint *c = rg_checkpoint_open(folder, RG_CKPT_DEFAULT, &err);
        assert_ok(c, err);
        assert_null(rg_model_open(c, &(rg_model_options){ 0 }, &err));
        assert_int_equal(err.code, RG_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "is_causal"));
        rg_checkpoint_close(c);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_other_names),  cmocka_unit_test(classes_without_a_head), cmocka_unit_test(no_head),
        cmocka_unit_test(keys_say_so),     cmocka_unit_test(class_says_so),          cmocka_unit_test(as_gguf),
        cmocka_unit_test(refused_by_name),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
