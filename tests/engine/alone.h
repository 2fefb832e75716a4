/* alone.h -- random requests to the fake model (fake.h), what each of them gives alone, and a drafter that knows the answers
 * and errs: for tests that run many at once. */
#ifndef RG_TEST_ALONE_H
#define RG_TEST_ALONE_H

#include "engine/fake.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>

#include "engine/draft/draft.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/work/embedding.h"
#include "engine/work/prompt_logprobs.h"

enum { MAX_LEN = 448, MAX_LIVE = 24, MAX_PROMPT = 250 };

/* ---- requests and what they must give ---------------------------------------------------------------------------- */

typedef struct expected {
    int32_t ids[MAX_LEN];
    float logprobs[MAX_LEN];
    int32_t n;
    rg_finish finish;
} expected;

/* plain: the ids of the prompt, those included that are given as rows. */
static void expect(const mix *m, const rg_params *p, const int32_t *plain, int sample, int32_t max_tokens, expected *e)
{
    static const int32_t eos[] = { EOS };
    rg_sampler *s = rg_sampler_new(VOCAB, 2 * MAX_LEN, NULL);
    int32_t ids[2 * MAX_LEN];
    float mu = rg_mirostat_begin(&p->sampling);

    memcpy(ids, plain, (size_t)p->n_prompt * sizeof *ids);
    for (e->n = 0, e->finish = RG_FINISH_LENGTH; e->n < max_tokens; e->n++) {
        rg_sample_place at = {
            .history = { p->prompt, e->ids, p->n_prompt, e->n }, .banned = eos,
            .n_banned = e->n < p->sampling.min_tokens && !p->sampling.ignore_eos, .mu = mu,
            .key = { .seed = p->sampling.seed, .sample = sample, .position = p->n_prompt + e->n },
        };
        float logits[VOCAB], raw[VOCAB];
        int32_t id;

        logits_of(plain_hash(m, ids, p->n_prompt + e->n), logits);
        memcpy(raw, logits, sizeof raw);
        rg_sample_rules(s, logits, &p->sampling, &at);
        id = rg_sample_draw(s, logits, &p->sampling, &at.key);
        if (p->sampling.mirostat)
            mu = rg_mirostat_next(s, logits, &p->sampling, mu, id);
        if (id == EOS && !p->sampling.ignore_eos) {
            e->finish = RG_FINISH_STOP;
            break;
        }
        e->logprobs[e->n] = rg_logprobs(s, raw, id, 0, NULL);
        e->ids[e->n] = ids[p->n_prompt + e->n] = id;
    }
    rg_sampler_free(s);
}

static void expect_embedding(const mix *m, const rg_params *p, const int32_t *plain, float *want)
{
    int32_t from = p->embed == RG_POOLING_LAST ? p->n_prompt : 1, to = p->embed == RG_POOLING_CLS ? 1 : p->n_prompt;
    double sum[DIM] = { 0 };
    float hidden[DIM];

    for (int32_t n = from; n <= to; n++) {
        hidden_of(plain_hash(m, plain, n), hidden);
        for (int i = 0; i < DIM; i++)
            sum[i] += (double)hidden[i];
    }
    for (int i = 0; i < DIM; i++)
        want[i] = (float)(sum[i] / (to - from + 1));
}

enum { MAX_TOPS = 3 };

typedef struct scored { /* an id of a prompt */
    float logprob;
    int32_t rank;
    rg_top tops[MAX_TOPS];
    float logits[VOCAB]; /* of the row at its place */
} scored;

/* What each id of the prompt is worth by the row before it. */
static scored *expect_scores(const mix *m, const rg_params *p, const int32_t *plain)
{
    rg_sampler *s = rg_sampler_new(VOCAB, 2 * MAX_LEN, NULL);
    scored *want = rg_array((size_t)p->n_prompt, sizeof *want);

    for (int32_t i = 0; i < p->n_prompt; i++) {
        const float *logits = i ? want[i - 1].logits : NULL;
        int32_t id = plain[i];

        logits_of(plain_hash(m, plain, i + 1), want[i].logits);
        if (!i)
            continue;
        want[i].logprob = rg_logprobs(s, logits, id, p->n_prompt_tops, want[i].tops);
        want[i].rank = 1;
        for (int32_t k = 0; k < VOCAB; k++)
            want[i].rank += logits[k] > logits[id] || (logits[k] == logits[id] && k < id);
    }
    rg_sampler_free(s);
    return want;
}

