/* test_speculation.c -- drafts in the step loop, by drafters that know the answer: how many ids a step gives, and what
 * becomes of a drafter that fails. */
#include "engine/fake.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/draft/draft.h"

enum { N_PROMPT = 5, N_OUTPUT = 150, LEN = 200, DEPTH = 5 };

static const mix plain_mix = { .name = "global", .global = true, .n_blocks = 16, .n_slots = 4, .n_window = 16 };

/* The answer to a prompt of one id, repeated. */
static void write_answer(int32_t id, int32_t *ids)
{
    float logits[VOCAB];

    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = id;
    for (int32_t n = N_PROMPT; n < N_PROMPT + N_OUTPUT; n++) {
        int32_t best = 0;

        logits_of(plain_hash(&plain_mix, ids, n), logits);
        for (int32_t k = 1; k < VOCAB; k++)
            best = logits[k] > logits[best] ? k : best;
        ids[n] = best;
    }
}

typedef struct knowing {
    rg_drafter d;
    int32_t ids[N_PROMPT + N_OUTPUT];
    rg_rng g;
    double chance;      /* of a guess to be right */
    int n_calls, n_fail; /* n_fail: the call that fails; 0: none */
} knowing;

static bool propose(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    knowing *w = (knowing *)d;

    if (++w->n_calls == w->n_fail) {
        rg_draft_add(asks[0].draft, -1, 0); /* half a draft */
        return false;
    }
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < asks[i].depth; k++) {
            int32_t id = w->ids[asks[i].n_ids + k];

            if ((double)rg_rng_below(&w->g, 1 << 20) >= w->chance * (1 << 20))
                id = (id + 1) % VOCAB;
            rg_draft_add(asks[i].draft, k - 1, id);
        }
    return true;
}

static knowing *knowing_new(double chance, int n_fail)
{
    knowing *w = calloc(1, sizeof *w);

    w->d = (rg_drafter){ .depth = DEPTH, .propose = propose };
    w->g.seed = 5;
    w->chance = chance;
    w->n_fail = n_fail;
    return w;
}

typedef struct counted {
    int n_steps, n_drafted, n_accepted;
} counted;

/* Ask with the prompt of an id, which the drafters know the answer to; it must come. */
static void ask(rg_loop *l, int32_t id, knowing *a, knowing *b, counted *sum)
{
    rg_request_model m = { .vocab_size = VOCAB, .max_seq_len = LEN, .max_draft = DEPTH };
    int32_t ids[N_PROMPT + N_OUTPUT];
    rg_params p = { .prompt = ids, .n_prompt = N_PROMPT, .max_tokens = N_OUTPUT, .n_samples = 1,
                    .sampling = { .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1,
                                  .ignore_eos = true } };
    rg_error err = { 0 };
    rg_request *r;

    write_answer(id, ids);
    memcpy(a->ids, ids, sizeof ids);
    if (b)
        memcpy(b->ids, ids, sizeof ids);
    r = rg_request_new(&p, &m, &err);
    assert_ok(r, err);
    assert_ok(rg_loop_submit(l, r, &err), err);
    while (rg_loop_step(l))
        rg_loop_check(l);
    assert_int_equal(r->samples[0].n_output, N_OUTPUT);
    assert_memory_equal(r->samples[0].ids, ids + N_PROMPT, N_OUTPUT * sizeof *ids);
    sum->n_steps += r->n_steps;
    sum->n_drafted += r->n_drafted;
    sum->n_accepted += r->n_accepted;
    rg_request_unref(r);
}

/* Several requests after each other. */
static counted ask_all(knowing *a, knowing *b, bool adapt, int n)
{
    rg_loop_options o = { .max_seqs = 2, .max_rows = 64, .max_seq_len = LEN, .max_waiting = 1, .drafter = &a->d,
                          .fallback = b ? &b->d : NULL, .max_draft = DEPTH, .adapt_drafts = adapt };
    rg_error err = { 0 };
    fake *f = fake_new(&plain_mix, &err);
    counted sum = { 0 };
    rg_loop *l;

    assert_ok(f, err);
    f->runner.facts = (rg_step_facts){ .weight_bytes = 1e6, .row_bytes = 1e3, .row_ops = 1e4, .fixed_s = 1e-5 };
    l = rg_loop_new(&f->runner, &o, &err);
    assert_ok(l, err);
    for (int i = 0; i < n; i++)
        ask(l, i % VOCAB, a, b, &sum);
    rg_loop_free(l);
    fake_free(f);
    return sum;
}

/* (1 - a^(g + 1)) / (1 - a) ids a step, where each of g guesses is right with chance a (Leviathan 2211.17192). */
static void steps_give_as_many_ids_as_expected(void **state)
{
    static const double chances[] = { 0.5, 0.7, 0.9 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(chances); i++) {
        knowing *w = knowing_new(chances[i], 0);
        counted c = ask_all(w, NULL, false, 24);
        double want = (1 - pow(chances[i], DEPTH + 1)) / (1 - chances[i]), got = 24.0 * N_OUTPUT / c.n_steps;

        print_message("chance %.1f: %.3f ids a step, expected %.3f\n", chances[i], got, want);
        assert_true(fabs(got - want) < 0.05 * want);
        assert_int_equal(c.n_steps + c.n_accepted, 24 * N_OUTPUT);
        free(w);
    }
}

/* Its answers go on without it, or with the other one. */
static void a_drafter_that_fails_is_dropped(void **state)
{
    knowing *bad = knowing_new(1, 4), *good = knowing_new(1, 0);
    counted c = ask_all(bad, NULL, false, 2);

    (void)state;
    assert_int_equal(bad->n_calls, 4);
    assert_true(c.n_drafted > 0 && c.n_drafted <= 3 * DEPTH && c.n_steps > N_OUTPUT);
    bad->n_calls = 0;
    c = ask_all(bad, good, false, 2);
    assert_int_equal(bad->n_calls, 4);
    assert_true(good->n_calls > 20 && c.n_steps < N_OUTPUT);
    free(bad);
    free(good);
}

/* However steps are drafted for, the answer is the same; ask() checks that. */
static uint64_t any_clock(void *arg)
{
    static uint64_t now_ns;

    return now_ns += 1000 + rg_rng_below(arg, 100000);
}

static void any_choice_gives_the_answer(void **state)
{
    rg_rng clock = { .seed = 9 };
    knowing *a = knowing_new(0.8, 0), *b = knowing_new(0.3, 0);
    counted c;

    (void)state;
    rg_clock_set(any_clock, &clock);
    c = ask_all(a, b, true, 12);
    rg_clock_set(NULL, NULL);
    assert_true(c.n_drafted > 0 && c.n_steps < 12 * N_OUTPUT);
    free(a);
    free(b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_give_as_many_ids_as_expected),
        cmocka_unit_test(a_drafter_that_fails_is_dropped),
        cmocka_unit_test(any_choice_gives_the_answer),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
