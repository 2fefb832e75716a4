/* test_speculation.c -- drafts in the step loop, by drafters that know the answer: how many ids a step gives, what
 * becomes of a drafter that fails, and that a seed gives the same answer where drafts are judged by chance. */
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
    sum->n_steps += r->counts.n_steps;
    sum->n_drafted += r->counts.n_drafted;
    sum->n_accepted += r->counts.n_accepted;
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

/* ---- judged by chance -------------------------------------------------------------------------------------------- */

enum { N_ASKED = 6, N_SAMPLES = 2, N_ANSWER = 40, LONGEST = 130, N_SEQS = 4 };

static const mix chance_mixes[] = {
    { .name = "global", .global = true, .n_blocks = 7, .n_slots = N_SEQS, .n_window = 16 },
    { .name = "recurrent", .global = true, .recurrent = true, .n_blocks = 7, .n_slots = 2 * N_SEQS, .n_window = 16 },
};

typedef struct greedy {
    rg_drafter d;
    const mix *mix;
    int n_short; /* drafts that were shorter than an answer's end demands */
} greedy;

/* The likeliest ids: a draft that follows from the answer's ids. */
static bool propose_greedily(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    greedy *g = (greedy *)d;
    int32_t ids[LEN + DEPTH];

    for (int32_t i = 0; i < n; i++) {
        const rg_draft_ask *a = &asks[i];
        int32_t left = a->request->params.max_tokens - a->request->samples[a->sample].n_output - 1;

        g->n_short += a->depth < (left < DEPTH ? left : DEPTH);
        memcpy(ids, a->ids, (size_t)a->n_ids * sizeof *ids);
        for (int32_t k = 0; k < a->depth; k++) {
            float logits[VOCAB];
            int32_t best = 0;

            logits_of(plain_hash(g->mix, ids, a->n_ids + k), logits);
            for (int32_t id = 1; id < VOCAB; id++)
                best = logits[id] > logits[best] ? id : best;
            rg_draft_add(a->draft, k - 1, ids[a->n_ids + k] = best);
        }
    }
    return true;
}

static rg_request *chance_request(int i)
{
    rg_request_model m = { .vocab_size = VOCAB, .max_seq_len = LEN, .max_draft = DEPTH };
    int32_t prompt[LONGEST];
    rg_params p = { .prompt = prompt, .n_prompt = 1 + i * (LONGEST - 1) / (N_ASKED - 1), .max_tokens = N_ANSWER,
                    .n_samples = 1 + i % N_SAMPLES,
                    .sampling = { .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1,
                                  .n_logprobs = -1, .ignore_eos = true, .seed = (uint64_t)i } };
    rg_error err = { 0 };

    for (int k = 0; k < LONGEST; k++)
        prompt[k] = (i + k * k) % VOCAB;
    rg_request *r = rg_request_new(&p, &m, &err);
    assert_ok(r, err);
    return r;
}

static int32_t any_budget(void *arg)
{
    return (int32_t)rg_rng_below(arg, 64);
}

/* Answer requests [first, first + n) together.  Busy: of any few rows in a step, and preempted all the time. */
static void answer_by_chance(const mix *m, rg_verify verify, int first, int n, rg_rng *busy, int32_t (*ids)[N_SAMPLES][N_ANSWER])
{
    greedy g = { .d = { .depth = DEPTH, .propose = propose_greedily }, .mix = m };
    rg_loop_options o = { .max_seqs = N_SEQS, .max_rows = 64, .max_seq_len = LEN, .max_waiting = N_ASKED,
                          .drafter = &g.d, .max_draft = DEPTH, .verify = verify, .use_prefixes = true };
    rg_error err = { 0 };
    fake *f = fake_new(m, &err);
    rg_request *r[N_ASKED];

    assert_ok(f, err);
    rg_loop *l = rg_loop_new(&f->runner, &o, &err);
    assert_ok(l, err);
    if (busy)
        rg_loop_set_budget(l, any_budget, busy);
    for (int i = 0; i < n; i++) {
        r[i] = chance_request(first + i);
        assert_ok(rg_loop_submit(l, r[i], &err), err);
    }
    while (rg_loop_step(l)) {
        rg_loop_check(l);
        if (busy && !rg_rng_below(busy, 6))
            rg_loop_preempt(l, (int)rg_rng_below(busy, N_SEQS), rg_rng_below(busy, 2) ? RG_PREEMPT_SWAP
                                                                                      : RG_PREEMPT_RECOMPUTE);
    }
    for (int i = 0; i < n; i++) {
        assert_true(r[i]->counts.n_accepted > 0);
        for (int k = 0; k < r[i]->params.n_samples; k++) {
            assert_int_equal(r[i]->samples[k].n_output, N_ANSWER);
            memcpy(ids[i][k], r[i]->samples[k].ids, sizeof ids[i][k]);
        }
        rg_request_unref(r[i]);
    }
    if (!m->recurrent) /* whose snapshots are no drafts */
        assert_int_equal(g.n_short, 0);
    rg_loop_free(l);
    fake_free(f);
}

