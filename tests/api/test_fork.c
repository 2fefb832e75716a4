/* test_fork.c -- rg_fork: a request that goes on from another one's state gives what it gives alone, bit for bit, with
 * models that keep all positions, a window of them or a state; it computes only what is new; while the other one runs,
 * after it ended or was cancelled, under preemption, and with given rows; and what it refuses. */
#include <string.h>

#include "support/engine.h"

enum { N_PROMPT = 150, N_OUT = 40, MOST = 8 };

typedef struct answer {
    int32_t ids[N_OUT];
    float logprobs[N_OUT];
    int32_t n;
    rg_usage usage;
} answer;

static int32_t prompt[N_PROMPT];

static rg_params params_of(uint64_t seed, int32_t max_tokens)
{
    rg_params p = { .prompt = prompt, .n_prompt = N_PROMPT, .max_tokens = max_tokens, .n_samples = 1,
                    .sampling = rg_sampling_default() };

    for (int32_t i = 0; i < N_PROMPT; i++)
        prompt[i] = 5 + i * i % 7 * 11 + i % 50;
    p.sampling.seed = seed;
    p.sampling.n_logprobs = 0;
    p.sampling.ignore_eos = true;
    return p;
}

static void read_all(rg_request *r, answer *out)
{
    rg_token t;

    while (rg_next(r, &t)) {
        if (t.id < 0)
            continue;
        out->ids[out->n] = t.id;
        out->logprobs[out->n++] = t.logprob;
    }
    out->usage = rg_request_usage(r);
    rg_request_close(r);
}

static rg_request *submit(rg_engine *e, const rg_params *p)
{
    rg_error err = { 0 };
    rg_request *r = rg_submit(e, p, &err);

    assert_ok(r, err);
    return r;
}

static rg_request *fork_of(rg_engine *e, rg_request *from, int32_t n_output, const int32_t *ids, int32_t n,
                           rg_params p)
{
    rg_error err = { 0 };

    p.prompt = ids;
    p.n_prompt = n;
    rg_request *r = rg_fork(e, from, 0, n_output, &p, &err);
    assert_ok(r, err);
    return r;
}

static void read_some(rg_request *r, int32_t n, answer *out)
{
    rg_token t;

    while (out->n < n && rg_next(r, &t))
        if (t.id >= 0)
            out->ids[out->n++] = t.id;
    assert_int_equal(out->n, n);
}

/* What the same ids give alone, in an engine that has seen nothing. */
static void alone(const char *model, const rg_options *o, const answer *first, int32_t n_output, const int32_t *more,
                  int32_t n_more, rg_params p, answer *out)
{
    int32_t ids[N_PROMPT + N_OUT + MOST];
    rg_engine *e = test_open(model, o);

    memcpy(ids, prompt, sizeof prompt);
    memcpy(ids + N_PROMPT, first->ids, (size_t)n_output * sizeof *ids);
    if (n_more)
        memcpy(ids + N_PROMPT + n_output, more, (size_t)n_more * sizeof *ids);
    p.prompt = ids;
    p.n_prompt = N_PROMPT + n_output + n_more;
    read_all(submit(e, &p), out);
    rg_close(e);
}

static void check_same(const answer *a, const answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, (size_t)a->n * sizeof *a->logprobs);
}

static const int32_t more[] = { 17, 33, 9 };

/* Forks of a request that runs on, that has ended, and that is cancelled, with and without ids behind. */
static void check_model(const char *model, const rg_options *o)
{
    rg_engine *e = test_open(model, o);
    answer source = { 0 }, rest = { 0 }, all = { 0 };

    rg_params p = params_of(1, N_OUT), q = params_of(2, 12);
    rg_request *r = submit(e, &p);
    read_some(r, 20, &source);
    for (int i = 0; i < 4; i++) { /* it runs on, or has ended meanwhile */
        const int32_t n = i % 2 ? 20 : 20 - i, n_more = i < 2 ? 0 : 3;
        answer got = { 0 }, want = { 0 };

        read_all(fork_of(e, r, n, more, n_more, q), &got);
        alone(model, o, &source, n, more, n_more, q, &want);
        check_same(&got, &want);
    }
    read_all(r, &rest); /* the forks changed nothing */
    memcpy(all.ids, source.ids, sizeof all.ids);
    memcpy(all.ids + source.n, rest.ids, (size_t)rest.n * sizeof *all.ids);
    answer want = { 0 };
    alone(model, o, &source, 0, NULL, 0, p, &want);
    assert_memory_equal(all.ids, want.ids, sizeof all.ids);

    r = submit(e, &p);
    answer again = { 0 }, got = { 0 };
    read_some(r, 20, &again);
    rg_cancel(r);
    rg_request *f = fork_of(e, r, 20, more, 2, q);
    rg_request_close(r);
    read_all(f, &got);
    memset(&want, 0, sizeof want);
    alone(model, o, &source, 20, more, 2, q, &want);
    check_same(&got, &want);
    rg_engine_check(e);
    rg_close(e);
}

