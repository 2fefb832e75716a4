/* test_given.c -- prompts with given rows in the step loop: rows equal to those of ids give the bits of these ids at every
 * cut of the prompt and from every cached prefix, one that ends within the rows included; equal contents are found, others
 * are not.  (test_work.c has them beside other work and preempted, test_engine.c with a fake model and at random.) */
#include "support/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/loop.h"
#include "engine/states.h"

enum { MAX_ROWS = 256, MAX_LEN = 384, N_OUT = 6, MAX_RUNS = 3 };

typedef struct world {
    test_model model;
    rg_runner *runner;
    rg_request_model facts;
    int32_t budgets[2]; /* of the first step, and of the later ones */
    int n_budgets;
    int32_t n_samples;
} world;

typedef struct answer {
    int32_t ids[N_OUT];
    float logprobs[N_OUT];
} answer;

/* The same prompt, as ids alone and with given rows. */
typedef struct prompt {
    int32_t plain[MAX_LEN], ids[MAX_LEN], n;
    rg_given_rows given[MAX_RUNS];
    int32_t n_given;
} prompt;

static void world_open(world *w, const char *name)
{
    rg_error err;

    *w = (world){ .n_samples = 1 };
    test_model_open(&w->model, test_data(name), "f32");
    w->runner = rg_model_runner_new(w->model.m, &(rg_runner_options){ .backend = rg_backend_find("auto", NULL), .n_threads = 2,
                                                                      .exact = true, .max_rows = MAX_ROWS, .max_logits = 8,
                                                                      .max_seqs = 4, .max_seq_len = MAX_LEN,
                                                                      .state_bytes = 8 << 20 }, &err);
    assert_ok(w->runner, err);
    const rg_config *c = &w->model.m->config;
    w->facts = (rg_request_model){ .vocab_size = c->vocab_size, .max_seq_len = MAX_LEN, .dim = c->dim, .config = c,
                                   .sees = c->sees, .max_rows = MAX_ROWS, .max_logits = 8,
                                   .given_dim = (int32_t)w->model.m->outer.w[W_EMBED_TOKENS]->cols };
}

static void world_close(world *w)
{
    rg_model_runner_free(w->runner);
    test_model_close(&w->model);
}

static int32_t budget(void *arg)
{
    world *w = arg;

    return w->budgets[w->n_budgets++ > 0];
}

/* The first step has so many rows. */
static rg_loop *loop_of(world *w, bool prefixes, int32_t first)
{
    rg_error err;
    rg_loop *l = rg_loop_new(w->runner, &(rg_loop_options){ .max_seqs = 2, .max_rows = MAX_ROWS, .max_seq_len = MAX_LEN,
                                                            .max_waiting = 4, .use_prefixes = prefixes }, &err);

    assert_ok(l, err);
    w->budgets[0] = first;
    w->budgets[1] = MAX_ROWS;
    w->n_budgets = 0;
    rg_loop_set_budget(l, budget, w);
    return l;
}

static prompt *prompt_of(const world *w, int32_t n, const rg_given_rows *runs, int32_t n_given)
{
    prompt *p = calloc(1, sizeof *p);

    assert_non_null(p);
    p->n = n;
    p->n_given = n_given;
    for (int32_t i = 0; i < n; i++)
        p->ids[i] = p->plain[i] = 1 + (i * i + 3 * i) % 230;
    for (int32_t k = 0; k < n_given; k++) {
        p->given[k] = runs[k];
        p->given[k].rows = test_embedded(w->model.m, p->plain + runs[k].at, runs[k].n);
        for (int32_t i = 0; i < runs[k].n; i++)
            p->ids[runs[k].at + i] = -1;
    }
    return p;
}

static void prompt_free(prompt *p)
{
    for (int32_t k = 0; k < p->n_given; k++)
        free((void *)(uintptr_t)p->given[k].rows);
    free(p);
}

