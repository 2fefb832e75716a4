/* test_drafts.c -- drafts change no answer: ids, log-probabilities and texts are the same with every drafter and without
 * one, on every architecture, for several answers at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/model.h"

#include "base/file.h"
#include "base/mem.h"

#define TALES RG_SOURCE_DIR "/models/tales-1m"
#define LARGE RG_SOURCE_DIR "/models/tales-7m"

enum { MAX_IDS = TEST_SLOWER > 1 ? 36 : 96, MAX_TOPS = 2, N_PROMPT = 40, MAX_SAMPLES = 3, N_REQUESTS = 6 };

typedef struct answer {
    int32_t ids[MAX_IDS];
    float logprobs[MAX_IDS];
    rg_top tops[MAX_IDS][MAX_TOPS];
    char text[4096];
    int n;
    rg_finish finish;
} answer;

typedef struct answers {
    answer of[N_REQUESTS][MAX_SAMPLES];
    rg_usage usage[N_REQUESTS];
} answers;

/* draft: a kind of drafter, or the path of a model that drafts. */
static rg_engine *open_with(const char *model, const char *draft, int32_t max_draft)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    o.n_threads = 2;
    o.kv_bytes = (size_t)64 << 20;
    o.max_seqs = 12;
    o.draft = draft;
    o.max_draft = max_draft;
    rg_engine *e = rg_open(model, &o, &err);
    assert_ok(e, err);
    char kind[32];
    const size_t own = draft && !strncmp(draft, "self:", 5) ? 5 : 0; /* self:METHOD:N is called self:METHOD */
    snprintf(kind, sizeof kind, "%.*s", draft ? (int)(own + strcspn(draft + own, ":")) : 4, draft ? draft : "none");
    assert_string_equal(rg_engine_info(e).draft,
                        draft && strstr(draft, "/sdar-") ? "blocks" : draft && *draft == '/' ? "model" : kind);
    return e;
}

static void collect(rg_request *r, answer *out, rg_usage *usage)
{
    rg_token t;

    while (rg_next(r, &t)) {
        answer *a = &out[t.sample];
        if (t.id >= 0) {
            assert_true(a->n < MAX_IDS && t.n_top <= MAX_TOPS);
            a->logprobs[a->n] = t.logprob;
            if (t.n_top)
                memcpy(a->tops[a->n], t.top, (size_t)t.n_top * sizeof *t.top);
            a->ids[a->n++] = t.id;
        }
        strncat(a->text, t.text, sizeof a->text - strlen(a->text) - 1);
        if (t.finish != RG_RUNNING)
            a->finish = t.finish;
    }
    *usage = rg_request_usage(r);
    rg_request_close(r);
}

static void check_same(const char *what, const answers *a, const answers *b)
{
    for (int k = 0; k < N_REQUESTS; k++)
        for (int i = 0; i < MAX_SAMPLES; i++) {
            const answer *x = &a->of[k][i], *y = &b->of[k][i];
            if (x->n != y->n || memcmp(x->ids, y->ids, sizeof x->ids) || memcmp(x->tops, y->tops, sizeof x->tops) ||
                memcmp(x->logprobs, y->logprobs, sizeof x->logprobs) || strcmp(x->text, y->text) || x->finish != y->finish)
                fail_msg("%s: answer %d of request %d is another one with drafts", what, i, k);
        }
}

/* Few ids are likely, so that what stood before comes again. */
static const rg_logit_bias few[] = { { 5, 40 }, { 9, 41 }, { 17, 40 }, { 30, 41 }, { 31, 40 } };