static void forks_equal_what_is_asked_alone(void **state)
{
    static const char *const models[] = { "llama", "gemma3", "mistral-swa", "mamba", "falcon-h1", "qwen3-next",
                                          "recurrent-gemma", "deepseek-v2", "gpt-oss" };
    rg_options o = test_exact_options(8);

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        print_message("%s\n", models[i]);
        check_model(test_data(models[i]), &o);
    }
    o.kv_type = "q4";
    check_model(test_data("llama"), &o);
    o.kv_type = "f32";
    o.no_prefix_cache = true;
    check_model(test_data("llama"), &o);
    check_model(test_data("mamba"), &o);
}

/* Rows that a fork computes: those of new ids alone, also with a state per sequence and without a prefix cache. */
static void a_fork_computes_what_is_new(void **state)
{
    static const char *const models[] = { "llama", "gemma3", "mamba", "falcon-h1" };
    rg_options o = test_exact_options(4);

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        rg_engine *e = test_open(test_data(models[i]), &o);
        rg_params p = params_of(1, 20), q = params_of(2, 2);
        answer source = { 0 }, got = { 0 };
        rg_request *r = submit(e, &p);

        read_some(r, 20, &source); /* all of it: where a recurrent model ends, its state is kept */
        read_all(fork_of(e, r, 20, more, 3, q), &got);
        rg_request_close(r);
        assert_int_equal(got.usage.n_prompt, N_PROMPT + 23);
        assert_int_equal(got.usage.n_cached, N_PROMPT + 19);
        rg_close(e);
    }
    /* Of a request that runs: its blocks, without any cache. */
    o.no_prefix_cache = true;
    rg_engine *e = test_open(test_data("llama"), &o);
    rg_params p = params_of(1, 4000), q = params_of(2, 2);
    answer source = { 0 }, got = { 0 };
    rg_request *r = submit(e, &p);
    read_some(r, 20, &source);
    read_all(fork_of(e, r, 20, more, 3, q), &got);
    assert_true(!got.usage.n_cached || got.usage.n_cached >= N_PROMPT + 19); /* 0: it ended before */
    assert_true(rg_engine_stats(e).n_cached_rows == (uint64_t)got.usage.n_cached);
    rg_request_close(r);
    rg_engine_check(e);
    rg_close(e);
}

/* Forks of a request whose prompt is not computed yet wait for it: it is computed once. */
static void forks_of_a_prompt_wait_for_it(void **state)
{
    static const char *const models[] = { "llama", "mamba" };
    rg_options o = test_exact_options(8);

    (void)state;
    o.max_batch_rows = 16;
    o.no_prefix_cache = true;
    for (size_t k = 0; k < RG_LEN(models); k++) {
        rg_engine *e = test_open(test_data(models[k]), &o);
        rg_params p = params_of(1, 3000), q = params_of(2, N_OUT); /* it runs until it is closed */
        answer got[3] = { 0 }, want = { 0 }, none = { 0 };
        rg_request *r = submit(e, &p), *f[3];

        for (int i = 0; i < 3; i++)
            f[i] = fork_of(e, r, 0, NULL, 0, q);
        for (int i = 0; i < 3; i++)
            read_all(f[i], &got[i]);
        rg_request_close(r);
        alone(test_data(models[k]), &o, &none, 0, NULL, 0, q, &want);
        for (int i = 0; i < 3; i++) {
            check_same(&got[i], &want);
            if (!k) /* a state moves on as soon as the prompt is computed */
                assert_int_equal(got[i].usage.n_cached, N_PROMPT - 1);
        }
        rg_close(e);
    }
}

