/* test_sentence.c -- models as sentence-transformers saves them: ways of pooling old and new, dense layers and
 * normalisations behind it, prompts, and how long a text may be. */
#include "support/tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/convert.h"
#include "support/engine.h"

enum { MAX = 512, N = 13 };

#define MODULE(path, type) "{\"path\": \"" path "\", \"type\": \"sentence_transformers.models." type "\"}"
#define POOLED             MODULE("", "Transformer") "," MODULE("1_Pooling", "Pooling")

static void put(const char *dir, const char *name, const char *text)
{
    char path[700];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *slash = strrchr(path, '/');
    *slash = 0;
    mkdir(path, 0755);
    *slash = '/';
    test_write_text(path, text);
}

static rg_engine *open_model(const char *path)
{
    rg_options o = test_exact_options(2);

    o.kv_type = "f32";
    return test_open(path, &o);
}

static int32_t embed(rg_engine *e, const int32_t *ids, int32_t n, int32_t from, rg_pooling how, float *out)
{
    rg_error err = { 0 };
    rg_params p = { .prompt = ids, .n_prompt = n, .embed = how, .pool_from = from };
    rg_request *r = rg_submit(e, &p, &err);
    rg_token t;
    int32_t dim = 0;

    assert_ok(r, err);
    assert_true(rg_next(r, &t));
    assert_int_equal(t.finish, RG_FINISH_STOP);
    const float *v = rg_request_embedding(r, &dim);
    assert_non_null(v);
    assert_in_range(dim, 1, MAX);
    memcpy(out, v, (size_t)dim * sizeof *v);
    assert_ptr_equal(rg_request_embedding(r, &dim), v);
    rg_request_close(r);
    return dim;
}

static void some_ids(int32_t *ids)
{
    for (int i = 0; i < N; i++)
        ids[i] = 5 + i * 37 % 200;
}

/* ---- what the published library gives ---------------------------------------------------------------------------- */

static void goldens(void **state)
{
    static const char *const models[] = { "embedding-gemma", "qwen3-embedding" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        char path[96];
        rg_error err = { 0 };
        float got[MAX];
        size_t n_ids, dim;

        snprintf(path, sizeof path, "%s/golden.safetensors", models[i]);
        rg_checkpoint *c = rg_checkpoint_open(test_data(path), RG_CKPT_DEFAULT, &err);
        assert_ok(c, err);
        int32_t *ids = test_ints(c, "input_ids", &n_ids);
        float *whole = test_floats(c, "embedding", &dim), *part = test_floats(c, "short.embedding", &dim);
        rg_engine *e = open_model(test_data(models[i]));

        assert_int_equal(rg_engine_info(e).embed_dim, dim);
        assert_int_equal(embed(e, ids, (int32_t)n_ids, 0, RG_POOLING_MODEL, got), dim);
        test_close_to(models[i], got, whole, dim, 1e-4f);
        embed(e, ids, 21, 0, RG_POOLING_MODEL, got);
        test_close_to(models[i], got, part, dim, 1e-4f);
        rg_close(e);
        free(ids);
        free(whole);
        free(part);
        rg_checkpoint_close(c);
    }
}

/* ---- pooling ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *flag;
    rg_pooling how;
} ways[] = {
    { "cls", "pooling_mode_cls_token", RG_POOLING_CLS },
    { "max", "pooling_mode_max_tokens", RG_POOLING_MAX },
    { "mean", "pooling_mode_mean_tokens", RG_POOLING_MEAN },
    { "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", RG_POOLING_SQRT_MEAN },
    { "weightedmean", "pooling_mode_weightedmean_tokens", RG_POOLING_WEIGHTED_MEAN },
    { "lasttoken", "pooling_mode_lasttoken", RG_POOLING_LAST },
};

/* Of rows [from, N) of `all` [N][dim], as the definition says. */
static void pool(const float *all, int dim, int from, rg_pooling how, float *out)
{
    for (int i = 0; i < dim; i++) {
        double sum = 0, most = -1e30, weights = 0, weighted = 0, n = N - from;

        for (int k = from; k < N; k++) {
            const double v = (double)all[k * dim + i];
            sum += v;
            most = v > most ? v : most;
            weighted += (k + 1) * v;
            weights += k + 1;
        }
        const double by_way[] = { [RG_POOLING_LAST] = (double)all[(N - 1) * dim + i],
                                  [RG_POOLING_CLS] = (double)all[from * dim + i],
                                  [RG_POOLING_MAX] = most,
                                  [RG_POOLING_MEAN] = sum / n,
                                  [RG_POOLING_SQRT_MEAN] = sum / sqrt(n),
                                  [RG_POOLING_WEIGHTED_MEAN] = weighted / weights };
        out[i] = (float)by_way[how];
    }
}