/* Whatever runs beside it, takes rows and memory from it, or preempts it. */
static void a_seed_gives_the_same_answer_by_chance(void **state)
{
    static const rg_verify ways[] = { RG_VERIFY_REJECTION, RG_VERIFY_TYPICAL };
    rg_rng busy = { .seed = 4 };

    (void)state;
    for (size_t k = 0; k < RG_LEN(chance_mixes); k++)
        for (size_t w = 0; w < RG_LEN(ways); w++) {
            int32_t alone[N_ASKED][N_SAMPLES][N_ANSWER] = { 0 }, together[N_ASKED][N_SAMPLES][N_ANSWER] = { 0 };

            for (int i = 0; i < N_ASKED; i++)
                answer_by_chance(&chance_mixes[k], ways[w], i, 1, NULL, &alone[i]);
            for (int round = 0; round < 20; round++) {
                answer_by_chance(&chance_mixes[k], ways[w], 0, N_ASKED, &busy, together);
                assert_memory_equal(alone, together, sizeof alone);
            }
        }
}

/* ---- Jacobi decoding --------------------------------------------------------------------------------------------- */

/* The ids behind which the last two decide about the next one, so that answers come to repeat themselves. */
static const mix short_mix = { .name = "window", .window = 2, .n_blocks = 8, .n_slots = N_SEQS, .n_window = 16 };

static int32_t next_of(const mix *m, const int32_t *ids, int32_t n)
{
    float logits[VOCAB];
    int32_t best = 0;

    logits_of(plain_hash(m, ids, n), logits);
    for (int32_t k = 1; k < VOCAB; k++)
        best = logits[k] > logits[best] ? k : best;
    return best;
}

/* Write N_OUTPUT ids behind n by the paper's algorithm, block after block: as many steps, and so many ids in drafts. */
static counted iterate(const mix *m, int32_t *ids, int32_t n, int32_t size)
{
    int32_t block[RG_MAX_DRAFT + 1], n_block = 0, end = n + N_OUTPUT;
    counted c = { .n_steps = 1 };

    ids[n] = next_of(m, ids, n); /* with the prompt */
    for (n++; n < end; c.n_steps++) {
        int32_t drawn[RG_MAX_DRAFT + 1], right = 0, most = end - n - 1;

        if (most < 1) { /* the last id needs no draft */
            ids[n] = next_of(m, ids, n);
            n++;
            continue;
        }
        for (; !n_block; n_block = size)
            for (int32_t k = 0; k < size; k++)
                block[k] = ids[n - 1];
        const int32_t n_draft = n_block - 1 < most ? n_block - 1 : most;
        for (int32_t k = 0; k <= n_draft; k++) {
            drawn[k] = next_of(m, ids, n + k);
            if (k < n_draft)
                ids[n + k] = block[k];
        }
        while (right < n_draft && drawn[right] == block[right])
            right++;
        memcpy(ids + n, drawn, (size_t)(right + 1) * sizeof *ids);
        memcpy(block, drawn, (size_t)(n_draft + 1) * sizeof *ids);
        n += right + 1;
        n_block -= right + 1;
        memmove(block, block + right + 1, (size_t)n_block * sizeof *block);
        c.n_drafted += n_draft;
        c.n_accepted += right;
    }
    return c;
}

