/* Tests of the step loop over a fake model (fake.h): any error of paging, sharing, copying or replay changes what it
 * reads back and so its output, which is compared with the same model over plain arrays. */
#include "engine/fake.h"

#include "base/clock.h"

#include <math.h>
#include <stdlib.h>

#include "engine/draft/draft.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/work/embedding.h"
#include "engine/work/prompt_logprobs.h"

enum { MAX_LEN = 448, MAX_LIVE = 24 };

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

static void check_embedding(const live *l, rg_finish finish)
{
    int32_t n;

    if (finish == RG_FINISH_STOP)
        assert_memory_equal(rg_embedding_result(l->r, &n), l->embedding, sizeof l->embedding);
    else
        assert_true((finish == RG_FINISH_CANCELLED && l->cancelled) ||
                    (finish == RG_FINISH_DEADLINE && l->r->who.deadline_ns));
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

        if (l->scores && t.finish != RG_FINISH_CANCELLED && t.finish != RG_FINISH_DEADLINE)
            assert_int_equal(n_scored, l->r->params.n_prompt);
        if (l->scores && !t.sample && t.finish != RG_FINISH_CANCELLED && t.finish != RG_FINISH_DEADLINE)
            assert_true(logits_are_right(l->r, l->scores, l->seen[0] ? n_scored - 1 : 0, n_scored));

        if (l->r->params.embed) {
            check_embedding(l, t.finish);
        } else if (t.id >= 0) {
            assert_true(l->seen[t.sample] < e->n);
            assert_int_equal(t.id, e->ids[l->seen[t.sample]]);
            if (l->r->params.sampling.n_logprobs >= 0)
                assert_memory_equal(&t.logprob, &e->logprobs[l->seen[t.sample]], sizeof(float));
            l->seen[t.sample]++;
        } else if ((t.finish != RG_FINISH_CANCELLED || !l->cancelled) &&
                   !(t.finish == RG_FINISH_DEADLINE && l->r->who.deadline_ns)) {
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

static void live_open(live *l, const mix *m, rg_loop *loop, rg_rng *g)
{
    static const int32_t eos[] = { EOS };
    int32_t prompt[MAX_LEN], plain[MAX_LEN],
        n = rg_rng_below(g, 4) ? 1 + (int32_t)rg_rng_below(g, 250) : 1 + (int32_t)rg_rng_below(g, 3);
    rg_params p = { .prompt = prompt, .n_prompt = n, .max_tokens = 1 + (int32_t)rg_rng_below(g, 90) };
    rg_error err;

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
                                                  .n_eos = 1, .max_draft = FAKE_DRAFT, .given_dim = DIM }, &err);
    assert_ok(l->r, err);
    l->want = rg_array((size_t)p.n_samples, sizeof *l->want);
    if (p.embed)
        expect_embedding(m, &p, plain, l->embedding);
    else if (p.prompt_logprobs)
        l->scores = expect_scores(m, &p, plain);
    for (int i = 0; i < p.n_samples && !p.embed; i++)
        expect(m, &p, plain, i, l->r->params.max_tokens, &l->want[i]);
    for (int32_t i = 0; i < p.n_given; i++)
        free((void *)(uintptr_t)given[i].rows);
    assert_ok(rg_loop_submit(loop, l->r, &err), err);
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

/* ---- many random steps ------------------------------------------------------------------------------------------- */

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

static rg_loop_options options_of(bool use_prefixes, rg_preempt preempt)
{
    return (rg_loop_options){ .max_seqs = 5,
                              .max_rows = MAX_ROWS,
                              .max_seq_len = MAX_LEN,
                              .max_waiting = 100,
                              .use_prefixes = use_prefixes,
                              .preempt = preempt };
}

/* How often those were preempted who are not in the background, and whether any of the background holds state. */
static int n_preempted_in_front(const live *lives, bool *background_holds)
{
    int n = 0;

    *background_holds = false;
    for (int i = 0; i < MAX_LIVE; i++) {
        const rg_request *r = lives[i].r;

        if (r && !r->params.background)
            n += atomic_load(&r->counts.n_preempted);
        for (int k = 0; r && r->params.background && k < r->params.n_samples; k++)
            *background_holds |= r->samples[k].seq && r->samples[k].seq->n_blocks;
    }
    return n;
}

static void run_random(const mix *m, bool use_prefixes, bool drafts, rg_preempt preempt, int n_steps, uint64_t seed)
{
    rg_rng g = { .seed = seed }, budgets = { .seed = seed + 1 }, clock = { .seed = seed + 2 };
    rg_loop_options options = options_of(use_prefixes, preempt);
    size_t n_before = rg_mem_count().n_live;
    live lives[MAX_LIVE] = { { 0 } };
    int n_done = 0;
    rg_error err;
    fake *f = fake_new(m, &err);
    rg_loop *loop;
    oracle o;

    assert_ok(f, err);
    oracle_init(&o, lives, seed);
    if (drafts) {
        options.drafter = &o.d;
        options.max_draft = FAKE_DRAFT;
    }
    options.share_prefixes = seed % 2;
    options.static_batching = seed % 5 == 4;
    if (seed % 3 == 2) {
        options.step_s = 4e-4;
        options.pace = 1.5;
        options.roofs = (rg_step_roofs){ 1e9, 1e9, 1e9 };
        f->runner.facts = (rg_step_facts){ .weight_bytes = 1e5, .row_bytes = 1e3, .row_ops = 1e4 };
        rg_clock_set(random_clock, &clock);
    }
    loop = rg_loop_new(&f->runner, &options, &err);
    assert_ok(loop, err);
    rg_loop_set_budget(loop, budget_random, &budgets);
    for (int step = 0;; step++) { /* until the last of them has ended */
        bool more = step < n_steps, any = false, holds;

        for (int i = 0; i < MAX_LIVE; i++) {
            if (!lives[i].r && more && !rg_rng_below(&g, 60))
                live_open(&lives[i], m, loop, &g);
            if (lives[i].r && !rg_rng_below(&g, 900)) {
                lives[i].cancelled = true;
                atomic_store(&lives[i].r->cancelled, true);
            }
        }
        if (!rg_rng_below(&g, 25))
            rg_loop_preempt(loop, (int)rg_rng_below(&g, 4), rg_rng_below(&g, 2) ? RG_PREEMPT_SWAP : RG_PREEMPT_RECOMPUTE);
        int n_before_step = n_preempted_in_front(lives, &holds);
        rg_loop_step(loop);
        rg_loop_check(loop);
        assert_true(n_preempted_in_front(lives, &holds) == n_before_step || !holds);
        for (int i = 0; i < MAX_LIVE; i++) {
            if (lives[i].r && live_read(&lives[i])) {
                live_close(&lives[i]);
                n_done++;
            }
            any |= lives[i].r != NULL;
        }
        if (!more && !any)
            break;
        assert_true(step < 20 * n_steps);
    }
    rg_stats s = rg_loop_stats(loop);
    print_message("%s%s%s: %d requests, %d preempted, %d rows, %d from the cache, %d drafted, %d accepted\n", m->name,
                  use_prefixes ? ", prefixes" : "", drafts ? ", drafts" : "", n_done, (int)s.n_preempted, (int)s.n_rows,
                  (int)s.n_cached_rows, (int)s.n_draft_rows, (int)s.n_draft_accepted);
    assert_true(!drafts || (s.n_draft_accepted > 0 && s.n_draft_accepted <= s.n_draft_rows && o.n_ended > 0));
    assert_true(n_done > n_steps / 100);
    rg_clock_set(NULL, NULL);
    rg_loop_free(loop);
    fake_free(f);
    assert_int_equal(rg_mem_count().n_live, n_before);
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

static void output_is_that_of_the_request_alone(void **state)
{
    int n_steps = 1200;

    (void)state;
    for (size_t i = 0; i < RG_LEN(mixes); i++) {
        run_random(&mixes[i], true, false, RG_PREEMPT_RECOMPUTE, n_steps, test_seed + 100 * i);
        run_random(&mixes[i], true, false, RG_PREEMPT_SWAP, n_steps, test_seed + 100 * i + 1);
        run_random(&mixes[i], false, false, RG_PREEMPT_AUTO, n_steps, test_seed + 100 * i + 2);
        run_random(&mixes[i], true, true, RG_PREEMPT_AUTO, n_steps, test_seed + 100 * i + 3);
        run_random(&mixes[i], false, true, RG_PREEMPT_SWAP, n_steps, test_seed + 100 * i + 4);
    }
}

/* ---- refusals, failures, ends ------------------------------------------------------------------------------------ */

static rg_request *request_simple(int32_t n_prompt, int32_t max_tokens, rg_error *err)
{
    int32_t prompt[MAX_LEN];
    rg_params p = { .prompt = prompt, .n_prompt = n_prompt, .max_tokens = max_tokens, .n_samples = 2,
                    .prompt_logprobs = true, .n_prompt_tops = 2 };

    for (int32_t i = 0; i < n_prompt; i++)
        prompt[i] = i % VOCAB;
    p.sampling =
        (rg_sampling){ .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = 2, .ignore_eos = true };
    return rg_request_new(&p, &(rg_request_model){ VOCAB, MAX_LEN, DIM, NULL, NULL, 0 }, err);
}

static void what_can_never_fit_is_refused(void **state)
{
    mix small = { .name = "small", .global = true, .n_blocks = 2 };
    rg_loop_options options = options_of(true, RG_PREEMPT_AUTO);
    rg_error err;
    fake *f = fake_new(&small, &err);
    rg_loop *loop = rg_loop_new(&f->runner, &options, &err);
    rg_request *r = request_simple(100, 30, &err), *fits = request_simple(100, 29, &err);
    rg_token t;

    (void)state;
    assert_false(rg_loop_submit(loop, r, &err));
    assert_int_equal(err.code, RG_E_LIMIT);
    assert_ok(rg_loop_submit(loop, fits, &err), err);
    while (rg_loop_step(loop))
        rg_loop_check(loop);
    for (int i = 0; i < 60; i++)
        assert_int_equal(rg_request_poll(fits, &t), 1);
    assert_int_equal(rg_request_poll(fits, &t), -1);
    rg_request_unref(r);
    rg_request_unref(fits);
    rg_loop_free(loop);
    fake_free(f);
}

/* n requests of one mix, run to their end. */
static rg_stats run_to_end(const mix *m, rg_request **r, int n)
{
    rg_loop_options options = options_of(false, RG_PREEMPT_AUTO);
    rg_error err;
    fake *f = fake_new(m, &err);
    rg_loop *loop = rg_loop_new(&f->runner, &options, &err);
    rg_stats stats;

    assert_ok(loop, err);
    for (int i = 0; i < n; i++)
        assert_ok(rg_loop_submit(loop, r[i], &err), err);
    while (rg_loop_step(loop))
        rg_loop_check(loop);
    stats = rg_loop_stats(loop);
    rg_loop_free(loop);
    fake_free(f);
    return stats;
}

static void samples_share_their_prompt(void **state)
{
    rg_error err;
    rg_request *r = request_simple(200, 30, &err);

    (void)state;
    assert_ok(r, err);
    /* 199 positions once, the last one and 29 more for each of the two. */
    assert_int_equal(run_to_end(&mixes[1], &r, 1).n_rows, 199 + 2 * 30);
    rg_request_unref(r);
}

static void who_comes_first_is_served_first(void **state)
{
    rg_error err;
    rg_request *r[5];

    (void)state;
    for (int i = 0; i < 5; i++) {
        r[i] = request_simple(60, 200, &err);
        assert_ok(r[i], err);
    }
    assert_true(run_to_end(&mixes[0], r, 5).n_preempted > 0); /* each needs 10 blocks of 14 in the end */
    assert_int_equal(r[0]->counts.n_preempted, 0);
    for (int i = 1; i < 5; i++)
        assert_true(r[0]->counts.finished_ns <= r[i]->counts.finished_ns);
    for (int i = 0; i < 5; i++)
        rg_request_unref(r[i]);
}

static void a_full_queue_refuses(void **state)
{
    rg_loop_options options = options_of(true, RG_PREEMPT_AUTO);
    rg_error err;
    fake *f = fake_new(&mixes[0], &err);
    rg_loop *loop;
    rg_request *r[4];

    (void)state;
    options.max_waiting = 3;
    loop = rg_loop_new(&f->runner, &options, &err);
    for (int i = 0; i < 4; i++) {
        r[i] = request_simple(10, 10, &err);
        assert_int_equal(rg_loop_submit(loop, r[i], &err), i < 3);
    }
    assert_int_equal(err.code, RG_E_BUSY);
    rg_loop_free(loop); /* closing ends the three as cancelled */
    for (int i = 0; i < 4; i++) {
        rg_token t;

        for (int k = 0; k < 2 && i < 3; k++) {
            assert_int_equal(rg_request_poll(r[i], &t), 1);
            assert_int_equal(t.finish, RG_FINISH_CANCELLED);
        }
        assert_int_equal(rg_request_poll(r[i], &t), i < 3 ? -1 : 0);
        rg_request_unref(r[i]);
    }
    fake_free(f);
}

static bool fail_at(void *arg, size_t bytes)
{
    int *n = arg;

    (void)bytes;
    return (*n)-- != 0;
}

/* The N-th allocation fails, N = 0, 1, 2, ... until all goes well. */
static void every_allocation_may_fail(void **state)
{
    rg_loop_options options = options_of(true, RG_PREEMPT_SWAP);
    size_t n_before = rg_mem_count().n_live;
    bool done = false;

    (void)state;
    for (int n = 0; !done && n < 500; n++) {
        int left = n;
        rg_error err = { 0 };
        fake *f;
        rg_loop *loop = NULL;
        rg_request *r = NULL;

        rg_mem_set_gate(fail_at, &left);
        f = fake_new(&mixes[RG_LEN(mixes) - 1], &err);
        if (f)
            loop = rg_loop_new(&f->runner, &options, &err);
        if (loop)
            r = request_simple(70, 20, &err);
        if (r) {
            done = rg_loop_submit(loop, r, &err);
            for (int i = 0; rg_loop_step(loop); i++) {
                rg_loop_preempt(loop, 0, RG_PREEMPT_SWAP);
                assert_true(i < 1000);
            }
            done = done && left >= 0;
        } else {
            assert_int_equal(err.code, RG_E_MEMORY);
        }
        rg_mem_set_gate(NULL, NULL);
        rg_request_unref(r);
        rg_loop_free(loop);
        if (f)
            fake_free(f);
        assert_int_equal(rg_mem_count().n_live, n_before);
    }
    assert_true(done);
}

/* In debug builds an allocation between forbid and permit asserts. */
static void a_step_allocates_nothing(void **state)
{
    rg_loop_options options = options_of(true, RG_PREEMPT_RECOMPUTE);
    rg_error err;
    fake *f = fake_new(&mixes[RG_LEN(mixes) - 1], &err);
    rg_loop *loop = rg_loop_new(&f->runner, &options, &err);
    uint64_t n_allocs;
    rg_request *r[6];

    (void)state;
    for (int i = 0; i < 6; i++) {
        r[i] = request_simple(60 + 31 * i, 100, &err);
        assert_ok(rg_loop_submit(loop, r[i], &err), err);
    }
    n_allocs = rg_mem_count().n_allocs;
    rg_mem_forbid();
    for (int i = 0; rg_loop_step(loop); i++)
        if (i % 20 == 19)
            rg_loop_preempt(loop, 1, RG_PREEMPT_RECOMPUTE);
    rg_mem_permit();
    assert_int_equal(rg_mem_count().n_allocs, n_allocs);
    assert_true(rg_loop_stats(loop).n_preempted > 0);
    for (int i = 0; i < 6; i++)
        rg_request_unref(r[i]);
    rg_loop_free(loop);
    fake_free(f);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

typedef struct client {
    rg_loop *loop;
    const mix *mix;
    uint64_t seed;
} client;

static void *client_main(void *arg)
{
    client *cl = arg;
    rg_rng g = { .seed = cl->seed };

    for (int k = 0; k < 12; k++) {
        int32_t prompt[300], dim, n = 1 + (int32_t)rg_rng_below(&g, 150);
        rg_params p = {
            .prompt = prompt, .n_prompt = n, .max_tokens = 1 + (int32_t)rg_rng_below(&g, 40), .n_samples = 1
        };
        expected *want = rg_alloc(sizeof *want);
        bool cancels = !rg_rng_below(&g, 4);
        float embedding[DIM];
        int32_t seen = 0;
        scored *scores = NULL;
        rg_request *r;
        rg_token t;

        prompt_random(&g, prompt, n);
        p.prompt_logprobs = k % 2;
        p.n_prompt_tops = k % MAX_TOPS;
        p.prompt_logits = k % 4 == 1;
        p.sampling = sampling_random(&g);
        p.sampling.ignore_eos = true;
        if (k % 3 == 2) {
            p.embed = RG_POOLING_LAST + (rg_pooling)(k % 2);
            want->n = 0;
            expect_embedding(cl->mix, &p, p.prompt, embedding);
        } else {
            expect(cl->mix, &p, p.prompt, 0, p.max_tokens, want);
            scores = p.prompt_logprobs ? expect_scores(cl->mix, &p, p.prompt) : NULL;
        }
        r = rg_request_new(&p, &(rg_request_model){ VOCAB, MAX_LEN, DIM, NULL, NULL, 0 }, NULL);
        if (!r || !rg_loop_submit(cl->loop, r, NULL))
            return arg;
        for (int i = 0; scores && i < 20; i++) /* while they come */
            if (count_scores(r, scores) < 0)
                return arg;
        while (rg_request_wait(r, &t)) {
            if (scores && count_scores(r, scores) != n)
                return arg;
            if (t.id >= 0 && (seen >= want->n || t.id != want->ids[seen++]))
                return arg;
            if (t.id < 0 && t.finish != RG_FINISH_CANCELLED && seen != want->n)
                return arg;
            if (p.embed && t.finish == RG_FINISH_STOP && memcmp(rg_embedding_result(r, &dim), embedding, sizeof embedding))
                return arg;
            if (cancels && seen == 3)
                atomic_store(&r->cancelled, true);
        }
        rg_request_unref(r);
        rg_free(want);
        rg_free(scores);
    }
    return NULL;
}

/* Clients of two models on one host, of which the first goes while the second has much to do. */
static void readers_on_other_threads(void **state)
{
    rg_loop_options options = options_of(true, RG_PREEMPT_AUTO);
    const mix *m[2] = { &mixes[RG_LEN(mixes) - 1], &mixes[1] };
    client clients[2][3];
    pthread_t ids[2][3];
    fake *f[2];
    rg_loop *loops[2];
    rg_request *long_one;
    rg_error err;
    rg_host *host = rg_host_new(1, 0, &err);

    (void)state;
    assert_ok(host, err);
    for (int k = 0; k < 2; k++) {
        f[k] = fake_new(m[k], &err);
        loops[k] = rg_loop_new(&f[k]->runner, &options, &err);
        f[k]->pool = rg_pool_new(FAKE_THREADS, &err);
        assert_ok(f[k]->pool && rg_host_add(host, loops[k], &err), err);
        for (int i = 0; i < 3; i++) {
            clients[k][i] = (client){ .loop = loops[k], .mix = m[k], .seed = test_seed + (uint64_t)(3 * k + i) };
            assert_int_equal(pthread_create(&ids[k][i], NULL, client_main, &clients[k][i]), 0);
        }
    }
    long_one = request_simple(100, 200, &err);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 3; i++) {
            void *failed;

            pthread_join(ids[k][i], &failed);
            assert_null(failed);
        }
        assert_true(rg_loop_stats(loops[k]).n_steps > 0);
        if (!k)
            assert_ok(rg_loop_submit(loops[1], long_one, &err), err);
        rg_loop_free(loops[k]);
        fake_free(f[k]);
    }
    rg_request_unref(long_one);
    rg_host_free(host);
}

/* A reader asleep wakes when the engine closes. */
static void *wait_for_end(void *arg)
{
    rg_token t;

    while (rg_request_wait(arg, &t))
        ;
    return NULL;
}

static void closing_ends_what_runs(void **state)
{
    rg_loop_options options = options_of(true, RG_PREEMPT_AUTO);
    rg_error err;
    fake *f = fake_new(&mixes[1], &err);
    rg_loop *loop = rg_loop_new(&f->runner, &options, &err);
    rg_request *r[8];
    pthread_t ids[8];

    (void)state;
    rg_host *host = rg_host_new(1, 0, &err);
    assert_ok(host && rg_host_add(host, loop, &err), err);
    for (int i = 0; i < 8; i++) {
        r[i] = request_simple(200, 200, &err);
        assert_ok(rg_loop_submit(loop, r[i], &err), err);
        assert_int_equal(pthread_create(&ids[i], NULL, wait_for_end, r[i]), 0);
    }
    rg_loop_free(loop);
    for (int i = 0; i < 8; i++) {
        pthread_join(ids[i], NULL);
        rg_request_unref(r[i]);
    }
    rg_host_free(host);
    fake_free(f);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_is_that_of_the_request_alone),
        cmocka_unit_test(what_can_never_fit_is_refused),
        cmocka_unit_test(samples_share_their_prompt),
        cmocka_unit_test(who_comes_first_is_served_first),
        cmocka_unit_test(a_full_queue_refuses),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(readers_on_other_threads),
        cmocka_unit_test(closing_ends_what_runs),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
