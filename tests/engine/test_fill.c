/* Diffusion models in the engine: an answer has the same ids alone and beside others, whatever rows a step may have, whether its
 * request was preempted, and with a cached prefix; no id is given out before it is final. */
#include "support/model.h"

#include <stdlib.h>
#include <string.h>

#include "engine/loop.h"
#include "grammar/grammar.h"

enum { N_VOCAB = 320, MASK = 319, MAX_IDS = 96, N_CASES = 10, MAX_ROWS = 160, LETTERS = 100 };

typedef struct kase {
    rg_diffusion_params p;
    float temperature;
    int32_t n_prompt, n_tokens, n_want, n_samples;
    int32_t prompt[MAX_IDS], want[2][MAX_IDS];
} kase;

typedef struct world {
    test_model model;
    rg_runner *runner;
    rg_request_model facts;
    rg_rng g;
    kase cases[N_CASES];
} world;

static int below(world *w, int n)
{
    return (int)rg_rng_below(&w->g, (uint32_t)n);
}

static rg_loop *loop_of(world *w)
{
    rg_error err;
    rg_loop *l = rg_loop_new(w->runner, &(rg_loop_options){ .max_seqs = 12, .max_rows = MAX_ROWS, .max_seq_len = 256,
                                                            .max_waiting = 64, .use_prefixes = true }, &err);

    assert_ok(l, err);
    return l;
}

static rg_request *submit(world *w, rg_loop *l, const kase *k)
{
    rg_params p = { .prompt = k->prompt, .n_prompt = k->n_prompt, .max_tokens = k->n_tokens, .n_samples = k->n_samples,
                    .diffusion = k->p,
                    .sampling = { .temperature = k->temperature, .top_p = 1, .typical_p = 1, .repetition_penalty = 1,
                                  .seed = 7, .ignore_eos = true, .n_logprobs = -1 } };
    rg_error err;
    rg_request *r = rg_request_new(&p, &w->facts, &err);

    assert_ok(r, err);
    assert_ok(rg_loop_submit(l, r, &err), err);
    return r;
}

static bool has_canvas(const world *w)
{
    return w->runner->diffusion.canvas.length > 0;
}

static void take(const world *w, const rg_request *r, int sample, int32_t *ids, int32_t n)
{
    const rg_sample *a = &r->samples[sample];

    assert_int_equal(atomic_load(&a->finish), RG_FINISH_LENGTH);
    assert_int_equal(atomic_load(&a->n_ready), n);
    for (int32_t i = 0; i < n; i++)
        assert_in_range(a->ids[i], 0, has_canvas(w) ? N_VOCAB - 1 : MASK - 1);
    memcpy(ids, a->ids, (size_t)n * sizeof *ids);
}

static void make_cases(world *w)
{
    const bool whole = w->runner->sees == RG_SEES_ALL;

    for (int i = 0; i < N_CASES; i++) {
        kase *k = &w->cases[i];

        *k = (kase){ .temperature = i % 3 == 2 ? 0.8f : 0, .n_prompt = 1 + below(w, 40), .n_tokens = 1 + below(w, 30),
                     .n_samples = 1 + i % 2, .p.steps = i % 4 ? 3 + below(w, 4) : 0 };
        if (i == 5)
            k->n_prompt = 70; /* more than a block of state */
        if (has_canvas(w))
            k->p.steps = 2 + i % 3;
        if (whole && !w->runner->diffusion.shifted) {
            k->p.block = 4 + below(w, 8);
            k->p.cfg_scale = i == 3 ? 1.5f : 0;
            k->p.cache = i == 4 ? RG_CACHE_DUAL : i == 7 ? RG_CACHE_PREFIX : RG_CACHE_NONE;
        }
        if (!whole && !has_canvas(w) && i % 3 == 1) {
            k->p.remasking = RG_REMASKING_DYNAMIC;
            k->p.threshold = 0.4f;
        }
        for (int j = 0; j < k->n_prompt; j++)
            k->prompt[j] = i && i % 2 ? w->cases[i - 1].prompt[j] : below(w, MASK); /* every other prompt begins like another */
        for (int j = 0; j < k->n_prompt; j++)
            if (k->prompt[j] == MASK)
                k->prompt[j] = 1;
        rg_loop *l = loop_of(w);
        rg_request *r = submit(w, l, k);
        while (rg_loop_step(l))
            rg_loop_check(l);
        for (int s = 0; s < k->n_samples; s++)
            take(w, r, s, k->want[s], k->n_tokens);
        rg_request_unref(r);
        rg_loop_free(l);
    }
}

