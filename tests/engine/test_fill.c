/* Diffusion models in the engine: an answer has the same ids alone and beside others, whatever rows a step may have, whether its
 * request was preempted, and with a cached prefix; no id is given out before it is final. */
#include "support/model.h"

#include <stdlib.h>
#include <string.h>

#include "engine/loop.h"

enum { N_VOCAB = 320, MASK = 319, MAX_IDS = 96, N_CASES = 10, MAX_ROWS = 160 };

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

static void take(const rg_request *r, int sample, int32_t *ids, int32_t n)
{
    const rg_sample *a = &r->samples[sample];

    assert_int_equal(atomic_load(&a->finish), RG_FINISH_LENGTH);
    assert_int_equal(atomic_load(&a->n_ready), n);
    for (int32_t i = 0; i < n; i++)
        assert_in_range(a->ids[i], 0, MASK - 1);
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
        if (whole && !w->runner->diffusion.shifted) {
            k->p.block = 4 + below(w, 8);
            k->p.cfg_scale = i == 3 ? 1.5f : 0;
            k->p.cache = i == 4 ? RG_CACHE_DUAL : i == 7 ? RG_CACHE_PREFIX : RG_CACHE_NONE;
        }
        if (!whole && i % 3 == 1) {
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
            take(r, s, k->want[s], k->n_tokens);
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
            take(r[i], s, ids, k->n_tokens);
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
    p.sampling.n_logprobs = 0;
    assert_null(rg_request_new(&p, &m, &err));
    assert_non_null(strstr(err.text, "logprobs"));
    p.sampling.n_logprobs = -1;
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
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(a_context_ends_with_a_whole_block),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