/* True if the logits of rows [first, end) are there, and are what they must be. */
static bool logits_are_right(const rg_request *r, const scored *want, int32_t first, int32_t end)
{
    int32_t n = 0;

    for (int32_t i = first; r->params.prompt_logits && i < end; i++) {
        const float *logits = rg_prompt_logits_get(r, i, &n);

        if (!logits || n != VOCAB || memcmp(logits, want[i].logits, sizeof want[i].logits))
            return false;
    }
    return !rg_prompt_logits_get(r, r->params.prompt_logits ? r->params.n_prompt : 0, &n) && !rg_prompt_logits_get(r, -1, &n);
}

/* How many ids have a score, the first being one of them; -1: one of them is not what it must be. */
static int32_t count_scores(const rg_request *r, const scored *want)
{
    int32_t n = 1, n_prompt = r->params.n_prompt, last = 0; /* last: the last id that has one */
    rg_prompt_logprob l;

    for (; want && n < n_prompt; n++) {
        const bool there = rg_prompt_logprobs_get(r, n, &l), given = !rg_is_id(r->params.prompt[n]);

        if (!there && !given)
            break;
        if (there && given)
            return -1;
        if (given)
            continue;
        last = n;
        if (l.id != r->params.prompt[n] || memcmp(&l.logprob, &want[n].logprob, sizeof l.logprob) ||
            l.rank != want[n].rank || l.n_top != r->params.n_prompt_tops)
            return -1;
        for (int k = 0; k < l.n_top; k++)
            if (l.top[k].id != want[n].tops[k].id ||
                memcmp(&l.top[k].logprob, &want[n].tops[k].logprob, sizeof l.logprob))
                return -1;
    }
    if (want && !logits_are_right(r, want, last ? last - 1 : 0, last))
        return -1;
    return rg_prompt_logprobs_get(r, 0, &l) || rg_prompt_logprobs_get(r, n_prompt, &l) ? -1 : n;
}

/* Some of the rules that llama.cpp's users know. */
static void sampling_of_llama(rg_rng *g, rg_sampling *p)
{
    const uint32_t rules = rg_rng_below(g, 64);

    if (rules & 1)
        p->penalty_last_n = (int32_t)rg_rng_below(g, 20) - 1;
    if ((rules & 6) == 6) {
        p->dry_multiplier = 2;
        p->dry_base = 1.5f;
        p->dry_allowed_length = 1;
        p->dry_penalty_last_n = rg_rng_below(g, 2) ? -1 : 9;
    }
    if (rules & 8) {
        p->xtc_probability = 0.5f;
        p->xtc_threshold = 0.05f;
    }
    if (rules & 16)
        p->top_n_sigma = 1.5f;
    if ((rules & 32) && rg_rng_below(g, 2)) {
        p->dynatemp_range = 0.4f;
        p->dynatemp_exponent = 1;
    } else if (rules & 32) {
        p->mirostat = 1 + (int32_t)rg_rng_below(g, 2);
        p->mirostat_tau = 2;
        p->mirostat_eta = 0.5f;
    }
}

static rg_sampling sampling_random(rg_rng *g)
{
    rg_sampling p = {
        .temperature = rg_rng_below(g, 3) ? 1.0f : 0.0f, .top_p = 1, .typical_p = 1, .repetition_penalty = 1
    };

    p.seed = rg_rng_u64(g);
    p.n_logprobs = (int32_t)rg_rng_below(g, 4) - 1;
    p.ignore_eos = rg_rng_below(g, 2);
    p.min_tokens = (int32_t)rg_rng_below(g, 20);
    if (!rg_rng_below(g, 3))
        p.top_k = 8;
    if (!rg_rng_below(g, 4))
        p.repetition_penalty = 1.3f;
    sampling_of_llama(g, &p);
    return p;
}

