/* test_given_rows.c -- given rows by the public API: with every kind of drafter, by tree search, as embeddings and scores,
 * and as log-probabilities, they give what the ids give whose rows they are; and penalties do not look at them. */
#include "support/engine.h"
#include "support/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TALES RG_SOURCE_DIR "/models/tales-1m"

enum { N_PROMPT = 90, N_OUT = 24, N_RUNS = 2 };

typedef struct rows {
    test_model m;
    int32_t plain[N_PROMPT], ids[N_PROMPT];
    rg_given_rows given[N_RUNS];
} rows;

/* A prompt that repeats itself, and the same with rows for some of its ids; of the model at path. */
static void rows_open(rows *r, const char *path, int32_t vocab_size)
{
    static const rg_given_rows runs[N_RUNS] = { { .at = 12, .n = 20 }, { .at = 70, .n = 9 } };

    *r = (rows){ 0 };
    test_model_open(&r->m, path, NULL);
    for (int32_t i = 0; i < N_PROMPT; i++)
        r->ids[i] = r->plain[i] = 5 + i * i % 7 * 11 % (vocab_size - 5);
    for (int k = 0; k < N_RUNS; k++) {
        r->given[k] = runs[k];
        r->given[k].rows = test_embedded(r->m.m, r->plain + runs[k].at, runs[k].n);
        for (int32_t i = 0; i < runs[k].n; i++)
            r->ids[runs[k].at + i] = -1;
    }
}

static void rows_close(rows *r)
{
    for (int k = 0; k < N_RUNS; k++)
        free((void *)(uintptr_t)r->given[k].rows);
    test_model_close(&r->m);
}

static bool is_given(const rows *r, int32_t position)
{
    return r->ids[position] < 0;
}

static rg_params params_of(const rows *r, bool plain)
{
    rg_params p = { .prompt = plain ? r->plain : r->ids, .n_prompt = N_PROMPT, .max_tokens = N_OUT, .n_samples = 1,
                    .given = plain ? NULL : r->given, .n_given = plain ? 0 : N_RUNS, .sampling = rg_sampling_default() };

    p.sampling.n_logprobs = 0;
    p.sampling.ignore_eos = true;
    p.sampling.temperature = 0;
    return p;
}

typedef struct answer {
    int32_t ids[N_OUT];
    float logprobs[N_OUT];
    rg_usage usage;
} answer;

static rg_request *submit(rg_engine *e, const rg_params *p)
{
    rg_error err = { 0 };
    rg_request *r = rg_submit(e, p, &err);

    assert_ok(r, err);
    return r;
}

static void ask(rg_engine *e, const rg_params *p, answer *out)
{
    rg_request *r = submit(e, p);
    int32_t n = 0;
    rg_token t;

    *out = (answer){ 0 };
    while (rg_next(r, &t))
        if (t.id >= 0) {
            out->ids[n] = t.id;
            out->logprobs[n++] = t.logprob;
        }
    assert_int_equal(n, p->max_tokens);
    out->usage = rg_request_usage(r);
    rg_request_close(r);
}

static void same(const answer *got, const answer *want)
{
    assert_memory_equal(got->ids, want->ids, sizeof want->ids);
    assert_memory_equal(got->logprobs, want->logprobs, sizeof want->logprobs);
}

static void drafts_change_nothing(const char *path, const char *draft, bool can)
{
    rg_options o = test_exact_options(4);
    rg_params p, plain;
    answer want, got;
    rows r;

    rg_engine *e = test_open(path, &o);
    rows_open(&r, path, rg_engine_info(e).vocab_size);
    assert_int_equal(rg_engine_info(e).given_dim, r.m.m->config.dim);
    p = params_of(&r, false);
    plain = params_of(&r, true);
    ask(e, &plain, &want);
    rg_close(e);

    o.draft = draft;
    e = test_open(path, &o);
    for (int round = 0; round < 3; round++) { /* from the cache, too; and beside a prompt of ids */
        rg_request *other = submit(e, &plain);

        ask(e, &p, &got);
        same(&got, &want);
        assert_true(can || got.usage.n_drafted == 0);
        assert_int_equal(got.usage.n_prompt, N_PROMPT);
        rg_request_close(other);
    }
    ask(e, &plain, &got);
    same(&got, &want);
    assert_true(can || got.usage.n_drafted > 0); /* for ids it drafts */
    rg_engine_check(e);
    rg_close(e);
    rows_close(&r);
}

static void with_every_kind_of_drafter(void **state)
{
    (void)state;
    drafts_change_nothing(TALES, "ngram", true);
    drafts_change_nothing(TALES, "suffix", true);
    drafts_change_nothing(TALES, "lookahead", true);
    drafts_change_nothing(TALES, "jacobi", true);
    drafts_change_nothing(TALES, "auto", true);
    drafts_change_nothing(TALES, TALES, false);
    drafts_change_nothing(RG_TEST_DATA "/llama", "medusa:" RG_TEST_DATA "/speculation/medusa", true);
    drafts_change_nothing(RG_TEST_DATA "/llama", "eagle:" RG_TEST_DATA "/speculation/eagle3", false);
    drafts_change_nothing(RG_TEST_DATA "/speculation/mtp-qwen", "mtp", false);
}