/* Of a causal model the last state of a beginning is a row; so all rows are known. */
static void each_way_is_its_definition(void **state)
{
    rg_engine *e = open_model(test_data("llama"));
    const int dim = rg_engine_info(e).dim;
    float *all = calloc((size_t)N * (size_t)dim, sizeof *all), want[MAX], got[MAX];
    int32_t ids[N];

    (void)state;
    some_ids(ids);
    for (int k = 0; k < N; k++)
        embed(e, ids, k + 1, 0, RG_POOLING_LAST, all + k * dim);
    for (size_t w = 0; w < RG_LEN(ways); w++)
        for (int from = 0; from < N; from += 4) {
            pool(all, dim, from, ways[w].how, want);
            assert_int_equal(embed(e, ids, N, from, ways[w].how, got), dim);
            test_close_to(ways[w].name, got, want, (size_t)dim, 1e-6f);
        }
    free(all);
    rg_close(e);
}

/* What the model's own pooling gives, by a pooling module's config.json. */
static int32_t pooled_by(const char *config, float *out)
{
    const char *dir = test_variant("spellings", "bert", "config.json", NULL, NULL);
    int32_t ids[N], dim;

    some_ids(ids);
    put(dir, "modules.json", "[" POOLED "]");
    put(dir, "1_Pooling/config.json", config);
    rg_engine *e = open_model(dir);
    if (rg_engine_info(e).embed_refusal[0])
        fail_msg("%s: %s", config, rg_engine_info(e).embed_refusal);
    dim = embed(e, ids, N, 0, RG_POOLING_MODEL, out);
    rg_close(e);
    return dim;
}

static void old_and_new_say_the_same(void **state)
{
    static const char *const forms[] = {
        "{\"word_embedding_dimension\": 64, \"%s\": true}",
        "{\"embedding_dimension\": 64, \"pooling_mode\": \"%s\", \"include_prompt\": true}",
        "{\"embedding_dimension\": 64, \"pooling_mode\": [\"%s\"]}",
    };
    rg_engine *e = open_model(test_data("bert"));
    int32_t ids[N];

    (void)state;
    some_ids(ids);
    for (size_t w = 0; w < RG_LEN(ways); w++) {
        float want[MAX], got[MAX];
        const int32_t dim = embed(e, ids, N, 0, ways[w].how, want);

        for (size_t f = 0; f < RG_LEN(forms); f++) {
            char config[200];

            snprintf(config, sizeof config, forms[f], f ? ways[w].name : ways[w].flag);
            assert_int_equal(pooled_by(config, got), dim);
            assert_memory_equal(got, want, (size_t)dim * sizeof *want);
        }
    }
    rg_close(e);
}

static void several_ways_stand_side_by_side(void **state)
{
    static const char *const configs[] = {
        "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": true, \"pooling_mode_max_tokens\": true}",
        "{\"pooling_mode\": [\"cls\", \"max\", \"mean\"]}",
    };
    static const rg_pooling order[] = { RG_POOLING_CLS, RG_POOLING_MAX, RG_POOLING_MEAN };
    rg_engine *e = open_model(test_data("bert"));
    float want[MAX], got[MAX];
    int32_t ids[N], dim = 0;

    (void)state;
    some_ids(ids);
    for (int i = 0; i < 3; i++)
        dim = embed(e, ids, N, 0, order[i], want + i * dim);
    for (size_t i = 0; i < RG_LEN(configs); i++) {
        assert_int_equal(pooled_by(configs[i], got), 3 * dim);
        assert_memory_equal(got, want, (size_t)(3 * dim) * sizeof *want);
    }
    rg_close(e);
}

/* ---- behind the pooling ------------------------------------------------------------------------------------------ */

static float weight(int r, int k)
{
    return (float)((r * 7 + k * 13) % 31 - 15) / 64;
}