/* Prompts come of few families, so that prefixes meet. */
static void prompt_random(rg_rng *g, int32_t *ids, int32_t n)
{
    uint64_t family = rg_rng_below(g, 4);
    int32_t same = rg_rng_below(g, 2) ? n : (int32_t)rg_rng_below(g, (uint32_t)n + 1);

    for (int32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(i < same ? stir(family, (uint64_t)i) % VOCAB : rg_rng_below(g, VOCAB));
}

/* The rows that stand for ids [n], as the fake model reads them; free() them. */
static float *rows_of(const int32_t *ids, int32_t n)
{
    float *rows = calloc((size_t)n * DIM, sizeof *rows);

    assert_non_null(rows);
    for (int32_t i = 0; i < n; i++)
        rows[i * DIM] = (float)ids[i];
    return rows;
}

enum { MAX_GIVEN = 3 };

/* Some of the prompt's ids are given as rows instead, at few places, so that prefixes meet; how many runs of them. */
static int32_t give_random(rg_rng *g, int32_t *ids, int32_t n, rg_given_rows *given)
{
    static const rg_given_rows runs[MAX_GIVEN] = { { .at = 3, .n = 6 }, { .at = 20, .n = 70 }, { .at = 90, .n = 31 } };
    int32_t n_given = 0;

    for (int i = 0; i < MAX_GIVEN; i++) {
        rg_given_rows run = runs[i];

        if (run.at + run.n > n || rg_rng_below(g, 2))
            continue;
        run.rows = rows_of(ids + run.at, run.n);
        for (int32_t k = 0; k < run.n; k++)
            ids[run.at + k] = RG_GIVEN;
        given[n_given++] = run;
    }
    return n_given;
}

typedef struct live {
    rg_request *r;
    expected *want; /* [n_samples] */
    scored *scores; /* [n_prompt]; NULL: not asked for */
    int32_t n_scored;
    float embedding[DIM];
    int32_t seen[16];
    bool cancelled;
} live;

/* True if an answer ended before it was complete. */
static bool is_cut(rg_finish finish)
{
    return finish == RG_FINISH_CANCELLED || finish == RG_FINISH_DEADLINE || finish == RG_FINISH_LOST;
}

/* True if the request may have been cut in this way. */
static bool may_be_cut(const live *l, rg_finish finish)
{
    return (finish == RG_FINISH_CANCELLED && l->cancelled) ||
           (finish == RG_FINISH_DEADLINE && l->r->who.deadline_ns) ||
           (finish == RG_FINISH_LOST && l->r->counts.n_lost >= 3);
}

static void check_embedding(const live *l, rg_finish finish)
{
    int32_t n;

    if (finish == RG_FINISH_STOP)
        assert_memory_equal(rg_embedding_result(l->r, &n), l->embedding, sizeof l->embedding);
    else
        assert_true(may_be_cut(l, finish));
}

/* Read what is there and compare.  True: it has ended. */
static bool live_read(live *l)
{
    rg_token t;
    int got;
    int32_t n_scored = count_scores(l->r, l->scores);

    assert_true(n_scored >= l->n_scored); /* whatever was preempted */
    l->n_scored = n_scored;
    while ((got = rg_request_poll(l->r, &t)) > 0) {
        const expected *e = &l->want[t.sample];

        if (l->scores && !is_cut(t.finish))
            assert_int_equal(n_scored, l->r->params.n_prompt);
        if (l->scores && !t.sample && !is_cut(t.finish))
            assert_true(logits_are_right(l->r, l->scores, l->seen[0] ? n_scored - 1 : 0, n_scored));

        if (l->r->params.embed) {
            check_embedding(l, t.finish);
        } else if (t.id >= 0) {
            assert_true(l->seen[t.sample] < e->n);
            assert_int_equal(t.id, e->ids[l->seen[t.sample]]);
            if (l->r->params.sampling.n_logprobs >= 0)
                assert_memory_equal(&t.logprob, &e->logprobs[l->seen[t.sample]], sizeof(float));
            l->seen[t.sample]++;
        } else if (!may_be_cut(l, t.finish)) {
            assert_int_equal(l->seen[t.sample], e->n);
            assert_int_equal(t.finish, e->finish);
        }
    }
    return got < 0;
}

static void live_close(live *l)
{
    rg_request_unref(l->r);
    rg_free(l->want);
    rg_free(l->scores);
    *l = (live){ 0 };
}

/* Submit a request whose prompt has at most so many ids.  False and *err: it was refused. */
static bool live_open(live *l, const mix *m, rg_loop *loop, rg_rng *g, uint32_t most, rg_error *err)
{
    static const int32_t eos[] = { EOS };
    int32_t prompt[MAX_LEN], plain[MAX_LEN],
        n = rg_rng_below(g, 4) ? 1 + (int32_t)rg_rng_below(g, most) : 1 + (int32_t)rg_rng_below(g, 3);
    rg_params p = { .prompt = prompt, .n_prompt = n, .max_tokens = 1 + (int32_t)rg_rng_below(g, most * 9 / 25 + 1) };

    static const char *const names[] = { NULL, "one", "another" };

    p.n_samples = rg_rng_below(g, 3) ? 1 : 1 + (int32_t)rg_rng_below(g, 6);
    p.tenant = names[rg_rng_below(g, 3)];
    p.tenant_weight = (float)rg_rng_below(g, 4); /* 0: 1 */
    p.cache_salt = names[rg_rng_below(g, 2)];
    p.priority = (int32_t)rg_rng_below(g, 3) - 1;
    p.background = !rg_rng_below(g, 4);
    if (!rg_rng_below(g, 30))
        p.deadline_s = 1e-9; /* over before it begins, or right after */
    prompt_random(g, prompt, n);
    memcpy(plain, prompt, (size_t)n * sizeof *plain);
    rg_given_rows given[MAX_GIVEN];
    p.given = given;
    p.n_given = rg_rng_below(g, 2) ? give_random(g, prompt, n, given) : 0;
    p.sampling = sampling_random(g);
    p.embed = rg_rng_below(g, 3) ? RG_POOLING_NONE : RG_POOLING_LAST + (rg_pooling)rg_rng_below(g, 3);
    p.prompt_logprobs = !rg_rng_below(g, 3);
    p.n_prompt_tops = (int32_t)rg_rng_below(g, MAX_TOPS + 1);
    p.prompt_logits = p.prompt_logprobs && rg_rng_below(g, 2);
    if (p.prompt_logprobs && !rg_rng_below(g, 3))
        p.max_tokens = 0;
    *l = (live){ 0 };
    l->r = rg_request_new(&p, &(rg_request_model){ .vocab_size = VOCAB, .max_seq_len = MAX_LEN, .dim = DIM, .eos_ids = eos,
                                                  .n_eos = 1, .max_draft = FAKE_DRAFT, .given_dim = DIM }, err);
    assert_ok(l->r, *err);
    l->want = rg_array((size_t)p.n_samples, sizeof *l->want);
    if (p.embed)
        expect_embedding(m, &p, plain, l->embedding);
    else if (p.prompt_logprobs)
        l->scores = expect_scores(m, &p, plain);
    for (int i = 0; i < p.n_samples && !p.embed; i++)
        expect(m, &p, plain, i, l->r->params.max_tokens, &l->want[i]);
    for (int32_t i = 0; i < p.n_given; i++)
        free((void *)(uintptr_t)given[i].rows);
    return rg_loop_submit(loop, l->r, err);
}

/* ---- a drafter that knows the answers, and errs -------------------------------------------------------------------- */

typedef struct oracle {
    rg_drafter d;
    const live *lives;
    rg_rng g;
    uint32_t errs;   /* of 8 ids */
    long n_ended;
} oracle;

/* The id of an answer at a place, or any. */
static int32_t guess(oracle *o, const live *l, int sample, int32_t at)
{
    const expected *e = l && rg_rng_below(&o->g, 8) >= o->errs ? &l->want[sample] : NULL;

    return e && at < e->n ? e->ids[at] : (int32_t)rg_rng_below(&o->g, VOCAB);
}

static bool oracle_propose(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    oracle *o = (oracle *)d;

    for (int32_t k = 0; k < n; k++) {
        const rg_draft_ask *a = &asks[k];
        int32_t at = a->n_ids - a->request->params.n_prompt, path[RG_MAX_DRAFT];
        bool tree = !a->chain && rg_rng_below(&o->g, 2);
        const live *l = o->lives;

        while (l < o->lives + MAX_LIVE && l->r != a->request)
            l++;
        l = l < o->lives + MAX_LIVE ? l : NULL;
        for (int32_t i = (int32_t)rg_rng_below(&o->g, (uint32_t)a->most + 1); i > 0; i--) {
            int32_t parent = a->draft->n - 1;
            if (tree && rg_rng_below(&o->g, 3) == 0)
                parent = (int32_t)rg_rng_below(&o->g, (uint32_t)a->draft->n + 1) - 1;
            rg_draft_add(a->draft, parent, guess(o, l, a->sample, at + rg_draft_path(a->draft, parent, path)));
        }
    }
    return true;
}

static void oracle_end(rg_drafter *d, int32_t lane, const int32_t *ids, int32_t n_ids, uint64_t tenant)
{
    (void)lane, (void)ids, (void)n_ids, (void)tenant;
    ((oracle *)d)->n_ended++;
}

static void oracle_init(oracle *o, const live *lives, uint64_t seed)
{
    *o = (oracle){ .d = { .depth = FAKE_DRAFT, .propose = oracle_propose, .end = oracle_end }, .lives = lives,
                   .g = { .seed = seed }, .errs = (uint32_t)(seed % 5) };
}

/* ---- what varies ------------------------------------------------------------------------------------------------- */

static int32_t budget_random(void *arg)
{
    rg_rng *g = arg;

    return rg_rng_below(g, 3) ? MAX_ROWS : 1 + (int32_t)rg_rng_below(g, MAX_ROWS);
}

/* Steps of any length: what is learnt of them cuts prompts anyhow. */
static uint64_t random_clock(void *arg)
{
    static uint64_t now_ns;

    return now_ns += 1000 + rg_rng_below(arg, 1000000);
}

/* The first positions and a window; chunks, and summaries of them. */
static const rg_patterns sinks = {
    .n_patterns = 1, .patterns = { { 2, { { RG_TERM_FIRST, 70, 1 }, { RG_TERM_WINDOW, 100, 1 } } } },
};
static const rg_patterns summaries = {
    .n_patterns = 1, .patterns = { { 2, { { RG_TERM_CHUNK, 150, 1 }, { RG_TERM_SUMMARY, 300, 20 } } } },
};

static const mix mixes[] = {
    { .name = "global", .global = true, .n_blocks = 14 },
    { .name = "global, roomy", .global = true, .n_blocks = 60 },
    { .name = "window and global", .global = true, .window = 100, .n_blocks = 16, .n_window = 9 },
    { .name = "window alone", .window = 65, .n_window = 6 },
    { .name = "sinks and global", .global = true, .patterns = &sinks, .n_blocks = 16, .n_window = 11 },
    { .name = "summaries alone", .patterns = &summaries, .n_window = 14 },
    { .name = "recurrent and global", .global = true, .recurrent = true, .n_blocks = 16, .n_slots = 7 },
    { .name = "recurrent, one slot", .recurrent = true, .n_slots = 1 },
    { .name = "latent", .latent = true, .n_blocks = 12 },
    { .name = "all, roomy",
      .global = true,
      .window = 100,
      .recurrent = true,
      .latent = true,
      .n_blocks = 40,
      .n_window = 40,
      .n_slots = 30 },
    { .name = "all",
      .global = true,
      .window = 33,
      .recurrent = true,
      .latent = true,
      .n_blocks = 20,
      .n_window = 8,
      .n_slots = 4 },
};

#endif