static rg_request *submit(const world *w, rg_loop *l, const prompt *p, bool plain)
{
    rg_params params = { .prompt = plain ? p->plain : p->ids, .n_prompt = p->n, .max_tokens = N_OUT, .n_samples = w->n_samples,
                         .given = plain ? NULL : p->given, .n_given = plain ? 0 : p->n_given,
                         .sampling = rg_sampling_default() };
    rg_error err;

    params.sampling.n_logprobs = 0;
    params.sampling.ignore_eos = true;
    params.sampling.seed = 3;
    rg_request *r = rg_request_new(&params, &w->facts, &err);
    assert_ok(r, err);
    assert_ok(rg_loop_submit(l, r, &err), err);
    return r;
}

/* How many of its positions were cached. */
static int32_t ask(const world *w, rg_loop *l, const prompt *p, bool plain, answer *out)
{
    rg_request *r = submit(w, l, p, plain);
    int32_t n = 0;
    rg_token t;

    while (rg_loop_step(l))
        rg_loop_check(l);
    while (rg_request_poll(r, &t) > 0)
        if (t.id >= 0) {
            out->ids[n] = t.id;
            out->logprobs[n++] = t.logprob;
        }
    assert_int_equal(n, N_OUT);
    const int32_t n_cached = rg_request_used(r).n_cached;
    assert_int_equal(rg_request_used(r).n_prompt, p->n);
    rg_request_unref(r);
    return n_cached;
}

static void same(const answer *got, const answer *want, const char *name, int32_t at)
{
    if (memcmp(got, want, sizeof *got))
        fail_msg("%s, %d: not what the ids give", name, (int)at);
}

static const char *const models[] = { "llama", "gemma3", "jamba", "deepseek-v3", "opt", "granite" };

static void every_cut_gives_the_same(void **state)
{
    static const rg_given_rows runs[] = { { .at = 10, .n = 20 }, { .at = 40, .n = 1 }, { .at = 66, .n = 14 } };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        world w;
        answer want, got;

        world_open(&w, models[i]);
        prompt *p = prompt_of(&w, 80, runs, 3);
        rg_loop *l = loop_of(&w, false, MAX_ROWS);
        ask(&w, l, p, true, &want);
        rg_loop_free(l);
        for (int32_t cut = 1; cut <= p->n; cut += TEST_SLOWER > 1 ? 9 : 1) {
            l = loop_of(&w, false, cut);
            ask(&w, l, p, false, &got);
            same(&got, &want, models[i], cut);
            rg_loop_free(l);
        }
        prompt_free(p);
        world_close(&w);
    }
}

/* Models with recurrent state share whole blocks of 64 alone; the last one ends within the rows. */
static void equal_contents_are_found_and_no_others(void **state)
{
    static const rg_given_rows run = { .at = 30, .n = 170 };
    enum { N = 210 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        answer want, got;
        world w;

        world_open(&w, models[i]);
        prompt *p = prompt_of(&w, N, &run, 1);
        rg_loop *l = loop_of(&w, true, MAX_ROWS);
        float *rows = (float *)(uintptr_t)p->given[0].rows;

        assert_int_equal(ask(&w, l, p, true, &want), 0);
        const int32_t all = ask(&w, l, p, true, &got), before = all == N - 1 ? run.at : 0; /* what is shared of a block */

        assert_true(all >= 192);
        assert_int_equal(ask(&w, l, p, false, &got), before); /* ids are no rows */
        same(&got, &want, models[i], 0);
        assert_int_equal(ask(&w, l, p, false, &got), all);
        same(&got, &want, models[i], 1);
        rows[60 * w.facts.given_dim] += 1;
        assert_int_equal(ask(&w, l, p, false, &got), before); /* another content of as many rows */
        assert_memory_not_equal(got.logprobs, want.logprobs, sizeof got.logprobs);
        assert_int_equal(ask(&w, l, p, false, &got), all);
        rows[60 * w.facts.given_dim] -= 1;
        p->given[0].hash[3] = 1; /* a hash of the caller's is not that of the rows */
        assert_int_equal(ask(&w, l, p, false, &got), before);
        assert_int_equal(ask(&w, l, p, false, &got), all);
        p->given[0].hash[3] = 2;
        assert_int_equal(ask(&w, l, p, false, &got), before);
        rg_loop_free(l);
        prompt_free(p);
        world_close(&w);
    }
}