/* In the engine it drafts block after block, as long as there are ids to come. */
static void jacobi_goes_on_behind_a_block(void **state)
{
    enum { SIZE = 8 };
    counted all = { 0 };

    (void)state;
    for (int32_t first = 0; first < 12; first++) {
        rg_error err = { 0 };
        rg_drafter *d = rg_draft_kind_find("jacobi")->open(&(rg_draft_options){ .n_lanes = 2, .max_draft = SIZE - 1 }, &err);
        rg_loop_options o = { .max_seqs = 2, .max_rows = 64, .max_seq_len = LEN, .max_waiting = 1, .drafter = d,
                              .max_draft = SIZE - 1 };
        rg_request_model m = { .vocab_size = VOCAB, .max_seq_len = LEN, .max_draft = SIZE - 1 };
        int32_t ids[N_PROMPT + N_OUTPUT + RG_MAX_DRAFT] = { 0, first, 2, 3, first };
        rg_params p = { .prompt = ids, .n_prompt = N_PROMPT, .max_tokens = N_OUTPUT, .n_samples = 1,
                        .sampling = { .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1,
                                      .ignore_eos = true } };
        fake *f = fake_new(&short_mix, &err);

        assert_ok(d && f, err);
        rg_loop *l = rg_loop_new(&f->runner, &o, &err);
        assert_ok(l, err);
        rg_request *r = rg_request_new(&p, &m, &err);
        assert_ok(r, err);
        assert_ok(rg_loop_submit(l, r, &err), err);
        while (rg_loop_step(l))
            rg_loop_check(l);
        const counted want = iterate(&short_mix, ids, N_PROMPT, SIZE);
        assert_memory_equal(r->samples[0].ids, ids + N_PROMPT, N_OUTPUT * sizeof *ids);
        assert_true(r->counts.n_steps == want.n_steps && r->counts.n_drafted == want.n_drafted &&
                    r->counts.n_accepted == want.n_accepted);
        all.n_steps += want.n_steps;
        all.n_accepted += want.n_accepted;
        all.n_drafted += want.n_drafted;
        rg_request_unref(r);
        rg_loop_free(l);
        rg_drafter_close(d);
        fake_free(f);
    }
    print_message("%d steps, %d ids drafted, %d accepted\n", all.n_steps, all.n_drafted, all.n_accepted);
    assert_true(all.n_accepted > 0 && all.n_drafted > 12 * N_OUTPUT);
}

/* ---- numbers that are not finite --------------------------------------------------------------------------------- */

typedef struct reading { /* a drafter that reads features, and guesses as the greedy one */
    greedy g;            /* first */
    rg_tap tap;
    int n_seen;
} reading;

/* An id stands behind each row that is seen: of the prompt, of the answer, or the one that was just drawn. */
static void see_ids(rg_drafter *d, const rg_draft_seen *seen, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const rg_draft_seen *s = &seen[i];
        int32_t end = s->start + s->n_rows + s->n_path;

        assert_true(s->n_ids > end && (!s->ends || s->n_ids == end + 1));
        for (int32_t k = 0; k < s->n_ids; k++)
            assert_true(s->ids[k] >= 0 && s->ids[k] < VOCAB);
    }
    ((reading *)d)->n_seen += n;
}

static struct {
    const rg_sink *sink;
    float bad;
    atomic_int left; /* rows of logits before the bad one */
} poison;

static void poisoned_logits(void *arg, int thread, int i, float *logits)
{
    if (atomic_fetch_sub(&poison.left, 1) == 0)
        logits[VOCAB / 2] = poison.bad;
    poison.sink->logits(arg, thread, i, logits);
}

static void poisoned_step(rg_runner *self, const rg_batch *batch, const rg_sink *sink)
{
    rg_sink own = *sink;

    poison.sink = sink;
    own.logits = poisoned_logits;
    fake_step(self, batch, &own);
}