/* Several requests of all kinds at once. */
static answers *ask_all(rg_engine *e)
{
    answers *all = calloc(1, sizeof *all);
    int32_t ids[N_REQUESTS][N_PROMPT];
    rg_request *r[N_REQUESTS];
    rg_error err = { 0 };

    for (int k = 0; k < N_REQUESTS; k++) {
        rg_params p = { .prompt = ids[k], .n_prompt = N_PROMPT - k, .max_tokens = MAX_IDS - 7 * k,
                        .n_samples = k == 2 ? MAX_SAMPLES : 1, .sampling = rg_sampling_default() };

        for (int i = 0; i < N_PROMPT; i++)
            ids[k][i] = few[(i * i + k) % 7 % 5].id;
        p.sampling.seed = (uint64_t)k + 3;
        p.sampling.temperature = k == 1 ? 0 : 0.8f;
        p.sampling.top_k = k == 2 ? 4 : 0;
        p.sampling.repetition_penalty = k == 3 ? 1.1f : 1;
        p.sampling.frequency_penalty = k == 3 ? 0.1f : 0;
        p.sampling.n_logprobs = k < 4 ? k - 1 : 0;
        p.sampling.dry_multiplier = k == 4 ? 0.5f : 0;
        p.sampling.xtc_probability = k == 4 ? 0.5f : 0;
        p.sampling.mirostat = k == 5 ? 2 : 0;
        p.sampling.mirostat_tau = 2;
        p.sampling.ignore_eos = k != 3;
        p.sampling.bias = few;
        p.sampling.n_bias = k == 1 ? 0 : RG_LEN(few);
        r[k] = rg_submit(e, &p, &err);
        assert_ok(r[k], err);
    }
    for (int k = 0; k < N_REQUESTS; k++)
        collect(r[k], all->of[k], &all->usage[k]);
    rg_engine_check(e);
    return all;
}

/* With this drafter the answers are the same, and so is what is said about them. */
static rg_stats check_draft(const char *model, const char *draft, const answers *want)
{
    rg_engine *e = open_with(model, draft, 0);
    answers *got = ask_all(e), *again = test_all() ? ask_all(e) : NULL;
    rg_stats s = rg_engine_stats(e);

    check_same(model, want, got);
    if (again)
        check_same(model, want, again);
    for (int k = 0; k < N_REQUESTS; k++) {
        const rg_usage *u = &got->usage[k];
        int n = 0;

        for (int i = 0; i < MAX_SAMPLES; i++)
            n += got->of[k][i].n;
        assert_int_equal(u->n_output, n);
        assert_true(u->n_accepted <= u->n_drafted && u->n_steps + u->n_accepted >= n);
        assert_int_equal(want->usage[k].n_drafted, 0);
    }
    if (s.n_draft_accepted == 0 || s.n_draft_accepted > s.n_draft_rows || s.draft_accepted_at[0] < s.draft_accepted_at[1])
        fail_msg("%s: %d drafts accepted of %d", model, (int)s.n_draft_accepted, (int)s.n_draft_rows);
    rg_close(e);
    free(got);
    free(again);
    return s;
}

/* With this drafter the answers are the same. */
static void check_answers(const char *model, const char *draft, const answers *want)
{
    rg_engine *e = open_with(model, draft, 0);
    answers *got = ask_all(e);

    check_same(model, want, got);
    rg_close(e);
    free(got);
}

/* A model's own smaller self drafts for it; what cannot be left out of a model is refused by name. */
static void check_selves(const char *model)
{
    static const char *const methods[] = { "self:q4", "self:layers", "self:layers:1", "self:window:16", "self:kv4" };
    rg_engine *plain = open_with(model, NULL, 0);
    answers *want = ask_all(plain);
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    o.kv_bytes = (size_t)64 << 20;
    for (size_t k = 0; k < RG_LEN(methods); k++) {
        o.draft = methods[k];
        rg_engine *e = rg_open(model, &o, &err);
        const bool opens = e;

        rg_close(e);
        if (!opens && strncmp(err.text, "draft self:", 11) != 0)
            fail_msg("%s: %s", model, err.text);
        if (opens && !strcmp(model, LARGE))
            check_draft(model, methods[k], want);
        else if (opens)
            check_answers(model, methods[k], want);
    }
    rg_close(plain);
    free(want);
}