/* A request that is cancelled after its first step leaves the beginning of its rows; how much of it is found. */
static int32_t cancelled_after(world *w, const prompt *p, bool plain, int32_t cut, answer *out)
{
    rg_loop *l = loop_of(w, true, cut);
    rg_request *r = submit(w, l, p, plain);
    int32_t n_cached;

    assert_true(rg_loop_step(l));
    atomic_store(&r->cancelled, true);
    while (rg_loop_step(l))
        rg_loop_check(l);
    rg_request_unref(r);
    n_cached = ask(w, l, p, plain, out);
    rg_loop_free(l);
    return n_cached;
}

static void a_prefix_may_end_within_the_rows(void **state)
{
    static const rg_given_rows run = { .at = 30, .n = 170 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        world w;

        world_open(&w, models[i]);
        prompt *p = prompt_of(&w, 210, &run, 1);
        for (int32_t cut = 45; cut < 200; cut += 31) {
            answer want, got;
            const int32_t n = cancelled_after(&w, p, true, cut, &want);

            assert_int_equal(cancelled_after(&w, p, false, cut, &got), n);
            assert_true(n == cut || i > 0);
            same(&got, &want, models[i], cut);
        }
        prompt_free(p);
        world_close(&w);
    }
}

/* Content that stands at another place, or twice, is the same content. */
static void rows_may_stand_anywhere(void **state)
{
    static const rg_given_rows runs[] = { { .at = 0, .n = 70 }, { .at = 70, .n = 70 } };
    answer want, got;
    world w;

    (void)state;
    world_open(&w, "llama");
    prompt *p = prompt_of(&w, 150, runs, 2);
    memcpy(p->plain + 70, p->plain, 70 * sizeof *p->plain);
    memcpy((void *)(uintptr_t)p->given[1].rows, p->given[0].rows, 70 * (size_t)w.facts.given_dim * sizeof(float));
    rg_loop *l = loop_of(&w, true, MAX_ROWS);
    assert_int_equal(ask(&w, l, p, true, &want), 0);
    assert_int_equal(ask(&w, l, p, false, &got), 0);
    same(&got, &want, "llama", 0);
    w.n_samples = 2;
    rg_request *r = submit(&w, l, p, false);
    while (rg_loop_step(l))
        rg_loop_check(l);
    assert_int_equal(rg_request_used(r).n_cached, 149);
    assert_memory_equal(r->tokens, r->tokens + 70, 70 * sizeof *r->tokens);
    assert_memory_equal(rg_request_tokens(r, 0), rg_request_tokens(r, 1), 150 * sizeof *r->tokens);
    rg_request_unref(r);
    rg_loop_free(l);
    prompt_free(p);
    world_close(&w);
}

/* When all numbers were used, what they stood for is found no more. */
static void a_new_era_finds_nothing_of_the_old_one(void **state)
{
    static const rg_given_rows run = { .at = 1, .n = 70 };
    world w;
    answer out;

    (void)state;
    world_open(&w, "llama");
    prompt *p = prompt_of(&w, 80, &run, 1);
    rg_loop *l = loop_of(&w, true, MAX_ROWS);
    rg_states *s = rg_states_new(w.runner->spec, w.runner->store, true, NULL);
    assert_non_null(s);
    rg_request *r[3];
    for (int i = 0; i < 3; i++) {
        r[i] = submit(&w, l, p, false);
        if (i == 2)
            s->contents.next = INT32_MIN + 69;
        rg_request_number(r[i], s);
    }
    assert_true(r[0]->who.salt == r[1]->who.salt && r[0]->who.salt != r[2]->who.salt);
    assert_memory_equal(r[0]->tokens, r[2]->tokens, 80 * sizeof *r[0]->tokens); /* the salt alone tells them apart */
    for (int i = 0; i < 3; i++) {
        atomic_store(&r[i]->cancelled, true);
        rg_request_unref(r[i]);
    }
    rg_states_free(s);
    ask(&w, l, p, false, &out);
    rg_loop_free(l);
    prompt_free(p);
    world_close(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_gives_the_same),
        cmocka_unit_test(equal_contents_are_found_and_no_others),
        cmocka_unit_test(a_prefix_may_end_within_the_rows),
        cmocka_unit_test(rows_may_stand_anywhere),
        cmocka_unit_test(a_new_era_finds_nothing_of_the_old_one),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
