/* test_published.c -- the same weights as they are published in other ways: tensors without the name of the class that
 * holds them or below that of a language model among parts, classes without a head and such whose rows see each other,
 * biases that a config asks for, lists of one number, blocks of any size. */
#include "support/tensors.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/convert.h"
#include "support/engine.h"

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
    assert_int_equal(m.m->config.embedding.poolings[0], RG_POOLING_MEAN);
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

/* ---- biases that a config asks for ------------------------------------------------------------------------------- */

/* The mean over all rows as an encoder gives it. */
static float *hidden_of(const char *folder, size_t *n)
{
    rg_options o = test_exact_options(1);
    rg_engine *e = test_open(folder, &o);
    int32_t ids[ROWS], dim;
    rg_error err = { 0 };
    rg_token t;

    for (int i = 0; i < ROWS; i++)
        ids[i] = i * 37 % 250;
    rg_request *r = rg_submit(e, &(rg_params){ .prompt = ids, .n_prompt = ROWS, .embed = RG_POOLING_MEAN }, &err);
    assert_ok(r, err);
    while (rg_next(r, &t))
        ;
    const float *v = rg_request_embedding(r, &dim);
    assert_non_null(v);
    float *out = malloc((size_t)dim * sizeof *out);
    memcpy(out, v, (size_t)dim * sizeof *out);
    *n = (size_t)dim;
    rg_request_close(r);
    rg_close(e);
    return out;
}

static float bf16(const uint8_t *p)
{
    const uint32_t bits = (uint32_t)p[1] << 24 | (uint32_t)p[0] << 16;
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

static float bias_at(int64_t i)
{
    return (float)(i * 29 % 17 - 8) / 32;
}

/* A vector of n of these numbers times `by`, or, with a matrix, the matrix times it. */
static void add_bias(test_tensors *s, const char *name, const test_tensor *w, int64_t n, float by)
{
    const int64_t rows = w ? w->shape[0] : n;
    float *to = (float *)(void *)test_tensors_add(s, name, RG_F32, 1, &rows)->data;

    for (int64_t r = 0; r < rows; r++) {
        double sum = w ? 0 : (double)(by * bias_at(r));
        for (int64_t k = 0; w && k < w->shape[1]; k++)
            sum += (double)bf16(w->data + 2 * (r * w->shape[1] + k)) * (double)(by * bias_at(k));
        to[r] = (float)sum;
    }
}

/* ModernBERT with biases of its norms is ModernBERT with those of the products behind them. */
static void modernbert_biases(void **state)
{
    float *got[2];
    size_t n;

    (void)state;
    for (int way = 0; way < 2; way++) {
        const char *folder = test_variant("biases", "modernbert", "config.json", NULL, NULL);
        test_tensors *s = test_tensors_read("modernbert");
        const int n_given = s->n;

        test_config_set(folder, "norm_bias", "true");
        test_config_set(folder, "attention_bias", "true");
        test_config_set(folder, "mlp_bias", "true");
        for (int i = 0; i < n_given; i++) {
            const test_tensor *t = &s->t[i];
            char name[192], norm[192];
            const bool first = strstr(t->name, "layers.0.attn.Wqkv"); /* which has no norm in front */
            const bool wqkv = strstr(t->name, "attn.Wqkv"), wi = strstr(t->name, "mlp.Wi");
            char *end;

            if (!strncmp(t->name, "head.dense", 10) || !strncmp(t->name, "decoder", 7))
                continue;
            snprintf(name, sizeof name, "%s", t->name);
            end = strstr(name, ".weight");
            if (!end)
                continue;
            strcpy(end, ".bias");
            if (wqkv || wi) {
                snprintf(norm, sizeof norm, "%.*s%s", (int)(strstr(t->name, wqkv ? "attn.Wqkv" : "mlp.Wi") - t->name),
                         t->name, wqkv ? "attn_norm.bias" : "mlp_norm.bias");
                if (!first)
                    add_bias(s, norm, NULL, t->shape[1], way ? 1 : 0);
                add_bias(s, name, t, 0, way && !first ? 0 : 1);
            } else if (strstr(t->name, "Wo") || strstr(t->name, "embeddings.norm") || strstr(t->name, "final_norm") ||
                       strstr(t->name, "head.norm")) {
                add_bias(s, name, NULL, t->shape[0], 1);
            }
        }
        test_tensors_write(s, folder);
        test_tensors_free(s);
        got[way] = hidden_of(folder, &n);
    }
    test_close_to("modernbert", got[1], got[0], n, 1e-5f);
    float *plain = hidden_of(test_data("modernbert"), &n);
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(plain[i] - got[0][i]));
    assert_true(most > 0.01f);
    free(plain);
    free(got[0]);
    free(got[1]);
}