/* Its own draft is a model that agrees with it everywhere. */
static void check_golden(const char *folder)
{
    char path[512];
    rg_engine *plain;
    answers *want;
    rg_stats s;

    snprintf(path, sizeof path, "%s", test_data(folder));
    plain = open_with(path, NULL, 0);
    want = ask_all(plain);
    check_draft(path, test_all() || strlen(folder) % 2 ? "suffix" : "ngram", want);
    s = check_draft(path, path, want);
    if (s.n_draft_accepted != s.n_draft_rows)
        fail_msg("%s: %d drafts accepted of %d", path, (int)s.n_draft_accepted, (int)s.n_draft_rows);
    rg_close(plain);
    free(want);
    if (test_all())
        check_selves(path);
}

/* Four gate: K/V far apart, under windows, of MLA, and a recurrence's. */
static void check_OWN(const char *folder)
{
    if (test_all())
        check_golden(folder);
}

static void check_FAR(const char *folder)
{
    check_golden(folder);
}

static void check_PARTS(const char *folder)
{
    if (test_all())
        check_golden(folder);
}

#define GOLDEN(test, folder, worlds)                                                                                             \
    static void test(void **state)                                                                                               \
    {                                                                                                                            \
        (void)state;                                                                                                             \
        check_##worlds(folder);                                                                                                  \
    }
#define WHOLE(test, folder)
#define ENCODER(test, folder)
#include "model/goldens.def"
#undef GOLDEN
#undef WHOLE
#undef ENCODER

/* ---- networks that read the model's features --------------------------------------------------------------------- */

/* Where prompts are cut, sequences are preempted and their state is dropped, features are missing or come again. */
static void check_cramped(const char *model, const char *draft, const answers *want)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    rg_engine *e = NULL;

    o.n_threads = 2;
    o.max_seqs = 4;
    o.max_batch_rows = 16;
    o.draft = draft;
    for (o.kv_bytes = (size_t)128 << 10; !e; o.kv_bytes += (size_t)64 << 10) { /* room for hardly more than one */
        e = rg_open(model, &o, &err);
        if (e && rg_engine_info(e).max_seq_len < N_PROMPT + MAX_IDS) {
            rg_close(e);
            e = NULL;
        }
    }
    answers *got = ask_all(e);
    assert_true(rg_engine_stats(e).n_preempted > 0);
    check_same(model, want, got);
    rg_close(e);
    free(got);
}

static void check_network(const char *model, const char *kind, const char *folder, bool cramped)
{
    char path[512], draft[560];
    rg_engine *plain;
    answers *want;

    snprintf(path, sizeof path, "%s", test_data(model));
    snprintf(draft, sizeof draft, folder ? "%s:%s" : "%s", kind, folder ? test_data(folder) : "");
    plain = open_with(path, NULL, 0);
    want = ask_all(plain);
    check_draft(path, draft, want);
    if (cramped || test_all())
        check_cramped(path, draft, want);
    rg_close(plain);
    free(want);
}

static void networks_change_no_answer(void **state)
{
    (void)state;
    check_network("llama", "eagle", "speculation/eagle3", true);
    check_network("speculation/mtp-qwen", "mtp", NULL, false);
    if (!test_all())
        return;
    check_network("llama", "medusa", "speculation/medusa", false);
    check_network("llama", "medusa", "speculation/medusa/vllm", false);
    check_network("llama", "eagle", "speculation/eagle1", false);
    check_network("llama", "eagle", "speculation/eagle3-speculators", false);
    check_network("llama", "eagle", "speculation/eagle3-speculators-nbf", false);
    check_network("speculation/mtp-deepseek", "mtp", NULL, false);
    check_network("speculation/mtp-glm", "mtp", NULL, false);
}

/* ---- grammars, stop texts, end tokens ---------------------------------------------------------------------------- */