/* With little more memory than one such sequence needs. */
static rg_engine *open_tight(const char *model, rg_options *o)
{
    rg_engine *e = NULL;

    o->max_seq_len = 256;
    for (o->kv_bytes = 1 << 16; !e || rg_engine_info(e).max_seq_len < 256; o->kv_bytes += o->kv_bytes / 4) {
        rg_close(e);
        e = rg_open(model, o, NULL);
    }
    return e;
}

/* More forks than there is memory for: state is swapped out, dropped and computed again. */
static void forks_survive_preemption(void **state)
{
    static const char *const models[] = { "llama", "gemma3", "falcon-h1" };
    static const char *const how[] = { "swap", "recompute" };
    enum { N_FORKS = 6 };

    (void)state;
    for (size_t k = 0; k < RG_LEN(models) * RG_LEN(how); k++) {
        const char *model = test_data(models[k / RG_LEN(how)]);
        rg_options o = test_exact_options(8);
        answer source = { 0 }, got[N_FORKS] = { 0 };
        rg_request *f[N_FORKS];

        o.preempt = how[k % RG_LEN(how)];
        rg_engine *e = open_tight(model, &o);
        rg_params p = params_of(1, N_OUT);
        rg_request *r = submit(e, &p);
        read_some(r, 10, &source);
        for (int i = 0; i < N_FORKS; i++)
            f[i] = fork_of(e, r, 10, more, i % 4, params_of((uint64_t)i, N_OUT));
        for (int i = 0; i < N_FORKS; i++)
            read_all(f[i], &got[i]);
        rg_request_close(r);
        rg_engine_check(e);
        rg_close(e);
        o = test_exact_options(8);
        for (int i = 0; i < N_FORKS; i++) {
            answer want = { 0 };

            alone(model, &o, &source, 10, more, i % 4, params_of((uint64_t)i, N_OUT), &want);
            check_same(&got[i], &want);
        }
    }
}

static void forks_of_forks_outlive_them(void **state)
{
    rg_options o = test_exact_options(4);
    rg_engine *e = test_open(test_data("llama"), &o);
    answer source = { 0 }, got = { 0 }, want = { 0 };

    (void)state;
    rg_params p = params_of(1, N_OUT);
    rg_request *r = submit(e, &p);
    read_some(r, 20, &source);
    for (int i = 0; i < 3; i++) { /* each without ids of its own: closed as soon as it is forked */
        rg_request *f = fork_of(e, r, i ? 0 : 20, NULL, 0, p);
        rg_request_close(r);
        r = f;
    }
    read_all(r, &got);
    alone(test_data("llama"), &o, &source, 20, NULL, 0, p, &want);
    check_same(&got, &want);
    rg_close(e);
}

static void what_cannot_be_forked_is_refused(void **state)
{
    rg_options o = test_exact_options(4);
    rg_engine *e = test_open(test_data("llama"), &o);
    rg_params p = params_of(1, 4), none = params_of(1, 4);
    rg_request *r = submit(e, &p);
    rg_error err = { 0 };
    answer all = { 0 };

    (void)state;
    none.n_prompt = 0;
    read_some(r, 4, &all);
    assert_null(rg_fork(e, r, 1, 0, &none, &err));
    assert_non_null(strstr(err.text, "tells 1"));
    assert_null(rg_fork(e, r, 0, 5, &none, &err));
    assert_non_null(strstr(err.text, "has 4 so far"));
    assert_null(rg_fork(e, r, 0, -1, &none, &err));
    none.n_prompt = 3;
    none.prompt = NULL;
    assert_null(rg_fork(e, r, 0, 2, &none, &err));
    none = p;
    none.n_given = 1;
    assert_null(rg_fork(e, r, 0, 2, &none, &err));
    assert_non_null(strstr(err.text, "given rows"));
    p.max_tokens = 0;
    assert_null(rg_fork(e, r, 0, 2, &p, &err));
    assert_non_null(strstr(err.text, "max_tokens"));
    rg_request_close(r);
    rg_engine_check(e);
    rg_close(e);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forks_equal_what_is_asked_alone),  cmocka_unit_test(a_fork_computes_what_is_new),
        cmocka_unit_test(forks_of_a_prompt_wait_for_it),    cmocka_unit_test(forks_survive_preemption),
        cmocka_unit_test(forks_of_forks_outlive_them),      cmocka_unit_test(what_cannot_be_forked_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