/* A number that is one for all layers may be a list of it. */
static void lists_of_one_number(void **state)
{
    static const struct {
        const char *model, *key, *other;
    } cases[] = {
        { "llama", "num_key_value_heads", "[2, 1, 2, 2]" },
        { "qwen3", "intermediate_size", "[128, 64, 128]" },
        { "mixtral", "num_experts_per_tok", "[2, 1]" },
        { "qwen2", "rms_norm_eps", "[0.001, 0.01]" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const char *folder = test_variant("lists", cases[i].model, "config.json", NULL, NULL);
        rg_error err = { 0 };
        int vocab;
        char path[600], list[200];
        float *want = logits_of(folder, &vocab);

        snprintf(path, sizeof path, "%s/config.json", folder);
        json_t *config = json_load_file(path, 0, NULL);
        const double one = json_number_value(json_object_get(config, cases[i].key));
        snprintf(list, sizeof list, "[%.17g, %.17g]", one, one);
        json_decref(config);
        test_config_set(folder, cases[i].key, list);
        same_logits(folder, want, vocab, list);
        free(want);
        test_config_set(folder, cases[i].key, cases[i].other);
        rg_checkpoint *c = rg_checkpoint_open(folder, RG_CKPT_DEFAULT, &err);
        assert_ok(c, err);
        assert_null(rg_model_open(c, &(rg_model_options){ 0 }, &err));
        assert_non_null(strstr(err.text, cases[i].key));
        rg_checkpoint_close(c);
    }
}

/* MiniMax's own name of the class that transformers calls MiniMax. */
static void own_names_of_classes(void **state)
{
    const char *folder = test_variant("names", "minimax", "config.json", NULL, NULL);
    int vocab;

    (void)state;
    test_config_set(folder, "rotary_dim", "16"); /* whole heads, by either class */
    float *want = logits_of(folder, &vocab);
    test_config_set(folder, "architectures", "[\"MiniMaxText01ForCausalLM\"]");
    test_config_set(folder, "model_type", "\"minimax_text_01\"");
    same_logits(folder, want, vocab, "MiniMaxText01ForCausalLM");
    free(want);
}

/* ---- blocks of any size ------------------------------------------------------------------------------------------ */

/* The ids of an answer of 40, after 70 of a prompt, of which one behind the first 64 is given. */
static void fill(rg_engine *e, int32_t given, int32_t *out)
{
    int32_t ids[70];
    rg_error err = { 0 };
    rg_token t;
    int n = 0;

    for (int i = 0; i < 70; i++)
        ids[i] = i == 65 ? given : i * 37 % 250 + 3;
    rg_params p = {
        .prompt = ids, .n_prompt = 70, .max_tokens = 40, .n_samples = 1, .sampling = rg_sampling_default()
    };
    p.sampling.temperature = 0;
    p.sampling.ignore_eos = true;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &t))
        if (t.id >= 0)
            out[n++] = t.id;
    assert_int_equal(n, 40);
    rg_request_close(r);
}

/* SDAR with blocks that 64 does not divide, or longer: the same answer again, when its prompt was seen before, and after a
 * prompt that begins alike. */
static void blocks_of_any_size(void **state)
{
    static const char *const sizes[] = { "3", "6", "24", "64", "96" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(sizes); i++) {
        const char *folder = test_variant("sdar", "sdar-b8", "config.json", NULL, NULL);
        rg_options o = test_exact_options(4);
        int32_t want[40], got[40];

        test_config_set(folder, "block_size", sizes[i]);
        o.max_batch_rows = 128;
        rg_engine *e = test_open(folder, &o);
        fill(e, 5, want);
        fill(e, 5, got);
        assert_memory_equal(got, want, sizeof want);
        fill(e, 6, got);
        fill(e, 5, got);
        assert_memory_equal(got, want, sizeof want);
        rg_close(e);
        o.max_batch_rows = 64;
        o.n_threads = 2;
        if (atoi(sizes[i]) <= 64) {
            e = test_open(folder, &o);
            fill(e, 5, got);
            assert_memory_equal(got, want, sizeof want);
            rg_close(e);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_other_names),
        cmocka_unit_test(classes_without_a_head),
        cmocka_unit_test(no_head),
        cmocka_unit_test(keys_say_so),
        cmocka_unit_test(class_says_so),
        cmocka_unit_test(as_gguf),
        cmocka_unit_test(refused_by_name),
        cmocka_unit_test(modernbert_biases),
        cmocka_unit_test(lists_of_one_number),
        cmocka_unit_test(own_names_of_classes),
        cmocka_unit_test(blocks_of_any_size),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