/* A dense layer of so many numbers in `folder`; bias NULL: it has none. */
static void put_dense(const char *dir, const char *folder, int in, int out, const char *act, bool bias)
{
    test_tensors *s = calloc(1, sizeof *s);
    char path[600], config[300];

    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(config, sizeof config,
             "{\"in_features\": %d, \"out_features\": %d, \"bias\": %s, \"activation_function\": "
             "\"torch.nn.modules.activation.%s\"}",
             in, out, bias ? "true" : "false", act);
    put(dir, path, config);
    float *w = (float *)(void *)test_tensors_add(s, "linear.weight", RG_F32, 2, (const int64_t[]){ out, in })->data;
    for (int i = 0; i < out * in; i++)
        w[i] = weight(i / in, i % in);
    if (bias) {
        float *b = (float *)(void *)test_tensors_add(s, "linear.bias", RG_F32, 1, (const int64_t[]){ out })->data;
        for (int i = 0; i < out; i++)
            b[i] = weight(i, 3);
    }
    snprintf(path, sizeof path, "%s/%s", dir, folder);
    test_tensors_write(s, path);
    test_tensors_free(s);
}

static double activated(const char *act, double x)
{
    return !strcmp(act, "Tanh")      ? tanh(x)
           : !strcmp(act, "GELU")    ? 0.5 * x * (1 + erf(x / sqrt(2)))
           : !strcmp(act, "ReLU")    ? fmax(x, 0)
           : !strcmp(act, "SiLU")    ? x / (1 + exp(-x))
           : !strcmp(act, "Sigmoid") ? 1 / (1 + exp(-x))
                                     : x;
}

static void dense(float *x, int in, int out, const char *act, bool bias)
{
    float y[MAX];

    for (int r = 0; r < out; r++) {
        double sum = bias ? (double)weight(r, 3) : 0;
        for (int k = 0; k < in; k++)
            sum += (double)weight(r, k) * (double)x[k];
        y[r] = (float)activated(act, sum);
    }
    memcpy(x, y, (size_t)out * sizeof *x);
}

static void normalized(float *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < n; i++)
        x[i] = (float)((double)x[i] / sqrt(sum));
}

static void dense_layers(void **state)
{
    static const char *const acts[] = { "Identity", "Tanh", "GELU", "ReLU", "SiLU", "Sigmoid" };
    rg_engine *plain = open_model(test_data("bert"));
    const int dim = rg_engine_info(plain).dim;
    float mean[MAX], want[MAX], got[MAX];
    int32_t ids[N];

    (void)state;
    some_ids(ids);
    embed(plain, ids, N, 0, RG_POOLING_MEAN, mean);
    rg_close(plain);
    for (size_t i = 0; i < RG_LEN(acts); i++) {
        const char *dir = test_variant("dense", "bert", "config.json", NULL, NULL);
        const bool bias = i % 2;

        put(dir, "1_Pooling/config.json", "{\"pooling_mode\": \"mean\"}");
        put_dense(dir, "2_Dense", dim, 96, acts[i], bias);
        put_dense(dir, "3_Dense", 96, 40, "Identity", !bias);
        put(dir, "modules.json",
            i < 3 ? "[" POOLED "," MODULE("2_Dense", "Dense") "," MODULE("3_Dense", "Dense") "," MODULE("4_Normalize",
                                                                                                        "Normalize") "]"
                  : "[" POOLED "," MODULE("n", "Normalize") "," MODULE("2_Dense", "Dense") "]");
        memcpy(want, mean, sizeof mean);
        if (i >= 3)
            normalized(want, dim);
        dense(want, dim, 96, acts[i], bias);
        if (i < 3) {
            dense(want, 96, 40, "Identity", !bias);
            normalized(want, 40);
        }
        rg_engine *e = open_model(dir);
        assert_string_equal(rg_engine_info(e).embed_refusal, "");
        assert_int_equal(embed(e, ids, N, 0, RG_POOLING_MODEL, got), i < 3 ? 40 : 96);
        test_close_to(acts[i], got, want, i < 3 ? 40 : 96, 1e-6f);
        assert_int_equal(embed(e, ids, N, 0, RG_POOLING_MEAN, got), dim); /* by name: as pooled */
        assert_memory_equal(got, mean, (size_t)dim * sizeof *mean);
        rg_close(e);
    }
}