static void ask_story(rg_engine *e, const rg_grammar_source *source, const char *prompt, uint64_t seed, answer *out, rg_usage *u)
{
    const char *stop[] = { "dog", ". The" };
    rg_params p = { .max_tokens = MAX_IDS, .n_samples = 1, .sampling = rg_sampling_default() };
    rg_error err = { 0 };
    int32_t *ids;
    size_t n;

    assert_ok(rg_encode(e, prompt, strlen(prompt), RG_ENCODE_DEFAULT, &ids, &n, &err), err);
    p.prompt = ids;
    p.n_prompt = (int32_t)n;
    p.sampling.seed = seed;
    p.sampling.temperature = 0.6f;
    p.sampling.min_tokens = (int32_t)(seed % 3) * 10;
    p.stop = stop;
    p.n_stop = source ? 0 : 2;
    p.grammar = source ? rg_grammar_new(e, source, &err) : NULL;
    assert_ok(!source || p.grammar, err);
    *out = (answer){ 0 };
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    collect(r, out, u);
    rg_grammar_close(p.grammar);
    rg_ids_free(ids);
}

static void drafts_keep_to_grammars_and_stops(void **state)
{
    static const char list[] = "root ::= (\"The \" (\"cat\" | \"dog\") \" sat. \")+ \"End.\"", schema[] =
        "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"enum\":[\"Tom\",\"Tim\",\"Tina\"]},"
        "\"age\":{\"type\":\"integer\"}},\"required\":[\"name\",\"age\"],\"additionalProperties\":false},\"minItems\":3}";
    static const rg_grammar_source sources[] = { { RG_GRAMMAR_GBNF, list, sizeof list - 1, NULL },
                                                 { RG_GRAMMAR_JSON_SCHEMA, schema, sizeof schema - 1, NULL } };
    static const char prompt[] = "The cat sat. The dog sat. The cat sat. [{\"name\": \"Tom\", \"age\": 3}, "
                                 "{\"name\": \"Tim\", \"age\": 3},";
    rg_engine *plain = open_with(TALES, NULL, 0), *drafting = open_with(TALES, "ngram", 5);
    answer *a = calloc(2, sizeof *a);
    int n_accepted[3] = { 0 };

    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++)
        for (size_t k = 0; k < 3; k++) {
            const rg_grammar_source *source = k < 2 ? &sources[k] : NULL;
            rg_usage u;

            ask_story(plain, source, prompt, seed, &a[0], &u);
            ask_story(drafting, source, prompt, seed, &a[1], &u);
            n_accepted[k] += u.n_accepted;
            assert_memory_equal(&a[0].ids, &a[1].ids, sizeof a->ids);
            assert_int_equal(a[0].finish, a[1].finish);
            assert_string_equal(a[0].text, a[1].text);
        }
    for (size_t k = 0; k < 3; k++)
        assert_true(n_accepted[k] > 0);
    rg_engine_check(drafting);
    rg_close(plain);
    rg_close(drafting);
    free(a);
}

static void copy_file(const char *from, const char *name, const char *to)
{
    char path[600];
    size_t n;
    rg_error err = { 0 };

    snprintf(path, sizeof path, "%s/%s", from, name);
    char *text = rg_file_slurp(path, 1 << 24, &n, &err);
    assert_ok(text, err);
    snprintf(path, sizeof path, "%s/%s", to, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
    rg_free(text);
}

/* The small model with rows of zeros for ids that its vocabulary does not have. */
static const char *with_padding(void)
{
    enum { MORE = 8 };
    const char *to = test_variant("tales-padded", "llama", "config.json", NULL, NULL);
    char path[600];
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(TALES, RG_CKPT_DEFAULT, &err);

    assert_ok(c, err);
    copy_file(TALES, "tokenizer.json", to);
    copy_file(TALES, "config.json", to);
    snprintf(path, sizeof path, "sed -i 's/\"vocab_size\": 4096/\"vocab_size\": %d/' %s/config.json", 4096 + MORE, to);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    rg_ckpt_writer *w = rg_safetensors_create(path, &err);
    assert_ok(w, err);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
            const rg_tensor *t = rg_checkpoint_tensor(c, i);
            size_t more = t->shape[0] == 4096 ? t->bytes / 4096 * MORE : 0;
            int64_t shape[4] = { 0 };
            memcpy(shape, t->shape, (size_t)t->n_dims * sizeof *shape);
            shape[0] += more ? MORE : 0;
            if (!pass) {
                assert_ok(rg_ckpt_declare(w, t->name, t->type, t->n_dims, shape, &err), err);
                continue;
            }
            uint8_t *data = calloc(1, t->bytes + more);
            assert_ok(rg_tensor_read(c, t, 0, data, t->bytes, &err), err);
            assert_ok(rg_ckpt_write(w, data, t->bytes + more, &err), err);
            free(data);
        }
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint_close(c);
    return to;
}

