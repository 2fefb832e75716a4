/* test_tree_search.c -- rg_params.search: with enough simulations it finds the best of all answers within its width, by
 * log-probability, by a function, by a grammar and by a reranker; whatever else runs, with stop texts, spans and
 * beginnings that are valued; with models that keep a state; at 256 simulations at least what beams find; and what it
 * refuses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/engine.h"
#include "support/model.h"

#define TALES RG_SOURCE_DIR "/models/tales-1m"

enum { N_PROMPT = 3, LENGTH = 5, WIDTH = 3 };

static rg_engine *open_model(const char *model, int32_t max_seqs)
{
    rg_options o = test_exact_options(max_seqs);

    return test_open(model, &o);
}

typedef struct brute {
    rg_engine *e;
    const rg_params *p;
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
    for (int32_t i = 0; n && i < b->p->n_stop_ids; i++)
        if (b->ids[N_PROMPT + n - 1] == b->p->stop_ids[i])
            return true;
    return n == LENGTH;
}

/* True if the last of n ids is an end. */
static bool ended(const brute *b, int32_t n)
{
    for (int32_t i = 0; n && i < b->p->n_stop_ids; i++)
        if (b->ids[N_PROMPT + n - 1] == b->p->stop_ids[i])
            return true;
    return false;
}

static double value(const brute *b, int32_t n)
{
    double sum = 0;

    if (b->p->scorer)
        return b->p->scorer->score(b->p->scorer->arg, b->ids + N_PROMPT, b->logprobs, n - ended(b, n));
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
            b->n_nodes++;
        } while (!ends(b, upto) && upto - n < b->p->search.span);
        b->n_nodes--;
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

/* The answer that the search tells. */
typedef struct told {
    int32_t ids[LENGTH * 20], n;
    double score;
    rg_finish finish;
    rg_usage usage;
    char text[400];
} told;

static void search(rg_engine *e, const rg_params *p, told *out)
{
    rg_error err = { 0 };
    rg_request *r = rg_submit(e, p, &err);
    rg_token t;

    assert_ok(r, err);
    *out = (told){ 0 };
    while (rg_next(r, &t)) {
        if (t.sample)
            continue;
        if (t.id >= 0)
            out->ids[out->n++] = t.id;
        strncat(out->text, t.text, sizeof out->text - strlen(out->text) - 1);
        out->finish = t.finish;
    }
    out->score = rg_request_answer_score(r, 0);
    out->usage = rg_request_usage(r);
    for (int32_t k = 1; k < p->n_samples; k++)
        assert_true(!(rg_request_answer_score(r, k) > rg_request_answer_score(r, k - 1)));
    rg_request_close(r);
}

static void check_best(rg_engine *e, rg_params *p, int32_t first)
{
    int32_t prompt[N_PROMPT] = { first, first + 10, 2 * first + 30 };
    brute b = { .e = e, .p = p, .score = -INFINITY };
    told found;

    p->prompt = prompt;
    memcpy(b.ids, prompt, sizeof prompt);
    try_all(&b, 0);
    search(e, p, &found);
    assert_int_equal(found.n, b.n_best - ended(&b, 0) - (found.finish == RG_FINISH_STOP));
    assert_memory_equal(found.ids, b.best, (size_t)found.n * sizeof *found.ids);
    assert_true(fabs(found.score - b.score) < 1e-5);
    assert_true(found.usage.n_nodes >= b.n_nodes);
    assert_true(found.usage.n_simulations >= b.n_answers && found.usage.n_simulations <= b.n_nodes);
    assert_true(found.usage.search_blocks <= found.usage.search_blocks_unshared && found.usage.search_blocks > 0);
}

static rg_params params_of(int32_t max_tokens, int32_t simulations)
{
    rg_params p = { .n_prompt = N_PROMPT, .max_tokens = max_tokens, .n_samples = 1, .sampling = rg_sampling_default(),
                    .search = { .simulations = simulations, .width = WIDTH, .span = 1 } };

    p.sampling.ignore_eos = true;
    return p;
}

