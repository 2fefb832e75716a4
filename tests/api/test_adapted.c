/* test_adapted.c -- requests with LoRA adapters: the answer of each is the one that it gets from an engine that has this
 * adapter alone (or none), whatever runs beside it, with forks, drafts and preemption; and cached prefixes stay apart. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ridge.h"
#include "support/test.h"

enum { N_PROMPT = 100, N_OUT = 40, N_SAMPLES = 2, N_KINDS = 3 };

/* kinds 0: the model alone; 1 and 2: an adapter */
static const rg_adapter_option adapters[] = {
    { "patterns", RG_TEST_DATA "/adapters/llama" },
    { "plain", RG_TEST_DATA "/adapters/llama-gguf/adapter.gguf" },
};

typedef struct answers {
    int32_t ids[N_SAMPLES][N_OUT];
    float logprobs[N_SAMPLES][N_OUT];
    rg_usage usage;
} answers;

static rg_engine *open_with(const rg_adapter_option *from, int n, size_t kv_bytes, const char *draft)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    o.n_threads = 2;
    o.kv_bytes = kv_bytes;
    o.max_seqs = 8;
    o.max_seq_len = 256;
    o.max_batch_rows = 96;
    o.adapters = from;
    o.n_adapters = n;
    o.draft = draft;
    rg_engine *e = rg_open(RG_TEST_DATA "/llama", &o, &err);
    assert_ok(e, err);
    assert_int_equal(rg_engine_info(e).n_adapters, n);
    assert_true(!n == !rg_engine_info(e).adapter_bytes);
    return e;
}

/* The same prompt and seed for all kinds, so that only the adapter tells them apart. */
static rg_request *ask(rg_engine *e, int kind, int which)
{
    int32_t ids[N_PROMPT];
    rg_error err = { 0 };
    rg_params p = { .prompt = ids,
                    .n_prompt = N_PROMPT,
                    .max_tokens = N_OUT,
                    .n_samples = N_SAMPLES,
                    .sampling = rg_sampling_default(),
                    .adapter = kind ? adapters[kind - 1].name : NULL };

    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = (i * i + which) % 7 * 11 + 3;
    p.sampling.seed = 5;
    p.sampling.n_logprobs = 0;
    p.sampling.ignore_eos = true;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    return r;
}

static void collect(rg_request *r, answers *out)
{
    int n[N_SAMPLES] = { 0 };
    rg_token t;

    while (rg_next(r, &t))
        if (t.id >= 0) {
            assert_true(n[t.sample] < N_OUT);
            out->ids[t.sample][n[t.sample]] = t.id;
            out->logprobs[t.sample][n[t.sample]++] = t.logprob;
        }
    for (int i = 0; i < N_SAMPLES; i++)
        assert_int_equal(n[i], N_OUT);
    out->usage = rg_request_usage(r);
    rg_request_close(r);
}

static void check_same(const answers *a, const answers *b, int kind)
{
    if (memcmp(a->ids, b->ids, sizeof a->ids) || memcmp(a->logprobs, b->logprobs, sizeof a->logprobs))
        fail_msg("kind %d: another answer than alone", kind);
}

/* Two prompts of each kind, one after the other, by engines that have no other adapter. */
static void learn(answers want[2][N_KINDS])
{
    for (int kind = 0; kind < N_KINDS; kind++) {
        rg_engine *e = open_with(kind ? &adapters[kind - 1] : NULL, kind > 0, (size_t)64 << 20, NULL);

        for (int which = 0; which < 2; which++)
            collect(ask(e, kind, which), &want[which][kind]);
        rg_close(e);
    }
    for (int kind = 1; kind < N_KINDS; kind++) /* they do something, and not the same */
        assert_memory_not_equal(want[0][kind].logprobs, want[0][kind - 1].logprobs, sizeof want[0][0].logprobs);
}

static void all_at_once(rg_engine *e, answers want[2][N_KINDS])
{
    rg_request *r[2][N_KINDS];

    for (int which = 0; which < 2; which++)
        for (int kind = 0; kind < N_KINDS; kind++)
            r[which][kind] = ask(e, kind, which);
    for (int which = 0; which < 2; which++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            answers got;

            collect(r[which][kind], &got);
            check_same(&want[which][kind], &got, kind);
        }
    rg_engine_check(e);
}

static void answers_are_as_alone(void **state)
{
    static answers want[2][N_KINDS];
    rg_engine *e;

    (void)state;
    learn(want);
    e = open_with(adapters, 2, (size_t)64 << 20, NULL);
    all_at_once(e, want);
    all_at_once(e, want); /* from cached prefixes */
    assert_int_equal(rg_engine_stats(e).n_preempted, 0);
    rg_close(e);

    e = open_with(adapters, 2, (size_t)700 << 10, NULL);
    all_at_once(e, want);
    assert_true(rg_engine_stats(e).n_preempted > 0);
    rg_close(e);

    e = open_with(adapters, 2, (size_t)64 << 20, "ngram");
    all_at_once(e, want);
    assert_true(rg_engine_stats(e).n_drafts > 0);
    rg_close(e);

    e = open_with(adapters, 2, (size_t)64 << 20,
                  RG_TEST_DATA "/llama"); /* its drafts are the model's own, without one */
    all_at_once(e, want);
    assert_true(rg_engine_stats(e).n_draft_accepted > 0);
    rg_close(e);
}

static void prefixes_stay_apart(void **state)
{
    rg_engine *e = open_with(adapters, 2, (size_t)64 << 20, NULL);

    (void)state;
    for (int round = 0; round < 2; round++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            answers got;

            collect(ask(e, kind, 0), &got);
            assert_int_equal(got.usage.n_cached, round ? N_PROMPT - 1 : 0);
            assert_int_equal(got.usage.uncached, round ? RG_UNCACHED_NOTHING : RG_UNCACHED_NEW);
        }
    rg_close(e);
}

static void unknown_names_are_refused(void **state)
{
    rg_engine *e = open_with(adapters, 2, (size_t)64 << 20, NULL);
    const int32_t ids[] = { 1, 2 };
    rg_params p = { .prompt = ids,
                    .n_prompt = 2,
                    .max_tokens = 1,
                    .n_samples = 1,
                    .sampling = rg_sampling_default(),
                    .adapter = "other" };
    rg_error err = { 0 };

    (void)state;
    assert_null(rg_submit(e, &p, &err));
    assert_int_equal(err.code, RG_E_INPUT);
    assert_non_null(strstr(err.text, "no adapter is called 'other'"));
    assert_string_equal(rg_engine_adapter(e, 0), "patterns");
    assert_string_equal(rg_engine_adapter(e, 1), "plain");
    assert_null(rg_engine_adapter(e, 2));
    rg_close(e);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_as_alone),
        cmocka_unit_test(prefixes_stay_apart),
        cmocka_unit_test(unknown_names_are_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