static int32_t some_rows(void *arg)
{
    world *w = arg;

    return below(w, 3) ? MAX_ROWS : 1 + below(w, MAX_ROWS);
}

/* All at once, twice over, with what may happen on the way. */
static void together(world *w)
{
    rg_loop *l = loop_of(w);
    rg_request *r[2 * N_CASES];
    int32_t ids[MAX_IDS];
    int n_sent = 0, n_preempted = 0;

    rg_loop_set_budget(l, some_rows, w);
    while (n_sent < 2 * N_CASES || rg_loop_step(l)) {
        if (n_sent < 2 * N_CASES && !below(w, 2)) {
            r[n_sent] = submit(w, l, &w->cases[n_sent % N_CASES]);
            n_sent++;
        }
        if (n_sent < 2 * N_CASES)
            (void)rg_loop_step(l);
        if (!below(w, 6))
            n_preempted += rg_loop_preempt(l, below(w, 4), below(w, 2) ? RG_PREEMPT_SWAP : RG_PREEMPT_RECOMPUTE);
        rg_loop_check(l);
    }
    assert_true(n_preempted > 0);
    for (int i = 0; i < 2 * N_CASES; i++) {
        const kase *k = &w->cases[i % N_CASES];

        for (int s = 0; s < k->n_samples; s++) {
            take(w, r[i], s, ids, k->n_tokens);
            if (memcmp(ids, k->want[s], (size_t)k->n_tokens * sizeof *ids))
                fail_msg("case %d, sample %d: other ids than alone", i % N_CASES, s);
        }
        rg_request_unref(r[i]);
    }
    rg_loop_free(l);
}

static void check(const char *name, const char *kv)
{
    world *w = calloc(1, sizeof *w);
    rg_error err;

    assert_non_null(w);
    w->g.seed = test_seed;
    test_model_open(&w->model, test_data(name), kv);
    w->runner = rg_model_runner_new(w->model.m, &(rg_runner_options){ .backend = rg_backend_find("auto", NULL), .n_threads = 2,
                                                                      .exact = true, .max_rows = MAX_ROWS, .max_logits = MAX_ROWS,
                                                                      .max_seqs = 12, .max_seq_len = 256,
                                                                      .state_bytes = 3 << 20 }, &err);
    assert_ok(w->runner, err);
    w->facts = (rg_request_model){ .vocab_size = N_VOCAB, .max_seq_len = 256, .dim = 64, .sees = w->runner->sees,
                                   .diffusion = &w->runner->diffusion, .max_rows = MAX_ROWS, .max_logits = MAX_ROWS };
    make_cases(w);
    for (int i = 0; i < (TEST_SLOWER > 1 ? 1 : 3); i++)
        together(w);
    rg_model_runner_free(w->runner);
    test_model_close(&w->model);
    free(w);
}

static void by_blocks_of_the_answer(void **state)
{
    (void)state;
    check("llada", "f32");
}

static void as_a_whole(void **state)
{
    (void)state;
    check("dream", "f32");
}

static void by_blocks_of_the_model(void **state)
{
    (void)state;
    check("sdar-b4", "f32");
    check("sdar-b8", "f32");
    check("sdar-b4", "q4");
}

static void by_canvases(void **state)
{
    (void)state;
    check("diffusion-gemma", "bf16");
}

/* ---- grammars and log-probabilities ------------------------------------------------------------------------------ */

