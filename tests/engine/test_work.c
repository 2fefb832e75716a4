/* Every kind of work gives what it gives alone: beside every other kind in one step, whatever rows a step may have, and
 * whether its request was preempted, by either way; and whenever it is cancelled, all that it held is given back and nobody
 * else notices.  Each request has a twin, of whose prompt some ids are given as the rows of the embedding: it gives the
 * same. */
#include "support/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/loop.h"
#include "engine/work/embedding.h"
#include "engine/work/head.h"
#include "engine/work/prompt_logprobs.h"
#include "engine/work/work.h"

enum { MAX_ROWS = 160, MAX_LEN = 256, MOST_IDS = 90, MOST_CASES = 18, RUNS = 2, MOST_BYTES = 1 << 14 };

typedef struct kase {
    const char *kind; /* of work, as it must be found */
    rg_params p;
    int32_t prompt[MOST_IDS];
    rg_given_rows given[RUNS]; /* without rows: of the twin */
    bool is_twin;
    size_t n_want;
    uint8_t want[MOST_BYTES]; /* all that it gives, alone */
} kase;

typedef struct world {
    test_model model;
    rg_runner *runner;
    rg_request_model facts;
    rg_rng g;
    bool has_table_beside; /* the embedding, which gives its first row for given rows */
    kase cases[MOST_CASES];
    int n;
} world;

static int below(world *w, int n)
{
    return (int)rg_rng_below(&w->g, (uint32_t)n);
}

static rg_loop *loop_of(const world *w)
{
    rg_error err;
    rg_loop *l = rg_loop_new(w->runner, &(rg_loop_options){ .max_seqs = 12, .max_rows = MAX_ROWS, .max_seq_len = MAX_LEN,
                                                            .max_waiting = 64, .use_prefixes = true }, &err);

    assert_ok(l, err);
    return l;
}

static rg_request *submit(const world *w, rg_loop *l, const kase *k)
{
    rg_error err;
    rg_request *r = rg_request_new(&k->p, &w->facts, &err);

    assert_ok(r, err);
    assert_string_equal(r->work->name, k->kind);
    assert_ok(rg_loop_submit(l, r, &err), err);
    return r;
}

/* ---- what a request gives ---------------------------------------------------------------------------------------- */

static void put(uint8_t *out, size_t *n, const void *bytes, size_t n_bytes)
{
    assert_true(*n + n_bytes <= MOST_BYTES);
    memcpy(out + *n, bytes, n_bytes);
    *n += n_bytes;
}

static bool is_given(const kase *k, int32_t position)
{
    for (int i = 0; i < RUNS; i++)
        if (position >= k->given[i].at && position < k->given[i].at + k->given[i].n)
            return true;
    return false;
}

/* Those of the ids that the twin has, too. */
static bool put_logprobs(const rg_request *r, const kase *k, uint8_t *out, size_t *n)
{
    for (int32_t i = 1; k->p.prompt_logprobs && i < k->p.n_prompt; i++) {
        rg_prompt_logprob l;
        const bool there = rg_prompt_logprobs_get(r, i, &l);

        if (there == (k->is_twin && is_given(k, i)))
            return false;
        if (is_given(k, i))
            continue;
        put(out, n, &l.logprob, sizeof l.logprob);
        put(out, n, &l.rank, sizeof l.rank);
    }
    return true;
}

/* Read all of it, as its reader does; false: it has not ended, or not by itself. */
static bool read_all(rg_request *r, const kase *k, uint8_t *out, size_t *n)
{
    const float *made;
    rg_token t;
    int32_t n_made;
    bool well = true;

    *n = 0;
    while (rg_request_poll(r, &t) > 0) {
        const float logprob = r->params.sampling.n_logprobs >= 0 && t.id >= 0 ? t.logprob : 0;
        const int32_t event[] = { t.sample, t.id, (int32_t)t.finish };

        well &= t.id >= 0 || t.finish == RG_FINISH_STOP || t.finish == RG_FINISH_LENGTH;
        put(out, n, event, sizeof event);
        put(out, n, &logprob, sizeof logprob);
    }
    well &= put_logprobs(r, k, out, n);
    for (int32_t i = 0; (made = rg_prompt_logits_get(r, i, &n_made)); i++) {
        const uint64_t hash = rg_hash(made, (size_t)n_made * sizeof *made, 0);

        put(out, n, &hash, sizeof hash);
    }
    made = r->params.embed ? rg_embedding_result(r, &n_made) : rg_head_result(r, &n_made);
    if (made)
        put(out, n, made, (size_t)n_made * sizeof *made);
    return well && *n && rg_request_poll(r, &t) < 0;
}