static void the_best_of_all_answers_is_found(void **state)
{
    rg_engine *e = open_model(test_data("llama"), 4);
    rg_params p = params_of(LENGTH, 1000);
    int32_t ends_at[2];
    int n_scored = 0;
    const rg_scorer scorer = { .score = taste, .arg = &n_scored };

    (void)state;
    for (p.search.span = 1; p.search.span <= 4; p.search.span++)
        for (int32_t i = 0; i < 2; i++) {
            p.search.leaves = i ? 1 : 7;
            p.scorer = NULL;
            check_best(e, &p, 10 + i);
            p.scorer = &scorer;
            check_best(e, &p, 10 + i);
        }
    assert_true(n_scored > 100);
    /* Ends within spans: ids that the brute force has met. */
    p.search.leaves = 5;
    brute b = { .e = e, .p = &p, .ids = { 10, 20, 50 } };
    ends_at[0] = likeliest(&b, 0, 1).id;
    b.ids[N_PROMPT] = likeliest(&b, 0, 0).id;
    ends_at[1] = likeliest(&b, 1, 0).id;
    p.stop_ids = ends_at;
    p.n_stop_ids = 2;
    for (p.search.span = 1; p.search.span <= 3; p.search.span++) {
        p.scorer = &scorer;
        check_best(e, &p, 10);
        p.scorer = NULL;
        check_best(e, &p, 10);
    }
    rg_engine_check(e);
    rg_close(e);
}

/* The same answers and figures alone, beside others, with few sequences, and with little memory. */
static void results_do_not_depend_on_what_else_runs(void **state)
{
    static const char *const models[] = { "llama", "gemma3", "mamba", "falcon-h1" };
    static const int32_t prompt[N_PROMPT] = { 10, 20, 50 };

    (void)state;
    for (size_t k = 0; k < RG_LEN(models); k++) {
        rg_params p = params_of(40, 60);
        rg_error err = { 0 };
        told want, got;

        p.prompt = prompt;
        p.n_samples = 3;
        rg_engine *e = open_model(test_data(models[k]), 16);
        search(e, &p, &want);
        assert_true(want.usage.n_simulations == 60 && want.n == 40);
        /* Rollouts compute their own ids: the rest is found, and of a state what was kept of it. */
        assert_true(want.usage.n_rows < want.usage.search_positions + want.usage.n_steps);
        rg_close(e);
        e = open_model(test_data(models[k]), 3);
        rg_params beside = params_of(200, 0);
        beside.search.simulations = 0;
        beside.prompt = prompt;
        rg_request *r = rg_submit(e, &beside, &err);
        assert_ok(r, err);
        search(e, &p, &got);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.ids, want.ids, (size_t)want.n * sizeof *want.ids);
        assert_memory_equal(&got.score, &want.score, sizeof want.score);
        assert_int_equal(got.usage.n_nodes, want.usage.n_nodes);
        rg_request_close(r);
        rg_engine_check(e);
        rg_close(e);
    }
}

/* On the shipped model: at 256 simulations at least what 4 beams find, and never less than greedily. */
static void simulations_reach_beams(void **state)
{
    static const char *const prompts[] = { "Once upon a time", "The little dog", "Tom and Sue went to the park",
                                           "There was a big" };
    rg_options o = rg_options_default();
    rg_engine *e = test_open(TALES, &o);
    double beams = 0, trees = 0;

    (void)state;
    for (size_t i = 0; i < RG_LEN(prompts); i++) {
        rg_params p = params_of(24, 0);
        int32_t *ids;
        size_t n;
        told greedy, tree, beam;

        assert_true(rg_encode(e, prompts[i], strlen(prompts[i]), RG_ENCODE_DEFAULT, &ids, &n, NULL));
        p.prompt = ids;
        p.n_prompt = (int32_t)n;
        p.beam = (rg_beam_params){ .n_beams = 4 }; /* scores are sums */
        search(e, &p, &beam);
        p.beam = (rg_beam_params){ .n_beams = 1 };
        search(e, &p, &greedy);
        p.beam = (rg_beam_params){ 0 };
        p.search = (rg_search_params){ .simulations = 256 };
        search(e, &p, &tree);
        assert_true(tree.score > greedy.score - 1e-9);
        print_message("%s: greedy %.4f, beams %.4f, tree %.4f\n", prompts[i], greedy.score, beam.score, tree.score);
        beams += beam.score;
        trees += tree.score;
        rg_ids_free(ids);
    }
    assert_true(trees >= beams - 1e-6);
    rg_close(e);
}