/* Some rows of logits are computed before the bad one.  True: the request ends because of it. */
static bool ask_poisoned(rg_verify verify, int n_samples, bool beams, int n_before)
{
    reading r = { .g = { .d = { .depth = DEPTH, .propose = propose_greedily, .seen = see_ids }, .mix = &plain_mix } };
    rg_loop_options o = { .max_seqs = N_SEQS,
                          .max_rows = 64,
                          .max_seq_len = LEN,
                          .max_waiting = N_ASKED,
                          .drafter = &r.g.d,
                          .max_draft = DEPTH,
                          .verify = verify,
                          .use_prefixes = true };
    rg_request_model m = { .vocab_size = VOCAB, .max_seq_len = LEN, .max_draft = beams ? 0 : DEPTH };
    int32_t prompt[] = { 3, 1, 4, 1, 5 };
    rg_params p = { .prompt = prompt,
                    .n_prompt = RG_LEN(prompt),
                    .max_tokens = 20,
                    .n_samples = n_samples,
                    .sampling = { .temperature = beams ? 0 : 1,
                                  .top_p = 1,
                                  .typical_p = 1,
                                  .repetition_penalty = 1,
                                  .n_logprobs = -1,
                                  .ignore_eos = true,
                                  .seed = 8 },
                    .beam = { .n_beams = beams ? 3 : 0 } };
    rg_error err = { 0 };
    fake *f = fake_new(&plain_mix, &err);
    int n_bad = 0;

    r.g.d.tap = &r.tap;
    assert_ok(f, err);
    f->runner.step = poisoned_step;
    rg_loop *l = rg_loop_new(&f->runner, &o, &err);
    assert_ok(l, err);
    rg_request *q = rg_request_new(&p, &m, &err);
    assert_ok(q, err);
    assert_ok(rg_loop_submit(l, q, &err), err);
    atomic_store(&poison.left, n_before);
    while (rg_loop_step(l))
        rg_loop_check(l);
    for (int i = 0; i < n_samples; i++)
        n_bad += rg_request_told(q, i)->finish == RG_FINISH_NOT_FINITE;
    assert_true(beams || r.n_seen > 0 || !n_before || n_bad);
    rg_request_unref(q);
    rg_loop_free(l);
    fake_free(f);
    return n_bad > 0;
}

/* An answer that gets no id ends, and no drafter reads an id behind its last row; whichever row it is, and whatever is
 * asked for.  A row of a wrong draft ends nothing. */
static void a_row_that_is_no_number_ends_the_request(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    int n_bad = 0, n = 0;

    (void)state;
    for (int verify = 0; verify < RG_VERIFY_COUNT; verify++)
        for (int n_samples = 1; n_samples <= 3; n_samples += 2)
            for (int before = 0; before < 40; before++, n++) {
                poison.bad = bad[before % RG_LEN(bad)];
                n_bad += ask_poisoned((rg_verify)verify, n_samples, false, before);
            }
    print_message("%d of %d requests end\n", n_bad, n);
    assert_true(n_bad > n / 4 && n_bad < n);
    for (int before = 0; before < 20; before++)
        assert_true(ask_poisoned(RG_VERIFY_COUPLED, 1, true, before));
}

/* A loop that cannot reserve rows for all drafts is not opened. */
static void rows_for_drafts_are_there(void **state)
{
    greedy g = { .d = { .depth = DEPTH, .propose = propose_greedily } };
    rg_loop_options o = { .max_seqs = N_SEQS, .max_rows = N_SEQS * (1 + DEPTH) - 1, .max_seq_len = LEN, .max_waiting = 1,
                          .drafter = &g.d, .max_draft = DEPTH, .verify = RG_VERIFY_REJECTION };
    rg_error err = { 0 };
    fake *f = fake_new(&plain_mix, &err);

    (void)state;
    assert_ok(f, err);
    assert_null(rg_loop_new(&f->runner, &o, &err));
    assert_non_null(strstr(err.text, "drafts of 5 ids for 4 sequences"));
    o.verify = RG_VERIFY_COUPLED;
    rg_loop *l = rg_loop_new(&f->runner, &o, &err);
    assert_ok(l, err);
    rg_loop_free(l);
    fake_free(f);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_give_as_many_ids_as_expected),
        cmocka_unit_test(a_drafter_that_fails_is_dropped),
        cmocka_unit_test(any_choice_gives_the_answer),
        cmocka_unit_test(a_seed_gives_the_same_answer_by_chance),
        cmocka_unit_test(jacobi_goes_on_behind_a_block),
        cmocka_unit_test(a_row_that_is_no_number_ends_the_request),
        cmocka_unit_test(rows_for_drafts_are_there),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