static void expect(rg_request *r, const kase *k, const char *when)
{
    static uint8_t got[MOST_BYTES];
    size_t n;

    if (!read_all(r, k, got, &n) || n != k->n_want || memcmp(got, k->want, n))
        fail_msg("%s (%d prompt ids%s): not what it gives alone, %s", k->kind, (int)k->p.n_prompt,
                 k->is_twin ? ", some given as rows" : "", when);
}

/* All that requests held is given back. */
static void close_loop(rg_loop *l)
{
    const rg_stats s = rg_loop_stats(l);

    rg_loop_check(l);
    assert_int_equal(s.n_running, 0);
    assert_int_equal(s.n_waiting, 0);
    assert_int_equal(s.state_used_bytes, 0);
    rg_loop_free(l);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

/* The next case, with a random prompt and no answer. */
static kase *add(world *w, const char *kind, int32_t n_prompt)
{
    kase *k = &w->cases[w->n++];

    assert_true(w->n <= MOST_CASES && n_prompt <= MOST_IDS);
    *k = (kase){ .kind = kind, .p = { .prompt = k->prompt, .n_prompt = n_prompt, .n_samples = 1 } };
    k->p.sampling = (rg_sampling){ .temperature = 0.8f, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .seed = 7,
                                   .ignore_eos = true, .n_logprobs = -1 };
    k->given[0].at = below(w, n_prompt - 3);
    k->given[0].n = 1 + below(w, n_prompt - 3 - k->given[0].at);
    k->given[1].at = k->given[0].at + k->given[0].n + below(w, 2);
    k->given[1].n = w->n % 2 ? n_prompt - k->given[1].at : 1; /* maybe the prompt's end */
    for (int32_t i = 0; i < n_prompt; i++)
        k->prompt[i] = w->has_table_beside && is_given(k, i) ? 0 : 1 + below(w, 250);
    return k;
}

static void add_twins(world *w)
{
    for (int i = 0, n = w->n; i < n; i++) {
        kase *k = &w->cases[w->n++];

        assert_true(w->n <= MOST_CASES);
        *k = w->cases[i];
        k->is_twin = true;
        k->p.prompt = k->prompt;
        k->p.given = k->given;
        k->p.n_given = RUNS;
        for (int j = 0; j < RUNS; j++) {
            rg_given_rows *g = &k->given[j];

            g->rows = test_embedded(w->model.m, k->prompt + g->at, g->n);
            for (int32_t at = g->at; at < g->at + g->n; at++)
                k->prompt[at] = -1;
        }
    }
}

static void drop_twins(world *w)
{
    for (int i = 0; i < w->n; i++)
        for (int j = 0; j < RUNS; j++)
            free((void *)(uintptr_t)w->cases[i].given[j].rows);
}

static void add_answers(world *w)
{
    kase *k = add(w, "answer", 30);

    k->p.max_tokens = 20;
    k->p.sampling.n_logprobs = 2;
    k = add(w, "answer", 70); /* samples fork behind the prompt */
    k->p.max_tokens = 9;
    k->p.n_samples = 3;
    k = add(w, "answer", 5);
    k->p.max_tokens = 12;
    k->p.best_of = 3;
    k = add(w, "prompt_logprobs", 80);
    k->p.prompt_logprobs = true;
    k->p.prompt_logits = true;
    k = add(w, "prompt_logprobs", 66);
    k->p.prompt_logprobs = k->p.prompt_logits = true;
    k->p.max_tokens = 10;
    k->p.n_samples = 2;
    k = add(w, "beams", 68);
    k->p.max_tokens = 14;
    k->p.n_samples = 2;
    k->p.beam.n_beams = 3;
    k->p.beam.length_penalty = 1;
}

static void add_prompts(world *w, bool head)
{
    add(w, "embedding", 75)->p.embed = RG_POOLING_LAST;
    add(w, "embedding", 40)->p.embed = RG_POOLING_MEAN;
    if (head)
        add(w, "head", 33)->p.score = true;
    if (head)
        add(w, "head", 50)->p.score = true;
}

static void add_fills(world *w)
{
    kase *k = add(w, "fill", 20);

    k->p.max_tokens = 16;
    k->p.n_samples = 2;
    k->p.diffusion.steps = 3;
    k = add(w, "fill", 66);
    k->p.max_tokens = 8;
    k->p.diffusion.steps = 4;
    if (w->runner->sees != RG_SEES_ALL)
        return;
    k->p.diffusion.block = 4;
    k->p.diffusion.cache = RG_CACHE_DUAL;
    k = add(w, "fill", 12);
    k->p.max_tokens = 12;
    k->p.diffusion.steps = 4;
    k->p.diffusion.cfg_scale = 1.5f;
}

/* ---- what may happen --------------------------------------------------------------------------------------------- */

static void alone(world *w)
{
    for (int i = 0; i < w->n; i++) {
        rg_loop *l = loop_of(w);
        rg_request *r = submit(w, l, &w->cases[i]);

        while (rg_loop_step(l))
            rg_loop_check(l);
        assert_true(read_all(r, &w->cases[i], w->cases[i].want, &w->cases[i].n_want));
        rg_request_unref(r);
        close_loop(l);
    }
}

static int32_t some_rows(void *arg)
{
    world *w = arg;

    return below(w, 3) ? MAX_ROWS : 1 + below(w, MAX_ROWS);
}

static int32_t few_rows(void *arg)
{
    return 1 + below(arg, 30);
}

static void together(world *w)
{
    rg_loop *l = loop_of(w);
    rg_request *r[2 * MOST_CASES];

    rg_loop_set_budget(l, some_rows, w);
    for (int i = 0; i < 2 * w->n; i++)
        r[i] = submit(w, l, &w->cases[i % w->n]);
    while (rg_loop_step(l)) {
        if (!below(w, 6))
            (void)rg_loop_preempt(l, below(w, 6), below(w, 2) ? RG_PREEMPT_SWAP : RG_PREEMPT_RECOMPUTE);
        rg_loop_check(l);
    }
    for (int i = 0; i < 2 * w->n; i++) {
        expect(r[i], &w->cases[i % w->n], "beside every other kind");
        rg_request_unref(r[i]);
    }
    close_loop(l);
}

/* It loses its state after its n-th step and every third from there on; returns how often. */
static int preempted(world *w, const kase *k, int n, rg_preempt how)
{
    rg_loop *l = loop_of(w);
    int32_t lost;

    rg_loop_set_budget(l, few_rows, w); /* so that prompts are cut, too */
    rg_request *r = submit(w, l, k);
    for (int i = 1; rg_loop_step(l); i++) {
        if (i >= n && (i - n) % 3 == 0)
            (void)rg_loop_preempt(l, 0, how);
        rg_loop_check(l);
    }
    expect(r, k, how == RG_PREEMPT_SWAP ? "after its state was swapped" : "after it was computed again");
    lost = rg_request_used(r).n_preempted;
    rg_request_unref(r);
    close_loop(l);
    return lost;
}

/* It is cancelled after n steps, beside another request; true: it had ended before. */
static bool cancelled(world *w, const kase *k, const kase *other, int n)
{
    rg_loop *l = loop_of(w);
    rg_request *r = submit(w, l, k), *o = submit(w, l, other);
    rg_token t;
    rg_finish why = RG_RUNNING;

    rg_loop_set_budget(l, some_rows, w);
    for (int i = 0; i < n && rg_loop_step(l); i++)
        if (n % 2 && i + 2 == n)
            (void)rg_loop_preempt(l, 0, RG_PREEMPT_AUTO); /* now and then it is waiting again */
    atomic_store(&r->cancelled, true);
    while (rg_loop_step(l))
        rg_loop_check(l);
    while (rg_request_poll(r, &t) > 0)
        why = t.id < 0 ? t.finish : why;
    assert_int_not_equal(why, RG_RUNNING);
    expect(o, other, "beside one that was cancelled");
    rg_request_unref(r);
    rg_request_unref(o);
    close_loop(l);
    return why != RG_FINISH_CANCELLED;
}

static void check(const char *name, void (*cases)(world *w))
{
    world *w = calloc(1, sizeof *w);
    rg_error err;

    assert_non_null(w);
    w->g.seed = test_seed;
    test_model_open(&w->model, test_data(name), "f32");
    const rg_config *c = &w->model.m->config;
    w->runner = rg_model_runner_new(w->model.m, &(rg_runner_options){ .backend = rg_backend_find("auto", NULL), .n_threads = 2,
                                                                      .exact = true, .max_rows = MAX_ROWS, .max_logits = MAX_ROWS,
                                                                      .max_seqs = 12, .max_seq_len = MAX_LEN,
                                                                      .state_bytes = 6 << 20 }, &err);
    assert_ok(w->runner, err);
    w->has_table_beside = !strcmp(name, "gemma3n");
    w->facts = (rg_request_model){ .vocab_size = c->vocab_size, .max_seq_len = MAX_LEN, .dim = c->dim, .config = c,
                                   .given_dim = (int32_t)w->model.m->outer.w[W_EMBED_TOKENS]->cols,
                                   .sees = c->sees, .whole = c->sees != RG_CAUSAL, .n_labels = c->n_labels,
                                   .score_pooling = c->score_pooling, .max_rows = MAX_ROWS, .max_logits = MAX_ROWS,
                                   .diffusion = c->diffusion.mask_id < 0 ? NULL : &w->runner->diffusion };
    cases(w);
    alone(w);
    add_twins(w);
    for (int i = 0; i < (TEST_SLOWER > 1 ? 1 : 3); i++)
        together(w);
    for (int i = 0; i < w->n; i++) {
        const kase *k = &w->cases[i];
        int n_lost = 0, n_steps = 0;

        for (int n = 1; n <= (TEST_SLOWER > 1 ? 2 : 4); n++)
            n_lost += preempted(w, k, n, RG_PREEMPT_RECOMPUTE) + preempted(w, k, n, RG_PREEMPT_SWAP);
        assert_true(n_lost || ((k->p.embed || k->p.score) && w->facts.whole)); /* one step is all that those take */
        while (!cancelled(w, k, &w->cases[(i + 1) % w->n], n_steps))
            n_steps += TEST_SLOWER > 1 ? 4 : 1;
        assert_true(n_steps > 0);
    }
    drop_twins(w);
    rg_model_runner_free(w->runner);
    test_model_close(&w->model);
    free(w);
}

static void decoder_cases(world *w)
{
    add_answers(w);
    add_prompts(w, false);
}

static void encoder_cases(world *w)
{
    add_prompts(w, true);
}

static void diffusion_cases(world *w)
{
    add_fills(w);
    add_prompts(w, false);
}

static void of_a_decoder(void **state)
{
    (void)state;
    check("llama", decoder_cases);
}

static void of_a_decoder_that_scales_its_embedding(void **state)
{
    (void)state;
    check("gemma3", decoder_cases);
}

static void of_a_decoder_with_a_table_beside_its_embedding(void **state)
{
    (void)state;
    check("gemma3n", decoder_cases);
}

static void of_a_decoder_with_latents(void **state)
{
    (void)state;
    check("deepseek-v3", decoder_cases);
}

static void of_a_decoder_with_recurrent_state(void **state)
{
    (void)state;
    check("jamba", decoder_cases);
}

static void of_an_encoder(void **state)
{
    (void)state;
    check("bert-rerank", encoder_cases);
}

static void of_a_diffusion_model(void **state)
{
    (void)state;
    check("llada", diffusion_cases);
}

static void of_a_diffusion_model_with_blocks(void **state)
{
    (void)state;
    check("sdar-b4", diffusion_cases);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_decoder),
        cmocka_unit_test(of_a_decoder_that_scales_its_embedding),
        cmocka_unit_test(of_a_decoder_with_a_table_beside_its_embedding),
        cmocka_unit_test(of_a_decoder_with_latents),
        cmocka_unit_test(of_a_decoder_with_recurrent_state),
        cmocka_unit_test(of_an_encoder),
        cmocka_unit_test(of_a_diffusion_model),
        cmocka_unit_test(of_a_diffusion_model_with_blocks),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