/* Sizes of a model pad their vocabularies differently: fewer ids draft as well. */
static void fewer_padded_ids_draft(void **state)
{
    char path[600];
    answer *a = calloc(1, sizeof *a);
    rg_usage u;

    (void)state;
    snprintf(path, sizeof path, "%s", with_padding());
    rg_engine *e = open_with(path, TALES, 3);
    ask_story(e, NULL, "The cat sat.", 1, a, &u);
    assert_true(u.n_drafted > 0 && u.n_accepted > u.n_drafted / 2); /* both are one model */
    rg_close(e);
    free(a);
}

/* The shipped model with the shipped draft, which its folder names. */
static void a_smaller_model_drafts(void **state)
{
    rg_engine *plain = open_with(LARGE, NULL, 0);
    answers *want = ask_all(plain), *got;
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    (void)state;
    check_draft(LARGE, TALES, want);
    o.draft = "auto";
    rg_engine *e = rg_open(LARGE, &o, &err);
    assert_ok(e, err);
    assert_string_equal(rg_engine_info(e).draft, "model+suffix");
    assert_non_null(strstr(rg_engine_info(e).draft_path, "tales-1m"));
    got = ask_all(e);
    check_same("auto", want, got);
    rg_close(e);
    e = rg_open(TALES, &o, &err); /* no model drafts for the smallest */
    assert_ok(e, err);
    assert_string_equal(rg_engine_info(e).draft, "suffix");
    rg_close(e);
    e = rg_open(RG_TEST_DATA "/mamba", &o, &err); /* whose state has no room for drafts that nobody asked for */
    assert_ok(e, err);
    assert_string_equal(rg_engine_info(e).draft, "none");
    rg_close(e);
    e = rg_open(RG_TEST_DATA "/llada", &o, &err); /* it fills in its answers */
    assert_ok(e, err);
    assert_string_equal(rg_engine_info(e).draft, "none");
    rg_close(e);
    rg_close(plain);
    free(want);
    free(got);
}

/* A model that fills in blocks drafts a block in one evaluation.  It and the model are alike in nothing but their ids, so
 * that few guesses are right. */
static void blocks_change_no_answer(void **state)
{
    rg_engine *plain = open_with(test_data("llama"), NULL, 0);
    answers *want = ask_all(plain);
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    (void)state;
    check_draft(test_data("llama"), RG_TEST_DATA "/sdar-b4", want);
    check_draft(test_data("llama"), RG_TEST_DATA "/sdar-b8", want);
    check_cramped(test_data("llama"), RG_TEST_DATA "/sdar-b8", want);
    o.draft = RG_TEST_DATA "/sdar-b8";
    o.verify = "rejection";
    assert_null(rg_open(RG_TEST_DATA "/llama", &o, &err));
    assert_non_null(strstr(err.text, "checked exactly: use verify coupled"));
    rg_close(plain);
    free(want);
}

