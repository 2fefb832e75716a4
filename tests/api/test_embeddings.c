/* test_embeddings.c -- embeddings through ridge.h on real models: the golden hidden states, pooled; the same bits however
 * the prompt is cut, whatever runs beside it and whether its prefix was cached; and what checkpoints say of pooling. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "model/convert.h"
#include "support/engine.h"

static const char *const goldens[] = { "llama", "llama3", "gemma3", "mixtral", "deepseek-v2", "mamba" };

enum { LONG = 200, MAX_DIM = 512 };

static rg_engine *open_model(const char *path, int max_seqs, int max_rows, int n_threads)
{
    rg_options o = test_exact_options(max_seqs);

    o.max_batch_rows = max_rows;
    o.n_threads = n_threads;
    return test_open(path, &o);
}

static rg_request *submit(rg_engine *e, const int32_t *ids, int32_t n, rg_pooling how)
{
    rg_error err = { 0 };
    rg_params p = { .prompt = ids, .n_prompt = n, .embed = how };
    rg_request *r = rg_submit(e, &p, &err);

    assert_ok(r, err);
    return r;
}

/* What a request makes, into out; how much of its prompt was cached. */
static int32_t finish(rg_request *r, float *out)
{
    const float *v;
    int32_t n = 0, n_cached;
    rg_token t;

    assert_true(rg_next(r, &t));
    assert_int_equal(t.finish, RG_FINISH_STOP);
    assert_int_equal(t.n_text, 0);
    assert_false(rg_next(r, &t));
    v = rg_request_embedding(r, &n);
    assert_non_null(v);
    assert_in_range(n, 1, MAX_DIM);
    memcpy(out, v, (size_t)n * sizeof *v);
    n_cached = rg_request_usage(r).n_cached;
    assert_int_equal(rg_request_usage(r).n_output, 0);
    rg_request_close(r);
    return n_cached;
}

static int32_t embed(rg_engine *e, const int32_t *ids, int32_t n, rg_pooling how, float *out)
{
    return finish(submit(e, ids, n, how), out);
}

/* ---- against the goldens ----------------------------------------------------------------------------------------- */

static void near_to(const char *name, const float *got, const double *want, size_t n)
{
    double most = 0, off = 0;

    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs(want[i]));
        off = fmax(off, fabs((double)got[i] - want[i]));
    }
    if (!(off <= 1e-4 * most))
        fail_msg("%s: off by %g of %g", name, off, most);
}

static void pooled_goldens(const char *name)
{
    char path[300], key[32];
    rg_error err = { 0 };
    float got[MAX_DIM], *hidden = NULL;
    size_t n_ids, n_hidden = 0;

    snprintf(path, sizeof path, "%s/golden.safetensors", name);
    rg_checkpoint *g = rg_checkpoint_open(test_data(path), RG_CKPT_DEFAULT, &err);
    assert_ok(g, err);
    int32_t *ids = test_ints(g, "input_ids", &n_ids);
    for (int i = 0; i < 100; i++) { /* the last is what enters the head */
        size_t n;
        snprintf(key, sizeof key, "hidden.%d", i);
        float *more = test_floats(g, key, &n);
        if (!more)
            break;
        free(hidden);
        hidden = more;
        n_hidden = n;
    }
    assert_non_null(hidden);
    rg_engine *e = open_model(test_data(name), 4, 0, 2);
    size_t dim = (size_t)rg_engine_info(e).dim;
    assert_int_equal(dim * n_ids, n_hidden);
    for (rg_pooling how = RG_POOLING_MODEL; how <= RG_POOLING_CLS; how++) {
        double want[MAX_DIM] = { 0 };
        size_t from = how == RG_POOLING_MODEL || how == RG_POOLING_LAST ? n_ids - 1 : 0;
        size_t to = how == RG_POOLING_CLS ? 1 : n_ids;

        for (size_t k = from; k < to; k++)
            for (size_t i = 0; i < dim; i++)
                want[i] += (double)hidden[k * dim + i] / (double)(to - from);
        embed(e, ids, (int32_t)n_ids, how, got);
        near_to(name, got, want, dim);
    }
    rg_close(e);
    free(ids);
    free(hidden);
    rg_checkpoint_close(g);
}