static world *world_of(const char *name)
{
    world *w = calloc(1, sizeof *w);
    rg_error err;

    assert_non_null(w);
    test_model_open(&w->model, test_data(name), "f32");
    w->runner = rg_model_runner_new(w->model.m, &(rg_runner_options){ .backend = rg_backend_find("auto", NULL), .n_threads = 2,
                                                                      .exact = true, .max_rows = MAX_ROWS, .max_logits = MAX_ROWS,
                                                                      .max_seqs = 12, .max_seq_len = 256,
                                                                      .state_bytes = 3 << 20 }, &err);
    assert_ok(w->runner, err);
    w->facts = (rg_request_model){ .vocab_size = N_VOCAB, .max_seq_len = 256, .dim = 64, .sees = w->runner->sees,
                                   .diffusion = &w->runner->diffusion, .max_rows = MAX_ROWS, .max_logits = MAX_ROWS };
    return w;
}

static void end_world(world *w)
{
    rg_model_runner_free(w->runner);
    test_model_close(&w->model);
    free(w);
}

/* A vocabulary in which ids from 100 on are letters, and the others no text. */
static rg_grammar_vocab *letters(void)
{
    static char data[32];
    static uint32_t offset[N_VOCAB + 1];
    uint32_t n = 0;
    rg_error err;

    for (int i = 0; i < N_VOCAB; i++) {
        if (i >= LETTERS && i < LETTERS + 26)
            data[n++] = (char)('a' + i - LETTERS);
        offset[i + 1] = n;
    }
    rg_grammar_vocab *v = rg_grammar_vocab_new(data, offset, N_VOCAB, &err);
    assert_ok(v, err);
    return v;
}

typedef struct bound {
    rg_request *r;
    rg_loop *l;
} bound;

static bound run_bound(world *w, const rg_grammar_vocab *v, const char *regex, const rg_params *like)
{
    rg_params p = *like;
    rg_error err;
    bound b;

    p.grammar = rg_grammar_compile(v, &(rg_grammar_source){ .kind = RG_GRAMMAR_REGEX, .text = regex, .n = strlen(regex) },
                                   &err);
    assert_ok(p.grammar, err);
    b.l = loop_of(w);
    b.r = rg_request_new(&p, &w->facts, &err);
    assert_ok(b.r, err);
    rg_grammar_unref(p.grammar);
    assert_ok(rg_loop_submit(b.l, b.r, &err), err);
    while (rg_loop_step(b.l))
        rg_loop_check(b.l);
    return b;
}

static void end_bound(bound b)
{
    rg_request_unref(b.r);
    rg_loop_free(b.l);
}

static rg_params plain(const int32_t *prompt, int32_t n_prompt, int32_t n_tokens)
{
    return (rg_params){ .prompt = prompt, .n_prompt = n_prompt, .max_tokens = n_tokens, .n_samples = 1,
                        .sampling = { .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .seed = 7, .n_logprobs = 2 } };
}

static void grammar_of(const char *name)
{
    static const int32_t prompt[] = { 5, 6, 7, 8, 9, 10 };
    world *w = world_of(name);
    rg_grammar_vocab *v = letters();
    rg_params p = plain(prompt, 6, 24);

    /* Every id is one of ten, alternating with two: and the answer ends where nothing can follow. */
    bound b = run_bound(w, v, "([a-j][kl]){6}z", &p);
    const rg_sample *a = &b.r->samples[0];
    assert_int_equal(atomic_load(&a->finish), RG_FINISH_STOP);
    assert_int_equal(atomic_load(&a->n_ready), 13);
    for (int i = 0; i < 12; i++) {
        assert_in_range(a->ids[i] - LETTERS, i % 2 ? 10 : 0, i % 2 ? 11 : 9);
        assert_true(a->logprobs[i] < 0 && a->tops[2 * i].logprob >= a->tops[2 * i + 1].logprob);
    }
    assert_int_equal(a->ids[12], LETTERS + 25);
    end_bound(b);

    /* What the grammar leaves no choice of is sure: one evaluation finishes all of it (of a model's block, a part). */
    b = run_bound(w, v, "abcdefghij", &p);
    a = &b.r->samples[0];
    assert_int_equal(atomic_load(&a->n_ready), 10);
    for (int i = 0; i < 10; i++)
        assert_int_equal(a->ids[i], LETTERS + i);
    assert_in_range(atomic_load(&b.r->counts.n_steps), 1, w->runner->sees == RG_SEES_ALL ? 1 : 8);
    end_bound(b);

    /* One mask an evaluation, by steps; temperature, and a trace, which ends too. */
    p.diffusion.steps = 24;
    p.diffusion.trace = true;
    p.sampling.temperature = 1;
    b = run_bound(w, v, "[pqrs]*z", &p);
    a = &b.r->samples[0];
    for (int i = 0, n = atomic_load(&a->n_ready); i < n; i++)
        assert_true((a->ids[i] >= LETTERS + 15 && a->ids[i] <= LETTERS + 18) || (a->ids[i] == LETTERS + 25 && i == n - 1));
    end_bound(b);
    rg_grammar_vocab_free(v);
    end_world(w);
}

