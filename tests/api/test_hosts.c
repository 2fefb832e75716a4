/* test_hosts.c -- several engines of a process on one host: the same answers as each alone, one budget of memory, and
 * engines that come and go while others answer. */
#include "ridge.h"
#include "support/model.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { N_PROMPT = 100, N_TOKENS = 24, MODELS = 4 };

/* Two decoders, one with a model that drafts for it; a recurrent hybrid; an encoder. */
static const struct {
    const char *path, *draft;
    bool embeds;
} models[MODELS] = {
    { "models/tales-7m", "auto", false },
    { "tests/golden/llama", NULL, false },
    { "tests/golden/jamba", NULL, false },
    { "tests/golden/bert", NULL, true },
};

static rg_engine *open_on(rg_host *host, int i, rg_error *err)
{
    rg_options o = rg_options_default();
    char path[600];

    snprintf(path, sizeof path, "%s/%s", RG_SOURCE_DIR, models[i].path);
    o.host = host;
    o.n_threads = 2;
    o.kv_bytes = (size_t)16 << 20;
    o.draft = models[i].draft;
    return rg_open(path, &o, err);
}

typedef struct answer {
    int32_t ids[N_TOKENS];
    float numbers[N_TOKENS]; /* log-probabilities, or the first of an embedding */
    int n;
} answer;

static rg_request *ask(rg_engine *e, int i, int seed)
{
    int32_t ids[N_PROMPT], vocab = rg_engine_info(e).vocab_size;
    rg_params p = { .prompt = ids, .n_prompt = models[i].embeds ? 30 : N_PROMPT, .n_samples = 1,
                    .sampling = rg_sampling_default() };
    rg_error err;

    for (int k = 0; k < N_PROMPT; k++)
        ids[k] = 5 + (k * k + 7 * seed) % (vocab - 5);
    p.max_tokens = models[i].embeds ? 0 : N_TOKENS;
    p.embed = models[i].embeds ? RG_POOLING_MEAN : RG_POOLING_NONE;
    p.sampling.temperature = 0.8f;
    p.sampling.seed = (uint64_t)seed;
    p.sampling.ignore_eos = true;
    p.sampling.n_logprobs = models[i].embeds ? 0 : 1;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    return r;
}

static void read_all(rg_request *r, int i, answer *a)
{
    rg_token t;
    int32_t dim;

    *a = (answer){ 0 };
    while (rg_next(r, &t))
        if (t.id >= 0) {
            a->ids[a->n] = t.id;
            a->numbers[a->n++] = t.logprob;
        }
    if (models[i].embeds)
        memcpy(a->numbers, rg_request_embedding(r, &dim), sizeof a->numbers);
    else
        assert_int_equal(a->n, N_TOKENS);
    rg_request_close(r);
}

static void answers_are_those_of_each_alone(void **state)
{
    enum { EACH = 5 };
    static answer alone[MODELS][EACH], beside;
    rg_engine *engines[MODELS];
    rg_request *r[MODELS][EACH];
    rg_error err;
    rg_host *host = rg_host_open(&(rg_host_options){ .n_threads = 2 }, &err);

    (void)state;
    assert_ok(host, err);
    for (int i = 0; i < MODELS; i++) {
        rg_engine *e = open_on(NULL, i, &err);
        assert_ok(e, err);
        for (int k = 0; k < EACH; k++)
            read_all(ask(e, i, k), i, &alone[i][k]);
        rg_close(e);
        engines[i] = open_on(host, i, &err);
        assert_ok(engines[i], err);
    }
    for (int k = 0; k < EACH; k++)
        for (int i = 0; i < MODELS; i++)
            r[i][k] = ask(engines[i], i, k);
    for (int i = 0; i < MODELS; i++)
        for (int k = 0; k < EACH; k++) {
            read_all(r[i][k], i, &beside);
            assert_memory_equal(&beside, &alone[i][k], sizeof beside);
        }
    for (int i = 0; i < MODELS; i++) {
        rg_engine_check(engines[i]);
        rg_close(engines[i]);
    }
    rg_host_close(host);
}

typedef struct visitor {
    rg_host *host;
    bool failed;
} visitor;

/* Opens and closes engines, one of them in the middle of an answer. */
static void *come_and_go(void *arg)
{
    visitor *v = arg;
    rg_error err;

    for (int k = 0; k < 6 && !v->failed; k++) {
        rg_engine *e = open_on(v->host, 1 + k % 3, &err);

        v->failed = !e;
        if (!e)
            break;
        rg_request *r = ask(e, 1 + k % 3, k);
        if (k % 2) {
            answer a;
            read_all(r, 1 + k % 3, &a);
            rg_close(e);
        } else {
            rg_close(e); /* what runs ends as cancelled */
            rg_request_close(r);
        }
    }
    return NULL;
}

static void engines_come_and_go(void **state)
{
    rg_error err;
    visitor v = { .host = rg_host_open(NULL, &err) };
    rg_engine *e = open_on(v.host, 0, &err);
    answer first, again;
    pthread_t t;

    (void)state;
    assert_ok(e, err);
    read_all(ask(e, 0, 1), 0, &first);
    assert_int_equal(pthread_create(&t, NULL, come_and_go, &v), 0);
    for (int k = 0; k < 20; k++) {
        read_all(ask(e, 0, 1), 0, &again);
        assert_memory_equal(&again, &first, sizeof first);
    }
    pthread_join(t, NULL);
    assert_false(v.failed);
    rg_close(e);
    rg_host_close(v.host);
}

/* An engine that the budget has no room for is refused, by name; what one gives back another one may have. */
static void memory_is_one_budget(void **state)
{
    rg_error err;
    rg_host *host = rg_host_open(&(rg_host_options){ .n_threads = 1, .memory_bytes = (uint64_t)48 << 20 }, &err);
    const uint64_t all = rg_host_left(host);
    rg_engine *first = open_on(host, 1, &err);

    (void)state;
    assert_int_equal(all, 48 << 20);
    assert_ok(first, err);
    assert_true(rg_host_left(host) < all - (16 << 20));
    rg_engine *second = open_on(host, 2, &err);
    assert_ok(second, err);
    const uint64_t left = rg_host_left(host);
    assert_null(open_on(host, 0, &err));
    assert_int_equal(err.code, RG_E_LIMIT);
    assert_non_null(strstr(err.text, "are left"));
    assert_int_equal(rg_host_left(host), left);
    rg_close(second);
    rg_close(first);
    assert_int_equal(rg_host_left(host), all);
    rg_engine *e = open_on(host, 0, &err);
    assert_ok(e, err);
    rg_close(e);
    rg_host_close(host);
    host = rg_host_open(NULL, &err);
    assert_true(host && rg_host_left(host) == UINT64_MAX);
    rg_host_close(host);
    assert_null(rg_host_open(&(rg_host_options){ .n_threads = -1 }, &err));
    assert_int_equal(err.code, RG_E_USAGE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_each_alone),
        cmocka_unit_test(engines_come_and_go),
        cmocka_unit_test(memory_is_one_budget),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