static void dense_is_refused_by_name(void **state)
{
    static const struct {
        const char *config, *named;
    } cases[] = {
        { "{\"in_features\": 64, \"out_features\": 8, \"activation_function\": \"torch.nn.PReLU\"}", "PReLU" },
        { "{\"in_features\": 63, \"out_features\": 8}", "in_features 63" },
        { "{\"in_features\": 64, \"out_features\": 8, \"module_input_name\": \"token_embeddings\"}",
          "token_embeddings" },
        { "{\"in_features\": 64, \"out_features\": 8}", "2_Dense" }, /* and no weights */
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const char *dir = test_variant("refused", "bert", "config.json", NULL, NULL);

        put(dir, "modules.json", "[" POOLED "," MODULE("2_Dense", "Dense") "]");
        put(dir, "1_Pooling/config.json", "{}");
        put(dir, "2_Dense/config.json", cases[i].config);
        rg_engine *e = open_model(dir);
        if (!strstr(rg_engine_info(e).embed_refusal, cases[i].named))
            fail_msg("'%s', not '%s'", rg_engine_info(e).embed_refusal, cases[i].named);
        rg_close(e);
    }
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static rg_text_ids encoded(rg_engine *e, const char *text, const rg_text_options *o)
{
    rg_text_ids out;
    rg_error err = { 0 };

    assert_ok(rg_encode_to_embed(e, text, strlen(text), o, &out, &err), err);
    return out;
}

/* As rg_encode makes them of the text. */
static void same_ids(rg_engine *e, const rg_text_ids *got, const char *text)
{
    int32_t *ids;
    size_t n;
    rg_error err = { 0 };

    assert_ok(rg_encode(e, text, strlen(text), 0, &ids, &n, &err), err);
    assert_int_equal(got->n, n);
    assert_memory_equal(got->ids, ids, n * sizeof *ids);
    rg_ids_free(ids);
}

static void prompts(void **state)
{
    const char *dir = test_with_letters("prompts", "bert");
    rg_text_ids got;
    rg_error err = { 0 };

    (void)state;
    put(dir, "modules.json", "[" POOLED "]");
    put(dir, "1_Pooling/config.json", "{\"pooling_mode\": \"mean\", \"include_prompt\": false}");
    put(dir, "config_sentence_transformers.json",
        "{\"prompts\": {\"query\": \"a b \", \"document\": \"\", \"other\": null}, \"default_prompt_name\": "
        "\"query\"}");
    rg_engine *e = open_model(dir);
    got = encoded(e, "c d", &(rg_text_options){ 0 });
    same_ids(e, &got, "a b c d");
    assert_int_equal(got.pool_from, 3); /* [CLS] and the prompt's two */
    rg_ids_free(got.ids);
    got = encoded(e, "c d", &(rg_text_options){ .prompt = "document" });
    same_ids(e, &got, "c d");
    assert_int_equal(got.pool_from, 0);
    rg_ids_free(got.ids);
    got = encoded(e, "c d", &(rg_text_options){ .prompt = "" });
    same_ids(e, &got, "c d");
    rg_ids_free(got.ids);
    assert_false(rg_encode_to_embed(e, "c", 1, &(rg_text_options){ .prompt = "passage" }, &got, &err));
    assert_non_null(strstr(err.text, "passage"));
    assert_string_equal(rg_engine_prompt(e, 0), "query");
    assert_null(rg_engine_prompt(e, 2));
    rg_close(e);
    put(dir, "config_sentence_transformers.json", "{\"prompts\": {}, \"default_prompt_name\": \"query\"}");
    e = open_model(dir);
    assert_non_null(strstr(rg_engine_info(e).embed_refusal, "default_prompt_name"));
    rg_close(e);
}

static void texts_are_cut(void **state)
{
    const char *dir = test_with_letters("cut", "bert");
    rg_text_ids got;

    (void)state;
    put(dir, "sentence_bert_config.json", "{\"max_seq_length\": 5, \"do_lower_case\": true}");
    rg_engine *e = open_model(dir);
    assert_int_equal(rg_engine_info(e).max_embed_ids, 5);
    static const struct {
        rg_text_options o;
        const char *text, *same;
    } cases[] = {
        { { 0 }, "a b c d e f", "a b c" }, /* as the checkpoint says: the special tokens around stay */
        { { 0 }, "A B c", "a b c" },
        { { .max_ids = -1 }, "a b c d e f", "a b c d e f" },
        { { .max_ids = 4 }, "a b c d e f", "a b" },
        { { .max_ids = 4, .keep_end = true }, "a b c d e f", "e f" },
        { { .max_ids = 100 }, "a b c d e f", "a b c d e f" },
        { { .max_ids = 2 }, "a b", "" },
    };
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        got = encoded(e, cases[i].text, &cases[i].o);
        same_ids(e, &got, cases[i].same);
        rg_ids_free(got.ids);
    }
    int32_t ids[] = { 1, 4, 5, 6, 2 }, bare[] = { 4, 5, 6, 7 };
    assert_int_equal(rg_cut_ids(e, ids, 5, &(rg_text_options){ .max_ids = 3 }), 3);
    assert_memory_equal(ids, ((const int32_t[]){ 1, 4, 2 }), 3 * sizeof *ids);
    assert_int_equal(rg_cut_ids(e, bare, 4, &(rg_text_options){ .max_ids = 3, .keep_end = true }), 3);
    assert_memory_equal(bare, ((const int32_t[]){ 5, 6, 7 }), 3 * sizeof *bare);
    rg_close(e);
}