static void a_smaller_self_drafts(void **state)
{
    (void)state;
    check_selves(LARGE);
    check_selves(RG_TEST_DATA "/mamba");
    check_selves(RG_TEST_DATA "/deepseek-v3");
    check_selves(RG_TEST_DATA "/gemma3n"); /* layers that read the K/V of earlier ones, which stay */
}

/* Rows that are no drafts are computed beside them. */
static void what_is_never_accepted_changes_nothing(void **state)
{
    static const char *const folders[] = { "llama", "gemma3", "deepseek-v3" };

    (void)state;
    for (size_t i = 0; i < (test_all() ? RG_LEN(folders) : 1); i++) {
        char path[512];

        snprintf(path, sizeof path, "%s", test_data(folders[i]));
        rg_engine *plain = open_with(path, NULL, 0);
        answers *want = ask_all(plain);
        check_draft(path, "lookahead", want);
        check_draft(path, "jacobi", want);
        rg_close(plain);
        free(want);
    }
}

/* Several answers to one request, and how many ids of drafts were accepted. */
static int ask_verified(const char *verify, float temperature, uint64_t seed, answer *out)
{
    static const int32_t prompt[] = { 5, 9, 17, 30, 31, 5, 9 };
    rg_options o = rg_options_default();
    rg_params p = { .prompt = prompt, .n_prompt = RG_LEN(prompt), .max_tokens = 24, .n_samples = MAX_SAMPLES,
                    .sampling = rg_sampling_default() };
    rg_error err = { 0 };
    rg_usage u;

    o.kv_bytes = (size_t)64 << 20;
    o.draft = verify ? TALES : "none";
    o.verify = verify;
    o.n_threads = 2;
    p.sampling.temperature = temperature;
    p.sampling.top_p = 0.9f;
    p.sampling.seed = seed;
    p.sampling.n_logprobs = 1;
    rg_engine *e = rg_open(LARGE, &o, &err);
    assert_ok(e, err);
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    memset(out, 0, MAX_SAMPLES * sizeof *out);
    collect(r, out, &u);
    rg_engine_check(e);
    rg_close(e);
    return u.n_accepted;
}

/* Greedily every way of judging gives the same text; by chance, a seed gives the same text again, and another one than
 * without drafts. */
static void guesses_are_judged_by_chance(void **state)
{
    static const char *const ways[] = { "coupled", "rejection", "typical" };
    answer *plain = calloc(3 * MAX_SAMPLES, sizeof *plain), *got = plain + MAX_SAMPLES, *again = got + MAX_SAMPLES;

    (void)state;
    ask_verified(NULL, 0, 3, plain);
    for (size_t i = 0; i < RG_LEN(ways); i++) {
        assert_true(ask_verified(ways[i], 0, 3, got) > 0);
        for (int k = 0; k < MAX_SAMPLES; k++) {
            assert_memory_equal(plain[k].ids, got[k].ids, sizeof got->ids);
            assert_memory_equal(plain[k].logprobs, got[k].logprobs, sizeof got->logprobs);
        }
    }
    ask_verified(NULL, 0.8f, 3, plain);
    for (size_t i = 0; i < RG_LEN(ways); i++) {
        assert_true(ask_verified(ways[i], 0.8f, 3, got) > 0);
        ask_verified(ways[i], 0.8f, 3, again);
        assert_memory_equal(got, again, MAX_SAMPLES * sizeof *got);
        bool same = true;
        for (int k = 0; k < MAX_SAMPLES; k++)
            same &= !memcmp(plain[k].ids, got[k].ids, sizeof got->ids);
        assert_int_equal(same, i == 0);
    }
    free(plain);
}