/* Stop texts and grammars end answers, and values may be how much of a grammar is met. */
static void texts_end_answers(void **state)
{
    rg_options o = rg_options_default();
    rg_engine *e = test_open(TALES, &o);
    const char *const stop[] = { "." };
    const rg_grammar_source source = { .kind = RG_GRAMMAR_REGEX, .text = " was (happy|sad|big)\\.", .n = 22 };
    rg_params p = params_of(24, 40);
    rg_error err = { 0 };
    int32_t *ids;
    size_t n;
    told got;

    (void)state;
    assert_true(rg_encode(e, "The dog", 7, RG_ENCODE_DEFAULT, &ids, &n, NULL));
    p.prompt = ids;
    p.n_prompt = (int32_t)n;
    p.stop = stop;
    p.n_stop = 1;
    p.sampling.ignore_eos = false;
    search(e, &p, &got);
    assert_true(got.finish == RG_FINISH_STOP && !strchr(got.text, '.'));
    p.n_stop = 0;
    p.grammar = rg_grammar_new(e, &source, &err);
    assert_ok(p.grammar, err);
    search(e, &p, &got);
    assert_true(!strcmp(got.text, " was happy.") || !strcmp(got.text, " was sad.") || !strcmp(got.text, " was big."));
    const rg_scorer scorer = { .grammar = p.grammar };
    p.grammar = NULL;
    p.scorer = &scorer;
    p.search = (rg_search_params){ .simulations = 200, .width = 16 };
    search(e, &p, &got); /* without the grammar as a rule: a goal */
    assert_true(got.score > 0 && got.score <= 1);
    rg_grammar_close(scorer.grammar);
    rg_ids_free(ids);
    rg_engine_check(e);
    rg_close(e);
}

/* Answers of a search, and of best_of, by a reranker on another engine, in rg_next and in rg_poll. */
static void rerankers_choose(void **state)
{
    rg_options o = rg_options_default();
    rg_engine *e = test_open(TALES, &o), *judge = test_open(test_with_letters("judge", "bert-rerank"), &o);
    rg_scorer scorer = { .reranker = judge, .query = "a dog", .n_query = 5 };
    rg_params p = params_of(8, 24);
    rg_error err = { 0 };
    double scores[2];
    int32_t *ids;
    size_t n;

    (void)state;
    assert_true(rg_encode(e, "The dog", 7, RG_ENCODE_DEFAULT, &ids, &n, NULL));
    p.prompt = ids;
    p.n_prompt = (int32_t)n;
    p.n_samples = 2;
    p.scorer = &scorer;
    for (int k = 0; k < 4; k++) {
        rg_token t;
        int got;

        if (k >= 2) {
            p.search.simulations = 0;
            p.best_of = 6;
            p.sampling.seed = 1;
        }
        rg_request *r = rg_submit(e, &p, &err);
        assert_ok(r, err);
        while (k % 2 ? rg_next(r, &t) : (got = rg_poll(r, &t)) >= 0)
            ;
        for (int i = 0; i < 2; i++) {
            if (k % 2)
                assert_memory_equal(&scores[i], &(double){ rg_request_answer_score(r, i) }, sizeof *scores);
            scores[i] = rg_request_answer_score(r, i);
        }
        assert_true(isfinite(scores[0]) && scores[0] >= scores[1]);
        rg_request_close(r);
    }
    rg_ids_free(ids);
    rg_close(e);
    rg_close(judge);
}

static double cancels(void *arg, const int32_t *ids, const float *logprobs, int32_t n)
{
    (void)ids;
    (void)logprobs;
    (void)n;
    rg_cancel(*(rg_request **)arg);
    return 0;
}