static void hidden_states_of_goldens_are_pooled(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(goldens); i++)
        pooled_goldens(goldens[i]);
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

static void make_prompt(int32_t *ids, int32_t vocab)
{
    for (int32_t i = 0; i < LONG; i++)
        ids[i] = (i * 37 + i / 7) % vocab;
}

static void same_bits(const char *name)
{
    static const struct {
        int max_rows, n_threads;
    } ways[] = { { 512, 1 }, { 64, 2 }, { 7, 1 } };
    float first[RG_POOLING_CLS + 1][MAX_DIM], got[MAX_DIM];
    int32_t ids[LONG];

    for (size_t w = 0; w < RG_LEN(ways); w++) {
        rg_engine *e = open_model(test_data(name), 4, ways[w].max_rows, ways[w].n_threads);
        size_t bytes = (size_t)rg_engine_info(e).dim * sizeof(float);
        rg_request *talks[3];
        rg_error err = { 0 };
        rg_params p = { .prompt = ids, .n_samples = 1, .max_tokens = 60, .sampling = rg_sampling_default() };

        make_prompt(ids, rg_engine_info(e).vocab_size);
        p.sampling.ignore_eos = true;
        for (rg_pooling how = RG_POOLING_LAST; how <= RG_POOLING_CLS; how++) { /* on an empty cache; on a full one */
            int32_t n_cached = embed(e, ids, LONG, how, w ? got : first[how]);
            assert_int_equal(n_cached, 0);
            assert_true(!w || !memcmp(got, first[how], bytes));
            n_cached = embed(e, ids, LONG, how, got);
            assert_int_equal(n_cached > 0, how == RG_POOLING_LAST);
            assert_memory_equal(got, first[how], bytes);
        }
        for (int i = 0; i < 3; i++) { /* and beside others */
            p.n_prompt = 11 + 50 * i;
            talks[i] = rg_submit(e, &p, &err);
            assert_ok(talks[i], err);
        }
        for (rg_pooling how = RG_POOLING_LAST; how <= RG_POOLING_CLS; how++) {
            embed(e, ids, LONG, how, got);
            assert_memory_equal(got, first[how], bytes);
        }
        for (int i = 0; i < 3; i++)
            rg_request_close(talks[i]);
        rg_engine_check(e);
        rg_close(e);
    }
}

static void embeddings_are_the_same_in_any_company(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(goldens); i++)
        same_bits(goldens[i]);
}

/* A prompt may fill the context; a request that is cut off has no embedding. */
static void ends(void **state)
{
    rg_engine *e = open_model(test_data("llama"), 4, 16, 1);
    int32_t most = rg_engine_info(e).max_seq_len, n = 0;
    int32_t *ids = calloc((size_t)most + 1, sizeof *ids);
    rg_params p = { .prompt = ids, .n_prompt = most + 1, .embed = RG_POOLING_MEAN };
    rg_error err = { 0 };
    rg_request *r;
    rg_token t;

    (void)state;
    assert_null(rg_submit(e, &p, &err));
    assert_int_equal(err.code, RG_E_LIMIT);
    p.n_prompt = most;
    p.deadline_s = 1e-6;
    r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    assert_null(rg_request_embedding(r, &n));
    assert_true(rg_next(r, &t));
    assert_int_equal(t.finish, RG_FINISH_DEADLINE);
    assert_null(rg_request_embedding(r, &n));
    rg_request_close(r);
    p.deadline_s = 0;
    r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    rg_cancel(r);
    assert_true(rg_next(r, &t));
    assert_int_equal(t.finish, RG_FINISH_CANCELLED);
    assert_null(rg_request_embedding(r, &n));
    rg_request_close(r);
    free(ids);
    rg_close(e);
}

/* ---- what checkpoints say ---------------------------------------------------------------------------------------- */