/* Positions of rows have no log-probability; those of ids have that of the plain prompt. */
static void prompt_logprobs_are_those_of_ids(void **state)
{
    rg_options o = test_exact_options(2);
    rg_engine *e = test_open(TALES, &o);
    rg_request *q[2];
    rg_token t;
    rows r;

    (void)state;
    rows_open(&r, TALES, rg_engine_info(e).vocab_size);
    for (int i = 0; i < 2; i++) {
        rg_params p = params_of(&r, i == 0);

        p.prompt_logprobs = true;
        p.n_prompt_tops = 2;
        p.max_tokens = 0;
        q[i] = submit(e, &p);
        while (rg_next(q[i], &t))
            assert_int_equal(t.finish, RG_FINISH_LENGTH);
    }
    for (int32_t at = 1; at < N_PROMPT; at++) {
        rg_prompt_logprob want, got;

        assert_true(rg_request_prompt_logprob(q[0], at, &want));
        assert_true(rg_request_prompt_logprob(q[1], at, &got) == !is_given(&r, at));
        if (is_given(&r, at))
            continue;
        assert_true(got.id == want.id && got.rank == want.rank && got.n_top == 2);
        assert_memory_equal(&got.logprob, &want.logprob, sizeof got.logprob);
        assert_memory_equal(got.top, want.top, 2 * sizeof *got.top);
    }
    rg_request_close(q[0]);
    rg_request_close(q[1]);
    rg_close(e);
    rows_close(&r);
}

/* A rule that looks at the prompt sees its ids alone. */
static void penalties_look_at_ids(void **state)
{
    rg_options o = test_exact_options(2);
    rg_engine *e = test_open(TALES, &o);
    answer free_of_rules, ruled, plain;
    rows r;

    (void)state;
    rows_open(&r, TALES, rg_engine_info(e).vocab_size);
    rg_params p = params_of(&r, false), ids = params_of(&r, true);

    ask(e, &p, &free_of_rules);
    for (int32_t i = 0; i < N_PROMPT; i++) /* the likeliest id stands in the prompt as a row alone */
        if (!is_given(&r, i))
            assert_int_not_equal(r.ids[i], free_of_rules.ids[0]);
    p.sampling.repetition_penalty = 100;
    p.sampling.dry_multiplier = 50;
    p.sampling.no_repeat_ngram = 4;
    p.max_tokens = ids.max_tokens = 1;
    ask(e, &p, &ruled);
    assert_int_equal(ruled.ids[0], free_of_rules.ids[0]);
    ids.sampling = p.sampling;
    ask(e, &ids, &plain);
    rg_close(e);
    rows_close(&r);
}

static void tree_search_takes_rows(void **state)
{
    rg_options o = test_exact_options(4);
    rg_engine *e = test_open(TALES, &o);
    double score[2];
    answer out[2];
    rows r;

    (void)state;
    rows_open(&r, TALES, rg_engine_info(e).vocab_size);
    for (int i = 0; i < 2; i++) {
        rg_params p = params_of(&r, i == 0);
        rg_token t;
        int32_t n = 0;

        p.max_tokens = 5;
        p.search.simulations = 12;
        rg_request *found = submit(e, &p);
        while (rg_next(found, &t))
            if (t.id >= 0)
                out[i].ids[n++] = t.id;
        assert_int_equal(n, 5);
        score[i] = rg_request_answer_score(found, 0);
        rg_request_close(found);
    }
    assert_memory_equal(out[0].ids, out[1].ids, 5 * sizeof *out[0].ids);
    assert_memory_equal(&score[0], &score[1], sizeof score[0]);
    rg_close(e);
    rows_close(&r);
}

/* Of a diffusion model: a trace has -1 where a row is given. */
static void traces_have_no_numbers(void **state)
{
    rg_options o = test_exact_options(2);
    rg_engine *e = test_open(test_data("sdar-b4"), &o);
    rg_request *q[2];
    rg_token t;
    rows r;

    (void)state;
    rows_open(&r, test_data("sdar-b4"), 200);
    for (int i = 0; i < 2; i++) {
        rg_params p = params_of(&r, i == 0);

        p.sampling.n_logprobs = -1;
        p.max_tokens = 8;
        p.diffusion.trace = true;
        q[i] = submit(e, &p);
        while (rg_next(q[i], &t))
            ;
    }
    for (int32_t k = 0;; k++) {
        int32_t n[2] = { 0 };
        const int32_t *ids[2];

        for (int i = 0; i < 2; i++)
            ids[i] = rg_request_trace(q[i], 0, k, &n[i]);
        assert_true(!ids[0] == !ids[1] && (ids[0] || k > 0));
        if (!ids[0])
            break;
        assert_true(n[0] == n[1] && n[0] >= N_PROMPT + 8);
        for (int32_t i = 0; i < n[0]; i++)
            assert_int_equal(ids[1][i], i < N_PROMPT && is_given(&r, i) ? -1 : ids[0][i]);
    }
    rg_request_close(q[0]);
    rg_request_close(q[1]);
    rg_close(e);
    rows_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_every_kind_of_drafter),
        cmocka_unit_test(prompt_logprobs_are_those_of_ids),
        cmocka_unit_test(penalties_look_at_ids),
        cmocka_unit_test(tree_search_takes_rows),
        cmocka_unit_test(traces_have_no_numbers),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
