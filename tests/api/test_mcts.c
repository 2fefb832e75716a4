/* test_mcts.c -- rg_mcts_search: with enough simulations it finds the best of all answers within its width, by any scorer
 * and with nodes of several ids; what it refuses; and that it ends where it is told to. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/engine.h"

enum { N_PROMPT = 3, LENGTH = 5, WIDTH = 3 };

static rg_engine *open_llama(void)
{
    rg_options o = test_exact_options(1);

    o.max_waiting = 1; /* fewer than a node's children ask for at once */
    return test_open(test_data("llama"), &o);
}

typedef struct brute {
    rg_engine *e;
    const rg_mcts_params *m;
    int32_t ids[N_PROMPT + LENGTH], best[LENGTH];
    float logprobs[LENGTH];
    int32_t n_best, n_answers, n_nodes;
    double score;
} brute;

static rg_top likeliest(const brute *b, int32_t n, int32_t rank)
{
    rg_params p = { .prompt = b->ids, .n_prompt = N_PROMPT + n, .max_tokens = 1, .n_samples = 1,
                    .sampling = rg_sampling_default() };
    rg_top top = { 0 };
    rg_error err;
    rg_token t;

    p.sampling.n_logprobs = WIDTH;
    p.sampling.ignore_eos = true;
    rg_request *r = rg_submit(b->e, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &t))
        if (t.id >= 0)
            top = t.top[rank];
    rg_request_close(r);
    return top;
}

static bool ends(const brute *b, int32_t n)
{
    const rg_params *p = &b->m->request;

    for (int32_t i = 0; n && i < p->n_stop_ids; i++)
        if (b->ids[N_PROMPT + n - 1] == p->stop_ids[i])
            return true;
    return n == LENGTH;
}

static double value(const brute *b, int32_t n)
{
    double sum = 0;

    if (b->m->score)
        return b->m->score(b->m->score_arg, b->ids + N_PROMPT, b->logprobs, n);
    for (int32_t i = 0; i < n; i++)
        sum += (double)b->logprobs[i];
    return sum;
}

/* All answers that begin with n ids. */
static void try_all(brute *b, int32_t n)
{
    b->n_nodes++;
    if (ends(b, n)) {
        double v = value(b, n);

        b->n_answers++;
        if (v > b->score) {
            b->score = v;
            b->n_best = n;
            memcpy(b->best, b->ids + N_PROMPT, sizeof b->best);
        }
        return;
    }
    for (int32_t k = 0; k < WIDTH; k++) {
        int32_t upto = n;

        do {
            rg_top top = likeliest(b, upto, upto == n ? k : 0);

            b->ids[N_PROMPT + upto] = top.id;
            b->logprobs[upto++] = top.logprob;
        } while (!ends(b, upto) && upto - n < b->m->span);
        try_all(b, upto);
    }
}

/* Long answers with even ids. */
static double taste(void *arg, const int32_t *ids, const float *logprobs, int32_t n)
{
    double sum = 0;

    (void)logprobs;
    ++*(int *)arg;
    for (int32_t i = 0; i < n; i++)
        sum += ids[i] % 2 ? 0.3 : 1 + 0.01 * ids[i];
    return sum;
}

static void check_best(rg_engine *e, rg_mcts_params *m, int32_t first)
{
    int32_t prompt[N_PROMPT] = { first, first + 10, 2 * first + 30 };
    brute b = { .e = e, .m = m, .score = -INFINITY };
    rg_mcts_result found;
    rg_error err = { 0 };

    m->request.prompt = prompt;
    memcpy(b.ids, prompt, sizeof prompt);
    try_all(&b, 0);
    assert_ok(rg_mcts_search(e, m, &found, &err), err);
    assert_int_equal(found.n + found.ended, b.n_best);
    assert_memory_equal(found.ids, b.best, (size_t)found.n * sizeof *found.ids);
    assert_true(fabs(found.score - b.score) < 1e-5);
    assert_int_equal(found.n_nodes, b.n_nodes);
    assert_int_equal(found.n_simulations, b.n_nodes); /* each node was a leaf once */
    assert_true(found.blocks <= found.blocks_unshared && found.blocks > 0);
    rg_mcts_result_fini(&found);
}