static void put(const char *dir, const char *name, const char *text)
{
    char path[700];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static rg_embedding read_from(const char *path)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    static rg_config config;

    assert_ok(c, err);
    assert_ok(rg_config_read(&config, c, &err), err);
    rg_checkpoint_close(c);
    return config.embedding;
}

#define MODULE(path, type) "{\"path\": \"" path "\", \"type\": \"sentence_transformers.models." type "\"}"
#define BASE MODULE("", "Transformer")

static void folders_say_how_to_pool(void **state)
{
    static const struct {
        const char *modules, *pooling;
        rg_pooling want;
        const char *refusal;
    } cases[] = {
        { "[" BASE "," MODULE("1_Pooling", "Pooling") "," MODULE("2_Normalize", "Normalize") "]",
          "{\"pooling_mode_cls_token\": false, \"pooling_mode_mean_tokens\": true}", RG_POOLING_MEAN, "" },
        { "[" BASE "," MODULE("1_Pooling", "Pooling") "]", "{\"pooling_mode_cls_token\": true}", RG_POOLING_CLS, "" },
        { "[" BASE "," MODULE("1_Pooling", "Pooling") "]", "{\"pooling_mode_lasttoken\": true}", RG_POOLING_LAST, "" },
        { "[" BASE "]", "{}", RG_POOLING_LAST, "" },
        { "[" BASE "," MODULE("1_Pooling", "Pooling") "]", "{\"pooling_mode_max_tokens\": true}", RG_POOLING_MAX, "" },
        { "[" BASE "," MODULE("1_Pooling", "Pooling") "]", "{}", RG_POOLING_MEAN, "" },
        { "[" BASE "," MODULE("1_Pooling", "Pooling") "]", "{\"pooling_mode\": \"cls\"}", RG_POOLING_CLS, "" },
        { "[" BASE "," MODULE("1_Pooling", "Pooling") "]", "{\"pooling_mode\": [\"lasttoken\"]}", RG_POOLING_LAST, "" },
        { "[" BASE "," MODULE("1_Pooling", "Pooling") "]", "{\"pooling_mode\": \"attention\"}", 0, "'attention'" },
        { "[" BASE "," MODULE("1_Pooling", "Pooling") "]", "{\"pooling_mode\": [\"cls\", 7]}", 0, "pooling" },
        { "[" BASE "," MODULE("1_Pooling", "Pooling") "," MODULE("2_LSTM", "LSTM") "]", "{}", 0, "'LSTM'" },
        { "[" BASE "," MODULE("2_Normalize", "Normalize") "," MODULE("1_Pooling", "Pooling") "]", "{}", 0,
          "'Normalize' in front of the pooling" },
        { "[" BASE "," MODULE("1_Pooling", "Pooling") "," MODULE("2_Dense", "Dense") "]", "{}", 0,
          "2_Dense/config.json" },
        { "[" BASE "," MODULE("../1_Pooling", "Pooling") "]", "{}", 0, "folder" },
        { "[" BASE "," MODULE("3_Pooling", "Pooling") "]", "{}", 0, "3_Pooling/config.json" },
        { "[" BASE "," MODULE("1_Pooling", "Pooling") "]", "[", 0, "1_Pooling/config.json" },
        { "[{}]", "{}", 0, "'?'" },
        { "[7,", "{}", 0, "modules.json" },
        { "{}", "{}", RG_POOLING_LAST, "" },
    };
    const char *dir = test_variant("pooling", "llama", "config.json", NULL, NULL);
    char sub[600];

    (void)state;
    snprintf(sub, sizeof sub, "%s/1_Pooling", dir);
    mkdir(sub, 0755);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        put(dir, "modules.json", cases[i].modules);
        put(dir, "1_Pooling/config.json", cases[i].pooling);
        rg_embedding e = read_from(dir);
        assert_int_equal(e.n_poolings ? e.poolings[0] : RG_POOLING_NONE, cases[i].want);
        if (!strstr(e.refusal, cases[i].refusal) || !*cases[i].refusal != !*e.refusal)
            fail_msg("case %zu: '%s', not '%s'", i, e.refusal, cases[i].refusal);
    }
}