/* Beside requests whose long prompts the drafter computes at the same time, a seed gives the same text, too. */
static void check_beside_others(const char *verify, int32_t mirostat)
{
    enum { N_OTHERS = 5, N_LONG = 240 };
    rg_options o = rg_options_default();
    rg_params p = { .n_prompt = N_LONG, .max_tokens = 24, .n_samples = 1, .sampling = rg_sampling_default() };
    answer *got = calloc(2 + N_OTHERS, sizeof *got);
    int32_t prompt[N_LONG];
    rg_error err = { 0 };
    rg_usage u;

    o.kv_bytes = (size_t)64 << 20;
    o.draft = TALES;
    o.verify = verify;
    o.n_threads = 2;
    o.max_seqs = 1 + N_OTHERS;
    o.max_batch_rows = 2000; /* all prompts in one step */
    o.no_prefix_cache = true;
    p.prompt = prompt;
    p.sampling.mirostat = mirostat;
    p.sampling.mirostat_tau = 3;
    rg_engine *e = rg_open(LARGE, &o, &err);
    assert_ok(e, err);
    for (int round = 0; round < 2; round++) {
        rg_request *r[1 + N_OTHERS];

        for (int i = round ? N_OTHERS : 0; i >= 0; i--) { /* the one that is compared comes last */
            for (int k = 0; k < N_LONG; k++)
                prompt[k] = 300 + (k * (7 + i) + i * i + round * !!i) % 3000;
            p.sampling.seed = (uint64_t)i;
            r[i] = rg_submit(e, &p, &err);
            assert_ok(r[i], err);
        }
        for (int i = round ? N_OTHERS : 0; i >= 0; i--)
            collect(r[i], &got[i ? 1 + i : round], &u);
        assert_true(u.n_accepted > 0);
    }
    assert_int_equal(got[0].n, 24);
    assert_memory_equal(got[0].ids, got[1].ids, sizeof got->ids);
    rg_close(e);
    free(got);
}

static void by_chance_the_text_is_the_same_beside_others(void **state)
{
    (void)state;
    check_beside_others("rejection", 0);
    check_beside_others("rejection", 2); /* whose bound follows the ids of a draft */
    check_beside_others("typical", 1);
}

static void refuse(const char *model, const char *draft, const char *why)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    o.draft = draft;
    o.kv_bytes = (size_t)64 << 20;
    if (rg_open(model, &o, &err))
        fail_msg("%s took %s", model, draft);
    if (!strstr(err.text, why))
        fail_msg("%s: %s", why, err.text);
}

/* A golden's network with one thing changed in its config. */
static void refuse_changed(const char *folder, const char *find, const char *replace, const char *why)
{
    char draft[600];

    snprintf(draft, sizeof draft, "eagle:%s", test_variant("changed", folder, "config.json", find, replace));
    refuse(test_data("llama"), draft, why);
}

static void networks_are_refused_by_name(void **state)
{
    (void)state;
    refuse(TALES, "medusa:" RG_TEST_DATA "/speculation/medusa", "heads of width 64 cannot draft for a model of width 128");
    refuse(TALES, "eagle:" RG_TEST_DATA "/speculation/eagle1", "a network of width 64 cannot draft for a model of width 128");
    refuse(RG_TEST_DATA "/llama", "eagle:" RG_TEST_DATA "/llama", "not of Medusa heads, EAGLE or EAGLE-3");
    refuse(RG_TEST_DATA "/llama", "eagle:" RG_TEST_DATA "/speculation/medusa", "Medusa heads, which does not draft as eagle");
    refuse(RG_TEST_DATA "/llama", "medusa:" RG_TEST_DATA "/speculation/eagle3", "EAGLE-3, which does not draft as medusa");
    refuse(RG_TEST_DATA "/llama", "eagle:" RG_TEST_DATA "/llama/model.gguf", "GGUF has no form");
    refuse(RG_TEST_DATA "/llama", "mtp", "it brings no module that predicts further tokens");
    refuse(RG_TEST_DATA "/deepseek-v3", "mtp", "there is no tensor 'model.layers.3.eh_proj.weight'");
    refuse(RG_TEST_DATA "/llama", "mtp:" RG_TEST_DATA "/llama", "takes no path");
    refuse(RG_TEST_DATA "/llama", "medusa", "needs a path");
    refuse(RG_TEST_DATA "/llama", "medusa:" RG_TEST_DATA "/no-such", "no-such");
    refuse_changed("speculation/eagle1", "\"vocab_size\":320", "\"vocab_size\":319", "319 ids cannot draft for one of 320");
    refuse_changed("speculation/eagle1", "\"hidden_act\":\"silu\"", "\"hidden_act\":\"relu\"", "hidden_act");
    refuse_changed("speculation/eagle3", "\"draft_vocab_size\":128", "\"draft_vocab_size\":127", "127");
    refuse_changed("speculation/eagle3", "\"draft_vocab_size\":128", "\"draft_vocab_size\":321", "321 where the model has 320");
    refuse_changed("speculation/eagle3-speculators", "layer_ids\":[0,1,2]", "layer_ids\":[0,1,3]", "layer 3 of a model of 3");
    refuse_changed("speculation/eagle3-speculators", "\"fc_norm\":false", "\"fc_norm\":true", "fc_norm");
}