static void the_best_of_all_answers_is_found(void **state)
{
    rg_engine *e = open_llama();
    rg_mcts_params m = rg_mcts_default();
    int32_t ends_at[2];
    int n_scored = 0;

    (void)state;
    m.request = (rg_params){ .n_prompt = N_PROMPT, .max_tokens = LENGTH, .n_samples = 1, .sampling = rg_sampling_default() };
    m.request.sampling.ignore_eos = true;
    m.simulations = 1000;
    m.width = WIDTH;
    for (m.span = 1; m.span <= 4; m.span++)
        for (int32_t i = 0; i < 2; i++) {
            m.score = NULL;
            check_best(e, &m, 10 + i);
            m.score = taste;
            m.score_arg = &n_scored;
            check_best(e, &m, 10 + i);
        }
    assert_true(n_scored > 100);
    /* Ends within spans: ids that the brute force has met. */
    brute b = { .e = e, .m = &m, .ids = { 10, 20, 50 } };
    ends_at[0] = likeliest(&b, 0, 1).id;
    b.ids[N_PROMPT] = likeliest(&b, 0, 0).id;
    ends_at[1] = likeliest(&b, 1, 0).id;
    m.request.stop_ids = ends_at;
    m.request.n_stop_ids = 2;
    for (m.span = 1; m.span <= 3; m.span++) {
        check_best(e, &m, 10);
        m.score = NULL;
        check_best(e, &m, 10);
    }
    rg_engine_check(e);
    rg_close(e);
}

/* Where max_tokens is more than the context leaves, answers end with the context. */
static void the_context_ends_an_answer(void **state)
{
    const int32_t prompt[N_PROMPT] = { 10, 20, 50 };
    rg_options o = test_exact_options(4);
    rg_mcts_params m = rg_mcts_default();
    rg_mcts_result want, found;
    rg_error err = { 0 };

    (void)state;
    o.max_seq_len = N_PROMPT + LENGTH;
    rg_engine *e = test_open(test_data("llama"), &o);
    m.request = (rg_params){ .prompt = prompt, .n_prompt = N_PROMPT, .max_tokens = LENGTH, .n_samples = 1,
                             .sampling = rg_sampling_default() };
    m.request.sampling.ignore_eos = true;
    for (m.span = 1; m.span <= 3; m.span++) {
        m.request.max_tokens = LENGTH;
        assert_ok(rg_mcts_search(e, &m, &want, &err), err);
        m.request.max_tokens = 100 * LENGTH;
        assert_ok(rg_mcts_search(e, &m, &found, &err), err);
        assert_int_equal(found.n, LENGTH);
        assert_memory_equal(found.ids, want.ids, LENGTH * sizeof *found.ids);
        rg_mcts_result_fini(&want);
        rg_mcts_result_fini(&found);
    }
    rg_close(e);
}

static bool after_three(void *arg)
{
    return ++*(int *)arg > 3;
}

static void refusals_and_stops_are_clear(void **state)
{
    static const char *const stop[] = { "x" };
    static const int32_t prompt[] = { 1, 2, 3 };
    rg_engine *e = open_llama();
    rg_mcts_params good = rg_mcts_default(), m;
    rg_mcts_result found;
    rg_error err = { 0 };
    int n_asked = 0;

    (void)state;
    good.request = (rg_params){ .prompt = prompt, .n_prompt = 3, .max_tokens = 4, .n_samples = 1,
                                .sampling = rg_sampling_default() };
    m = good, m.span = 0;
    assert_false(rg_mcts_search(e, &m, &found, &err));
    assert_non_null(strstr(err.text, "span of 1 or more"));
    m = good, m.request.n_samples = 2;
    assert_false(rg_mcts_search(e, &m, &found, &err));
    assert_non_null(strstr(err.text, "several answers"));
    m = good, m.request.stop = stop, m.request.n_stop = 1;
    assert_false(rg_mcts_search(e, &m, &found, &err));
    m = good, m.request.max_tokens = INT32_MAX, m.simulations = INT32_MAX, m.width = 4096;
    assert_false(rg_mcts_search(e, &m, &found, &err));
    assert_int_equal(err.code, RG_E_LIMIT);
    m = good, m.stop = after_three, m.stop_arg = &n_asked;
    assert_false(rg_mcts_search(e, &m, &found, &err));
    assert_int_equal(n_asked, 4);
    assert_non_null(strstr(err.text, "stopped"));
    assert_null(found.ids);
    assert_ok(rg_mcts_search(e, &good, &found, &err), err);
    assert_true(found.n_simulations == 64 && found.score > -INFINITY);
    rg_mcts_result_fini(&found);
    rg_close(e);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_of_all_answers_is_found),
        cmocka_unit_test(the_context_ends_an_answer),
        cmocka_unit_test(refusals_and_stops_are_clear),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