/* While values are wanted the request is with its reader: it can be cancelled and closed there, and its time can pass. */
static void held_requests_end(void **state)
{
    static const int32_t prompt[N_PROMPT] = { 10, 20, 50 };
    rg_engine *e = open_model(test_data("llama"), 4);
    rg_params p = params_of(8, 500);
    rg_request *r;
    int n_scored = 0;
    rg_scorer scorer = { .score = cancels, .arg = &r };
    rg_finish finish = RG_RUNNING;
    rg_error err = { 0 };
    uint64_t seen = 0;
    rg_token t;

    (void)state;
    p.prompt = prompt;
    p.scorer = &scorer;
    r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &t))
        finish = t.finish;
    assert_int_equal(finish, RG_FINISH_CANCELLED);
    rg_request_close(r);
    scorer = (rg_scorer){ .score = taste, .arg = &n_scored };
    for (int k = 0; k < 20; k++) { /* closed before a round, within one, and while it is held */
        r = rg_submit(e, &p, &err);
        assert_ok(r, err);
        for (int i = 0; i < k; i++)
            (void)rg_engine_wait(e, &seen, 0.01);
        rg_request_close(r);
    }
    p.deadline_s = 0.05;
    p.search.simulations = 100000;
    p.max_tokens = 300;
    r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &t))
        finish = t.finish;
    assert_int_equal(finish, RG_FINISH_DEADLINE);
    rg_request_close(r);
    for (int k = 0; k < 1000 && rg_engine_stats(e).n_running; k++)
        (void)rg_engine_wait(e, &seen, 0.01);
    rg_engine_check(e);
    assert_int_equal(rg_engine_stats(e).n_running, 0);
    rg_close(e);
}

/* Where only beginnings are valued, the best one is followed to the end of its answer. */
static void beginnings_are_valued(void **state)
{
    static const int32_t prompt[N_PROMPT] = { 10, 20, 50 };
    rg_engine *e = open_model(test_data("llama"), 4);
    rg_params p = params_of(60, 20);
    int n_scored = 0;
    const rg_scorer scorer = { .score = taste, .arg = &n_scored };
    told got;

    (void)state;
    p.prompt = prompt;
    p.search.rollout = 2;
    search(e, &p, &got);
    assert_int_equal(got.n, 60);
    assert_true(got.usage.n_rows < 20 * 12 + 80);
    p.scorer = &scorer;
    search(e, &p, &got);
    assert_true(got.n == 60 && n_scored >= 20);
    rg_close(e);
}

static void refusals_are_clear(void **state)
{
    static const int32_t prompt[] = { 1, 2, 3 };
    rg_engine *e = open_model(test_data("llama"), 4);
    rg_params good = params_of(4, 8), p;
    const rg_scorer none = { 0 }, model = { .reranker = e, .query = "x", .n_query = 1 };
    rg_error err = { 0 };

    (void)state;
    good.prompt = prompt;
#define REFUSED(change, said)                                                                                          \
    p = good, change;                                                                                                  \
    if (rg_submit(e, &p, &err))                                                                                      \
        fail_msg("not refused: %s", said);                                                                             \
    assert_non_null(strstr(err.text, said))
    REFUSED(p.search.span = -1, "span is -1");
    REFUSED(p.search.width = 5000, "width is 5000");
    REFUSED(p.search.simulations = 1 << 30, "simulations is");
    REFUSED(p.search.explore = NAN, "explore is");
    REFUSED(p.n_samples = 9, "9 answers");
    REFUSED(p.beam.n_beams = 2; p.search.simulations = 8, "beams");
    REFUSED(p.best_of = 4, "best_of");
    REFUSED(p.prompt_logprobs = true, "log-probabilities of the prompt");
    REFUSED(p.sampling.n_logprobs = 2, "n_logprobs is 2");
    REFUSED(p.scorer = &none, "want one of them");
    REFUSED(p.scorer = &model, "want a reranker");
    REFUSED(p.scorer = &model; p.search.simulations = 0, "needs best_of");
#undef REFUSED
    rg_close(e);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_of_all_answers_is_found),
        cmocka_unit_test(results_do_not_depend_on_what_else_runs),
        cmocka_unit_test(simulations_reach_beams),
        cmocka_unit_test(texts_end_answers),
        cmocka_unit_test(rerankers_choose),
        cmocka_unit_test(held_requests_end),
        cmocka_unit_test(beginnings_are_valued),
        cmocka_unit_test(refusals_are_clear),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