/* Of a pair the longer text is cut first, then both. */
static void pairs_are_cut(void **state)
{
    rg_engine *e = open_model(test_with_letters("pairs", "bert-rerank"));
    static const struct {
        const char *first, *second;
        int32_t max_ids;
        const char *want[2];
    } cases[] = {
        { "a b", "c d e f g", 100, { "a b", "c d e f g" } }, { "a b", "c d e f g", 9, { "a b", "c d e f" } },
        { "a b c d e", "f g", 7, { "a b", "f g" } },         { "a b c d e", "f g h", 8, { "a b c", "f g" } },
        { "a b c d", "e f g h", 6, { "a", "e f" } },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const char *const all[2] = { cases[i].first, cases[i].second };
        const size_t n[2] = { strlen(all[0]), strlen(all[1]) };
        const size_t n_want[2] = { strlen(cases[i].want[0]), strlen(cases[i].want[1]) };
        rg_text_ids got;
        rg_error err = { 0 };
        int32_t *ids, second;
        size_t n_ids;

        assert_ok(rg_encode_pair_to_score(e, all, n, &(rg_text_options){ .max_ids = cases[i].max_ids }, &got, &err),
                  err);
        assert_ok(rg_encode_pair(e, cases[i].want, n_want, 0, &ids, &n_ids, &second, &err), err);
        assert_int_equal(got.n, n_ids);
        assert_memory_equal(got.ids, ids, n_ids * sizeof *ids);
        assert_int_equal(got.second, second);
        rg_ids_free(ids);
        rg_ids_free(got.ids);
    }
    rg_close(e);
}

/* A folder that is written anew keeps what makes it an embedder; GGUF has no form of its dense layers, and says so. */
static void written_anew(void **state)
{
    const char *to = test_scratch("anew"), *file = test_scratch("dense.gguf");
    const rg_convert_options o = { .type = RG_F32, .n_threads = 1, .to_hf = true }, gguf = { .type = RG_F32,
                                                                                            .n_threads = 1 };
    rg_error err = { 0 };
    rg_convert_report r;
    float want[MAX], got[MAX];
    int32_t ids[N];

    (void)state;
    some_ids(ids);
    rg_checkpoint *c = rg_checkpoint_open(test_data("embedding-gemma"), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    assert_ok(rg_convert(&r, c, to, &o, &err), err);
    rg_convert_report_fini(&r);
    assert_false(rg_convert(&r, c, file, &gguf, &err));
    rg_convert_report_fini(&r);
    assert_non_null(strstr(err.text, "2_Dense"));
    rg_checkpoint_close(c);
    rg_engine *e = open_model(test_data("embedding-gemma"));
    const int32_t dim = embed(e, ids, N, 0, RG_POOLING_MODEL, want);
    rg_close(e);
    e = open_model(to);
    assert_int_equal(embed(e, ids, N, 0, RG_POOLING_MODEL, got), dim);
    assert_memory_equal(got, want, (size_t)dim * sizeof *want);
    assert_string_equal(rg_engine_prompt(e, 0), "query");
    rg_close(e);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),
        cmocka_unit_test(each_way_is_its_definition),
        cmocka_unit_test(old_and_new_say_the_same),
        cmocka_unit_test(several_ways_stand_side_by_side),
        cmocka_unit_test(dense_layers),
        cmocka_unit_test(dense_is_refused_by_name),
        cmocka_unit_test(prompts),
        cmocka_unit_test(texts_are_cut),
        cmocka_unit_test(pairs_are_cut),
        cmocka_unit_test(written_anew),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