static void grammars_hold(void **state)
{
    (void)state;
    grammar_of("llada");
    grammar_of("dream");
    grammar_of("sdar-b4");
}

/* A canvas is drawn anew in every evaluation, so that a grammar is refused; its ids have log-probabilities, and end at a
 * stop id. */
static void ids_of_a_canvas_end_and_have_logprobs(void **state)
{
    static const int32_t prompt[] = { 5, 6, 7, 8, 9, 10 };
    world *w = world_of("diffusion-gemma");
    rg_grammar_vocab *v = letters();
    rg_params p = plain(prompt, 6, 24);
    rg_error err;
    int32_t stop = 0, at = 3; /* the first id from place 3 on that is not there before */

    (void)state;
    p.grammar = rg_grammar_compile(v, &(rg_grammar_source){ .kind = RG_GRAMMAR_REGEX, .text = "a+", .n = 2 }, &err);
    assert_ok(p.grammar, err);
    assert_null(rg_request_new(&p, &w->facts, &err));
    assert_non_null(strstr(err.text, "grammar"));
    rg_grammar_unref(p.grammar);
    p.grammar = NULL;
    p.diffusion.steps = 3;
    for (int pass = 0; pass < 2; pass++) {
        rg_loop *l = loop_of(w);
        rg_request *r = rg_request_new(&p, &w->facts, &err);

        assert_ok(r, err);
        assert_ok(rg_loop_submit(l, r, &err), err);
        while (rg_loop_step(l))
            rg_loop_check(l);
        const rg_sample *a = &r->samples[0];
        const int32_t n = atomic_load(&a->n_ready);
        for (int i = 0; i < n; i++) { /* greedy: what is kept is the likeliest id, and its log-probability the first of all */
            assert_int_equal(a->ids[i], a->tops[2 * i].id);
            assert_true(a->logprobs[i] <= 0 && a->logprobs[i] == a->tops[2 * i].logprob);
        }
        assert_int_equal(n, pass ? at : 24);
        assert_int_equal(atomic_load(&a->finish), pass ? RG_FINISH_STOP : RG_FINISH_LENGTH);
        for (int i = 0; i < at && !pass; i++)
            if (a->ids[i] == a->ids[at]) {
                at++;
                i = -1;
            }
        assert_in_range(at, 3, 22);
        stop = a->ids[at];
        p.stop_ids = &stop;
        p.n_stop_ids = 1;
        rg_request_unref(r);
        rg_loop_free(l);
    }
    rg_grammar_vocab_free(v);
    end_world(w);
}

/* The log-probability of an id is that of the evaluation that fixed it: with a mask a step from the left, that of the
 * last evaluation before it was there. */
static void logprobs_are_of_the_evaluation(void **state)
{
    static const int32_t prompt[] = { 5, 6, 7, 8 };
    (void)state;

    world *w = world_of("sdar-b4");
    rg_params p = plain(prompt, 4, 8);
    rg_error err;

    p.diffusion.remasking = RG_REMASKING_SEQUENTIAL;
    rg_loop *l = loop_of(w);
    rg_request *r = rg_request_new(&p, &w->facts, &err), *again;
    assert_ok(r, err);
    assert_ok(rg_loop_submit(l, r, &err), err);
    while (rg_loop_step(l))
        ;
    assert_int_equal(atomic_load(&r->counts.n_steps), 9); /* eight ids, and the first block once more, as it is kept */
    int32_t longer[11];
    memcpy(longer, prompt, sizeof prompt);
    for (int i = 0; i < 8; i++) {
        const rg_sample *a = &r->samples[0];
        assert_int_equal(a->ids[i], a->tops[2 * i].id); /* greedy */
        assert_true(a->logprobs[i] == a->tops[2 * i].logprob && a->logprobs[i] < 0);
    }
    for (int i = 1; i < 8; i++) { /* the same answer, asked for from the middle on */
        longer[3 + i] = r->samples[0].ids[i - 1];
        p.prompt = longer;
        p.n_prompt = 4 + i;
        p.max_tokens = 1;
        again = rg_request_new(&p, &w->facts, &err);
        assert_ok(again, err);
        assert_ok(rg_loop_submit(l, again, &err), err);
        while (rg_loop_step(l))
            ;
        assert_int_equal(again->samples[0].ids[0], r->samples[0].ids[i]);
        assert_memory_equal(again->samples[0].logprobs, r->samples[0].logprobs + i, sizeof(float));
        rg_request_unref(again);
    }
    rg_request_unref(r);
    rg_loop_free(l);
    end_world(w);
}