static void refusals_are_clear(void **state)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    (void)state;
    o.draft = "no-such-drafter";
    assert_null(rg_open(TALES, &o, &err));
    assert_non_null(strstr(err.text, "no-such-drafter"));
    assert_non_null(strstr(err.text, "ngram"));
    refuse(TALES, "ngram:there", "ngram takes no path");
    refuse(RG_TEST_DATA "/mamba", "lookahead", "takes chains only");
    refuse(TALES, RG_TEST_DATA "/stories260K.gguf", "512 ids cannot draft for one of 4096");
    refuse(TALES, RG_TEST_DATA "/llama", "no tokenizer");
    refuse(RG_TEST_DATA "/llama", RG_TEST_DATA "/llada", "this diffusion model (LLaDAModelLM) cannot draft");
    refuse(RG_TEST_DATA "/llama", RG_TEST_DATA "/dream", "this diffusion model (DreamModel) cannot draft");
    refuse(RG_TEST_DATA "/llama", RG_TEST_DATA "/diffusion-gemma",
           "this diffusion model (DiffusionGemmaForBlockDiffusion) cannot draft");
    refuse(TALES, RG_TEST_DATA "/sdar-b4", "no tokenizer");
    refuse(RG_TEST_DATA "/llama", RG_TEST_DATA "/bert", "has no next id");
    refuse(RG_TEST_DATA "/llama", TALES, "no tokenizer");
    refuse(RG_TEST_DATA "/llama", RG_TEST_DATA "/speculation", "no config.json");
    o.draft = "ngram";
    o.verify = "no-such-way";
    assert_null(rg_open(TALES, &o, &err));
    assert_non_null(strstr(err.text, "coupled, rejection, typical"));
    o.verify = NULL;
    o.max_draft = RG_DRAFT_PLACES + 1;
    assert_null(rg_open(TALES, &o, &err));
    assert_int_equal(err.code, RG_E_USAGE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#define GOLDEN(test, folder, worlds) cmocka_unit_test(test),
#define WHOLE(test, folder)
#define ENCODER(test, folder)
#include "model/goldens.def"
#undef GOLDEN
#undef WHOLE
#undef ENCODER
        cmocka_unit_test(drafts_keep_to_grammars_and_stops),
        cmocka_unit_test(fewer_padded_ids_draft),
        cmocka_unit_test(a_smaller_model_drafts),
        cmocka_unit_test(blocks_change_no_answer),
        cmocka_unit_test(a_smaller_self_drafts),
        cmocka_unit_test(what_is_never_accepted_changes_nothing),
        cmocka_unit_test(guesses_are_judged_by_chance),
        cmocka_unit_test(by_chance_the_text_is_the_same_beside_others),
        cmocka_unit_test(networks_change_no_answer),
        cmocka_unit_test(networks_are_refused_by_name),
        cmocka_unit_test(refusals_are_clear),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