/* A model whose embeddings are refused still generates; the refusal is told. */
static void refused_embeddings_leave_the_model(void **state)
{
    const char *dir = test_variant("dense", "llama", "config.json", NULL, NULL);
    int32_t id = 1;
    rg_params p = { .prompt = &id, .n_prompt = 1, .embed = RG_POOLING_MODEL };
    rg_error err = { 0 };
    float v[MAX_DIM];

    (void)state;
    put(dir, "modules.json", "[" MODULE("", "Dense") "]");
    rg_engine *e = open_model(dir, 4, 0, 1);
    assert_int_equal(rg_engine_info(e).embed, RG_POOLING_NONE);
    assert_null(rg_submit(e, &p, &err));
    assert_int_equal(err.code, RG_E_UNSUPPORTED);
    assert_string_equal(err.text, rg_engine_info(e).embed_refusal);
    embed(e, &id, 1, RG_POOLING_LAST, v); /* asked for by name it is had */
    rg_close(e);
}

/* A folder's pooling goes into the GGUF that is made of it, and is read from there. */
static void gguf_says_how_to_pool(void **state)
{
    static const char *const flags[] = { "pooling_mode_mean_tokens", "pooling_mode_cls_token", "pooling_mode_lasttoken" };
    static const rg_pooling want[] = { RG_POOLING_MEAN, RG_POOLING_CLS, RG_POOLING_LAST };
    const rg_convert_options o = { .type = RG_F32, .n_threads = 1 };
    const char *dir = test_variant("to-gguf", "llama", "config.json", NULL, NULL);
    char text[200];

    (void)state;
    snprintf(text, sizeof text, "%s/1_Pooling", dir);
    mkdir(text, 0755);
    put(dir, "modules.json", "[" BASE "," MODULE("1_Pooling", "Pooling") "]");
    for (size_t i = 0; i < RG_LEN(flags); i++) {
        const char *to = test_scratch("pooling.gguf");
        rg_convert_report r;
        rg_error err = { 0 };

        snprintf(text, sizeof text, "{\"%s\": true}", flags[i]);
        put(dir, "1_Pooling/config.json", text);
        rg_checkpoint *c = rg_checkpoint_open(dir, RG_CKPT_DEFAULT, &err);
        assert_ok(c, err);
        assert_ok(rg_convert(&r, c, to, &o, &err), err);
        rg_convert_report_fini(&r);
        rg_checkpoint_close(c);
        rg_embedding e = read_from(to);
        assert_int_equal(e.poolings[0], want[i]);
        assert_true(e.is_said);
        remove(to);
    }
    assert_false(read_from(test_data("llama/model.gguf")).is_said);
}

static void sizes_are_said(void **state)
{
    const char *dir = test_variant("sizes", "llama", "config.json", "\"architectures\"",
                                   "\"matryoshka_dimensions\": [8, 16], \"architectures\"");
    rg_embedding e = read_from(dir);
    rg_error err = { 0 };
    static rg_config config;

    (void)state;
    assert_int_equal(e.n_sizes, 2);
    assert_int_equal(e.sizes[1], 16);
    e = read_from(test_variant("sizes", "llama", "config.json", "\"architectures\"",
                               "\"is_matryoshka\": true, \"architectures\""));
    assert_int_equal(e.n_sizes, RG_ANY_SIZE);
    dir = test_variant("sizes", "llama", "config.json", "\"architectures\"",
                       "\"matryoshka_dimensions\": [0], \"architectures\"");
    rg_checkpoint *c = rg_checkpoint_open(dir, RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    assert_false(rg_config_read(&config, c, &err));
    assert_non_null(strstr(err.text, "matryoshka"));
    rg_checkpoint_close(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_states_of_goldens_are_pooled),
        cmocka_unit_test(embeddings_are_the_same_in_any_company),
        cmocka_unit_test(ends),
        cmocka_unit_test(folders_say_how_to_pool),
        cmocka_unit_test(refused_embeddings_leave_the_model),
        cmocka_unit_test(gguf_says_how_to_pool),
        cmocka_unit_test(sizes_are_said),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