/* What cannot be computed is refused when it is asked for. */
static void too_much_is_refused(void **state)
{
    const rg_diffusion even = { .mask_id = MASK };
    rg_request_model m = { .vocab_size = N_VOCAB, .max_seq_len = 4096, .sees = RG_SEES_ALL, .diffusion = &even,
                           .max_rows = 100, .max_logits = 50 };
    int32_t prompt[64] = { 1, 2, 3 };
    rg_params p = { .prompt = prompt, .n_prompt = 64, .max_tokens = 37, .n_samples = 1,
                    .sampling = { .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1 } };
    rg_error err;

    (void)state;
    assert_null(rg_request_new(&p, &m, &err));
    assert_non_null(strstr(err.text, "100 rows"));
    p.n_prompt = 30;
    p.max_tokens = 60;
    assert_null(rg_request_new(&p, &m, &err));
    assert_non_null(strstr(err.text, "smaller blocks"));
    p.diffusion.block = 8;
    p.diffusion.cfg_scale = 1;
    assert_null(rg_request_new(&p, &m, &err));
    assert_non_null(strstr(err.text, "without the prompt"));
    p.diffusion.cfg_scale = 0;
    p.prompt_logprobs = true;
    assert_null(rg_request_new(&p, &m, &err));
    assert_non_null(strstr(err.text, "prompt_logprobs"));
    p.prompt_logprobs = false;
    prompt[2] = MASK;
    assert_null(rg_request_new(&p, &m, &err));
    assert_non_null(strstr(err.text, "the mask"));
    prompt[2] = 3;
    rg_request *r = rg_request_new(&p, &m, &err);
    assert_ok(r, err);
    rg_request_unref(r);
}

/* Where blocks are the model's, an answer ends with the last block that is whole within the context. */
static void a_context_ends_with_a_whole_block(void **state)
{
    const rg_diffusion blocks = { .mask_id = MASK };
    rg_request_model m = { .vocab_size = N_VOCAB, .max_seq_len = 130, .sees = 4, .diffusion = &blocks, .max_rows = 100,
                           .max_logits = 50 };
    int32_t prompt[129];
    rg_params p = { .prompt = prompt, .max_tokens = 5, .n_samples = 1,
                    .sampling = { .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1 } };
    rg_error err;

    (void)state;
    for (int i = 0; i < 129; i++)
        prompt[i] = i;
    p.n_prompt = 127;
    rg_request *r = rg_request_new(&p, &m, &err);
    assert_ok(r, err);
    assert_int_equal(r->params.max_tokens, 1);
    rg_request_unref(r);
    for (p.n_prompt = 128; p.n_prompt <= 129; p.n_prompt++) {
        assert_null(rg_request_new(&p, &m, &err));
        assert_int_equal(err.code, RG_E_LIMIT);
        assert_non_null(strstr(err.text, "whole blocks of 4"));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_blocks_of_the_answer),
        cmocka_unit_test(as_a_whole),
        cmocka_unit_test(by_blocks_of_the_model),
        cmocka_unit_test(by_canvases),
        cmocka_unit_test(ids_of_a_canvas_end_and_have_logprobs),
        cmocka_unit_test(grammars_hold),
        cmocka_unit_test(logprobs_are_of_the_evaluation),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(a_context_ends_with_a_whole_block),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
