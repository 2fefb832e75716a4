/* draw.c -- see draw.h. */
#include "engine/draw.h"

#include <math.h> /* NAN, INFINITY */
#include <string.h>

#include "base/mem.h"
#include "engine/numeric.h"
#include "engine/sampler.h"

typedef struct thread_scratch {
    rg_sampler *sampler;
    float *raw;    /* [vocab_size] logits as they came, for log-probabilities */
    double *t, *d; /* [vocab_size] distributions of the model and of a drafter; NULL until rg_sample_scratch_judge, */
    float *rest;   /*   as is this [vocab_size]: logits of what is left once guesses are rejected */
    rg_grammar_state *grammar; /* of the answer with its draft; NULL until rg_draw_prepare */
} thread_scratch;

struct rg_sample_scratch {
    int32_t n, vocab_size;
    thread_scratch *of; /* [n] */
};

rg_sample_scratch *rg_sample_scratch_new(int32_t n_threads, int32_t vocab_size, int32_t max_seq_len, rg_error *err)
{
    rg_sample_scratch *s = rg_zalloc(sizeof *s);
    size_t n = (size_t)n_threads, raw_bytes = (size_t)vocab_size * sizeof(float);

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->vocab_size = vocab_size;
    s->of = rg_array(n, sizeof *s->of);
    if (!s->of) {
        rg_fail_memory(err, n * sizeof *s->of);
        goto fail;
    }
    for (; s->n < n_threads; s->n++) {
        thread_scratch *t = &s->of[s->n];

        t->t = t->d = NULL;
        t->rest = NULL;
        t->grammar = NULL;
        t->sampler = rg_sampler_new(vocab_size, max_seq_len + RG_MAX_DRAFT, err);
        if (!t->sampler)
            goto fail;
        t->raw = rg_array((size_t)vocab_size, sizeof(float));
        if (!t->raw) {
            rg_sampler_free(t->sampler);
            rg_fail_memory(err, raw_bytes);
            goto fail;
        }
    }
    return s;

fail:
    rg_sample_scratch_free(s);
    return NULL;
}

bool rg_sample_scratch_judge(rg_sample_scratch *s, rg_error *err)
{
    for (int32_t i = 0; i < s->n; i++) {
        thread_scratch *t = &s->of[i];

        t->t = t->t ? t->t : rg_array((size_t)s->vocab_size, sizeof *t->t);
        t->d = t->d ? t->d : rg_array((size_t)s->vocab_size, sizeof *t->d);
        t->rest = t->rest ? t->rest : rg_array((size_t)s->vocab_size, sizeof *t->rest);
        if (!t->t || !t->d || !t->rest)
            return rg_fail_memory(err, (size_t)s->vocab_size * sizeof *t->t);
    }
    return true;
}

void rg_sample_scratch_free(rg_sample_scratch *s)
{
    if (!s)
        return;
    for (int32_t i = 0; i < s->n; i++) {
        rg_sampler_free(s->of[i].sampler);
        rg_free(s->of[i].raw);
        rg_free(s->of[i].t);
        rg_free(s->of[i].d);
        rg_free(s->of[i].rest);
        rg_grammar_stop(s->of[i].grammar);
    }
    rg_free(s->of);
    rg_free(s);
}

bool rg_draw_prepare(rg_sample_scratch *s, const rg_sample *a)
{
    for (int32_t i = 0; a->grammar && i < s->n; i++) {
        thread_scratch *t = &s->of[i];

        t->grammar = t->grammar ? t->grammar : rg_grammar_scratch(a->grammar, NULL);
        if (!t->grammar)
            return false;
    }
    return true;
}

/* The state of the answer's grammar after the draft, in scratch; *n_allowed: how many of its ids the grammar allows. */
static rg_grammar_state *follow(thread_scratch *own, const rg_sample *a, const int32_t *draft, int32_t n_draft,
                                int32_t *n_allowed)
{
    int32_t n = 0;

    rg_grammar_copy(own->grammar, a->grammar);
    while (n < n_draft && rg_grammar_advance(own->grammar, draft[n]))
        n++;
    *n_allowed = n;
    return own->grammar;
}

int32_t rg_draw_allowed(rg_sample_scratch *s, const rg_sample *a, const int32_t *draft, int32_t n_draft)
{
    int32_t n = n_draft;

    if (a->grammar)
        follow(&s->of[0], a, draft, n_draft, &n);
    return n;
}

/* Rule out what the grammar does not allow.  True: the grammar has lost its way. */
static bool mask(thread_scratch *own, const rg_draw_place *at, float *logits, int32_t n, int32_t n_eos, bool may_end)
{
    const rg_request *r = at->request;
    const rg_sample *a = &r->samples[at->sample];
    rg_grammar_state *g = a->grammar;
    int32_t n_allowed;

    if (!g)
        return false;
    if (at->draft)
        g = follow(own, a, at->draft, at->n_draft, &n_allowed);
    rg_grammar_mask(g, logits, n, r->texts.eos_ids, n_eos, may_end);
    return rg_grammar_lost(g);
}

/* ---- guesses judged by chance ------------------------------------------------------------------------------------ */

/* Whoever draws for an answer.  Where a guess may have been made from what was drawn before, noise is used in one step
 * alone: an id would else depend on a guess of it.  An answer has more ids in each step. */
enum { DRAW_ANSWER, DRAW_DRAFT, DRAW_TRY, N_DRAWS = DRAW_TRY + RG_MAX_DRAFT };

static int32_t draw_of_step(const rg_sample *a, int32_t kind)
{
    return (1 + a->n_output) * N_DRAWS + kind;
}

static const double *widen(thread_scratch *own, const float *from, int32_t n)
{
    for (int32_t i = 0; from && i < n; i++)
        own->d[i] = (double)from[i];
    return from ? own->d : NULL;
}

/* The id that is written: a guess that was accepted, or one drawn from what is left. */
static int32_t draw_by_rejection(thread_scratch *own, const rg_draw_place *at, const float *logits, int32_t n,
                                 rg_sample_key *key)
{
    const rg_sample *a = &at->request->samples[at->sample];
    const rg_sampling *sampling = &at->request->params.sampling;

    rg_sample_distribution(own->sampler, logits, sampling, own->t);
    for (int32_t k = 0; k < at->n_guesses; k++) {
        const rg_draw_guess *g = &at->guesses[k];
        const double *d = widen(own, g->from, n);

        key->draw = draw_of_step(a, DRAW_TRY + k);
        if (rg_sample_uniform(key) < rg_verify_chance(own->t, g->id, d) || !rg_verify_reject(own->t, n, g->id, d))
            return g->id;
    }
    for (int32_t i = 0; i < n && at->n_guesses; i++)
        own->rest[i] = own->t[i] > 1e-300 ? (float)rg_ln(own->t[i]) : -INFINITY;
    key->draw = draw_of_step(a, DRAW_ANSWER);
    return rg_sample_draw(own->sampler, at->n_guesses ? own->rest : logits, sampling, key);
}

static void judge_typical(thread_scratch *own, const rg_draw_place *at, const float *logits, int32_t n, bool logprobs)
{
    const rg_typical typical = rg_typical_default();
    double least;

    rg_sample_distribution(own->sampler, logits, &at->request->params.sampling, own->t);
    least = rg_typical_threshold(&typical, rg_typical_entropy(own->t, n));
    for (int32_t k = 0; k < at->n_guesses; k++) {
        rg_draw_guess *g = &at->guesses[k];

        g->stands = own->t[g->id] > least;
        g->log_p = g->stands ? rg_ln(own->t[g->id]) : -INFINITY;
        g->logprob = logprobs ? rg_logprobs(own->sampler, own->raw, g->id, 0, NULL) : NAN;
    }
}

/* Draw by ruled logits, and judge the guesses. */
static int32_t draw_id(thread_scratch *own, const rg_draw_place *at, const float *logits, int32_t n, rg_sample_key *key,
                       bool logprobs)
{
    const rg_sampling *sampling = &at->request->params.sampling;

    if (at->distribution) {
        rg_sample_distribution(own->sampler, logits, sampling, own->t);
        for (int32_t i = 0; i < n; i++)
            at->distribution[i] = (float)own->t[i];
        key->draw = draw_of_step(&at->request->samples[at->sample], DRAW_DRAFT);
    }
    if (at->verify == RG_VERIFY_REJECTION)
        return draw_by_rejection(own, at, logits, n, key);
    if (at->verify == RG_VERIFY_TYPICAL && at->n_guesses)
        judge_typical(own, at, logits, n, logprobs);
    return rg_sample_draw(own->sampler, logits, sampling, key);
}

/* Where the id after an answer and a draft is chosen.  *may_end: it may be one that ends the answer. */
static rg_sample_place place_of(const rg_request *r, int sample, const int32_t *draft, int32_t n_draft, bool *may_end)
{
    const rg_sampling *sampling = &r->params.sampling;
    const rg_sample *a = &r->samples[sample];
    int32_t n_before = a->n_output + n_draft;

    *may_end = n_before >= sampling->min_tokens;
    return (rg_sample_place){
        .history = { .prompt = r->params.prompt,
                     .n_prompt = r->params.n_prompt,
                     .output = a->ids,
                     .n_output = a->n_output,
                     .draft = draft,
                     .n_draft = n_draft },
        .banned = r->texts.eos_ids,
        .n_banned = *may_end || sampling->ignore_eos ? 0 : r->texts.n_eos,
        .breakers = r->texts.breakers,
        .key = { .seed = sampling->seed, .sample = sample, .position = r->params.n_prompt + n_before }
    };
}

rg_pick rg_draw_pick(const rg_draw_place *at)
{
    const rg_request *r = at->request;
    bool may_end;
    const rg_sample_place place = place_of(r, at->sample, at->draft, at->n_draft, &may_end);

    if (at->verify != RG_VERIFY_COUPLED || r->samples[at->sample].grammar || place.n_banned ||
        (r->params.n_stop_ids && !may_end) ||
        (r->params.prompt_logits && place.key.position == r->params.n_prompt)) /* the prompt's, too, and kept */
        return (rg_pick){ 0 };
    return rg_sample_pick(&r->params.sampling, &place.key);
}

/* The id that ends the reasoning where its budget is used up; -1: the next id may be any. */
static int32_t forced_id(const rg_draw_place *at)
{
    const rg_thinking *t = &at->request->params.thinking;
    const rg_sample *a = &at->request->samples[at->sample];
    int32_t ids[RG_THOUGHT_MARK + RG_MAX_DRAFT];
    rg_thought thought = a->thought;
    rg_thought_text text = { a->ids, a->n_output, a->n_output };

    if (thought.is_over)
        return -1;
    if (at->n_draft) { /* it goes on with the draft */
        text.n_tail = a->n_output < RG_THOUGHT_MARK ? a->n_output : RG_THOUGHT_MARK;
        memcpy(ids, a->ids + a->n_output - text.n_tail, (size_t)text.n_tail * sizeof *ids);
        text.tail = ids;
    }
    for (int32_t k = 0; k < at->n_draft; k++) {
        ids[text.n_tail++] = at->draft[k];
        text.n++;
        rg_thought_note(&thought, t, &text);
    }
    return rg_thought_forced(&thought, t, &text);
}

/* Rule out all ids but that one, unless it is ruled out already. */
static void force(int32_t id, float *logits, int32_t n)
{
    if (id < 0 || logits[id] == -INFINITY)
        return;
    for (int32_t i = 0; i < n; i++)
        logits[i] = i == id ? logits[i] : -INFINITY;
}

/* Rule out what the next id cannot be, by everything that the request says.  True: the grammar has lost its way. */
static bool rule(thread_scratch *own, const rg_draw_place *at, float *logits, int32_t n, rg_sample_key *key)
{
    const rg_request *r = at->request;
    const rg_sampling *sampling = &r->params.sampling;
    bool may_end, lost;
    rg_sample_place place = place_of(r, at->sample, at->draft, at->n_draft, &may_end);

    place.mu = at->mu ? *at->mu : r->samples[at->sample].mu;
    lost = mask(own, at, logits, n, sampling->ignore_eos ? 0 : r->texts.n_eos, may_end);
    for (int32_t k = 0; k < r->params.n_stop_ids && !may_end; k++)
        logits[r->params.stop_ids[k]] = -INFINITY;
    force(forced_id(at), logits, n);
    rg_sample_rules(own->sampler, logits, sampling, &place);
    *key = place.key;
    return lost;
}

float rg_draw_next_mu(const rg_sample_scratch *s, const rg_request *r, float mu, const float *logits, int32_t id)
{
    const rg_sampling *p = &r->params.sampling;

    return p->mirostat ? rg_mirostat_next(s->of[0].sampler, logits, p, mu, id) : mu;
}

/* The distribution that is drawn from, as logits, for log-probabilities: greedy, all of it is on the best id. */
static void keep_ruled(thread_scratch *own, const float *logits, int32_t n, const rg_sampling *p,
                       const rg_sample_key *key)
{
    memcpy(own->raw, logits, (size_t)n * sizeof *logits);
    if (!rg_sampling_is_greedy(p))
        return;
    int32_t best = rg_sample_draw(own->sampler, logits, p, key);
    for (int32_t i = 0; i < n; i++)
        own->raw[i] = i == best ? 0 : -INFINITY;
}

rg_drawn rg_draw(rg_sample_scratch *s, int thread, const rg_draw_place *at, float *logits)
{
    const rg_sampling *sampling = &at->request->params.sampling;
    bool logprobs = sampling->n_logprobs >= 0 && !at->guess;
    float mu = at->mu ? *at->mu : at->request->samples[at->sample].mu;
    rg_drawn drawn = { .id = -1, .logprob = NAN, .mu = mu };
    thread_scratch *own = &s->of[thread];
    rg_sample_key key;

    if (!rg_all_finite(logits, s->vocab_size))
        return drawn;
    if (logprobs)
        memcpy(own->raw, logits, (size_t)s->vocab_size * sizeof *logits);
    drawn.lost = rule(own, at, logits, s->vocab_size, &key);
    if (logprobs && sampling->logprobs_drawn)
        keep_ruled(own, logits, s->vocab_size, sampling, &key);
    drawn.id = draw_id(own, at, logits, s->vocab_size, &key, logprobs);
    drawn.mu = rg_draw_next_mu(s, at->request, mu, logits, drawn.id);
    if (logprobs)
        drawn.logprob = rg_logprobs(own->sampler, own->raw, drawn.id, sampling->n_logprobs, at->top);
    return drawn;
}

int32_t rg_draw_list(rg_sample_scratch *s, int thread, rg_request *r, int i, const rg_draw_listing *l, float *logits)
{
    const rg_sampling *sampling = &r->params.sampling;
    bool may_end;
    rg_sample_place place = place_of(r, i, NULL, 0, &may_end);
    int32_t n_eos = sampling->ignore_eos ? 0 : r->texts.n_eos, n = 0;
    thread_scratch *own = &s->of[thread];

    if (!rg_all_finite(logits, s->vocab_size)) {
        atomic_store(&r->not_finite, true);
        return 0;
    }
    if (l->n_tops)
        (void)rg_logprobs(own->sampler, logits, 0, l->n_tops, l->tops);
    rg_log_softmax(own->sampler, logits);
    if (l->raw)
        memcpy(own->raw, logits, (size_t)s->vocab_size * sizeof *logits);
    if (mask(own, &(rg_draw_place){ .request = r, .sample = i }, logits, s->vocab_size, n_eos, may_end))
        return 0; /* the grammar has lost its way: nothing can follow */
    for (int32_t k = 0; k < r->params.n_stop_ids && !may_end; k++)
        logits[r->params.stop_ids[k]] = -INFINITY;
    if (rg_sample_penalize(own->sampler, logits, sampling, &place))
        n = rg_best_logprobs(own->sampler, logits, l->room < s->vocab_size ? l->room : s->vocab_size, l->listed);
    for (int32_t k = 0; l->raw && k < n; k++)
        l->raw[k] = own->raw[l->listed[k].id];
    return n;
}

int32_t rg_draw_best(rg_sample_scratch *s, int thread, const rg_draw_place *at, bool own_noise, float *logits,
                     int32_t k, rg_guess *best)
{
    rg_sample_key key;

    for (int32_t i = 0; i < s->vocab_size; i++)
        if (!(logits[i] < INFINITY)) /* or NaN */
            return 0;
    rule(&s->of[thread], at, logits, s->vocab_size, &key);
    return rg_sample_best(logits, s->vocab_size, &at->request->params.sampling, own_noise ? NULL : &key, k, best);
}

/* ---- answers that are filled in ---------------------------------------------------------------------------------- */

static bool ends_answer(const rg_request *r, int32_t id)
{
    return (!r->params.sampling.ignore_eos && rg_ids_have(r->texts.eos_ids, r->texts.n_eos, id)) ||
           rg_ids_have(r->params.stop_ids, r->params.n_stop_ids, id);
}

/* Rule out the ids that would end an answer before it has min_tokens. */
static void forbid_early_end(const rg_request *r, int32_t n_before, float *logits)
{
    if (n_before >= r->params.sampling.min_tokens)
        return;
    for (int32_t k = 0; k < r->texts.n_eos && !r->params.sampling.ignore_eos; k++)
        logits[r->texts.eos_ids[k]] = -INFINITY;
    for (int32_t k = 0; k < r->params.n_stop_ids; k++)
        logits[r->params.stop_ids[k]] = -INFINITY;
}

static int32_t likeliest(const float *logits, int32_t n)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* Divide logits by the temperature of a canvas.  Returns less the entropy of their softmax. */
static float soften(float *logits, int32_t n, float temperature)
{
    for (int32_t i = 0; i < n; i++)
        logits[i] /= temperature;
    return -rg_entropy(logits, n);
}

/* The candidate at a position.  With a grammar, which stands before it, the confidence is that among the ids that it
 * allows. */
static void draw_at(rg_sample_scratch *s, thread_scratch *own, const rg_draw_mask *m, int32_t position,
                    rg_grammar_state *g, float *logits)
{
    rg_fill *f = m->fill;
    const rg_request *r = m->request;
    const rg_sampling *sampling = &r->params.sampling;
    const int32_t n = s->vocab_size, n_before = position - r->params.n_prompt, k = sampling->n_logprobs;
    const int32_t n_eos = sampling->ignore_eos ? 0 : r->texts.n_eos;
    const bool may_end = n_before >= sampling->min_tokens;
    rg_top *tops = f->tops ? f->tops + (size_t)position * (size_t)k : NULL;
    rg_sample_place place = {
        .history = { .prompt = r->params.prompt, .n_prompt = r->params.n_prompt },
        .banned = &f->d.model.mask_id,
        .n_banned = f->d.model.mask_id >= 0,
        .key = { .seed = sampling->seed, .sample = m->sample, .draw = f->d.n_evaluations, .position = position },
    };
    rg_candidate c = { .logprob = NAN, .before = f->d.candidates[position].before };
    int32_t kept; /* the id that the answer has if this evaluation is the last */

    memcpy(own->raw, logits, (size_t)n * sizeof *logits);
    if (f->d.model.canvas.length)
        c.confidence = soften(logits, n, rg_denoise_temperature(&f->d));
    forbid_early_end(r, n_before, logits);
    if (g)
        rg_grammar_mask(g, logits, n, r->texts.eos_ids, n_eos, may_end);
    rg_sample_rules(own->sampler, logits, sampling, &place);
    c.id = rg_sample_draw(own->sampler, logits, sampling, &place.key);
    kept = f->d.model.canvas.length ? c.best = likeliest(logits, n) : c.id;
    if (k >= 0 && !sampling->logprobs_drawn)
        c.logprob = rg_logprobs(own->sampler, own->raw, kept, k, tops);
    if (g)
        rg_grammar_mask(g, own->raw, n, r->texts.eos_ids, n_eos, may_end);
    if (!f->d.model.canvas.length)
        c.confidence = rg_confidence(own->raw, n, c.id, f->d.p.remasking);
    if (k >= 0 && sampling->logprobs_drawn) {
        keep_ruled(own, logits, n, sampling, &place.key);
        c.logprob = rg_logprobs(own->sampler, own->raw, kept, k, tops);
    }
    f->d.candidates[position] = c;
}

/* Behind the end of an answer there is nothing: its masks are filled in with the id that ended it. */
static void draw_behind_end(rg_fill *f, int32_t from, int32_t id)
{
    for (int32_t i = from; i < f->e.upto; i++)
        f->d.candidates[i] = (rg_candidate){ .id = id, .confidence = 1, .logprob = NAN };
}

/* The candidates of a step whose logits have all come, from the left: each is one that leaves the grammar satisfiable
 * behind those before it.  Ends with the last that can be committed. */
static void draw_in_order(rg_sample_scratch *s, thread_scratch *own, const rg_draw_mask *m)
{
    rg_fill *f = m->fill;
    rg_sample *a = &m->request->samples[m->sample];
    const int32_t first = rg_denoise_first_mask(&f->d, &f->e), n_prompt = f->d.n_prompt;
    int32_t n_ahead = first - n_prompt - a->n_output, n_allowed;
    rg_grammar_state *g;

    if (first == f->e.upto || rg_grammar_lost(a->grammar) || !own->grammar)
        return;
    g = follow(own, a, a->ids + a->n_output, n_ahead, &n_allowed);
    if (n_allowed < n_ahead || (n_ahead && rg_grammar_stuck(g))) {
        draw_behind_end(f, first, f->d.ids[first - 1]);
        return;
    }
    for (int32_t i = first; i < f->e.upto; i++) {
        draw_at(s, own, m, i, g, f->rows[i - f->e.from]);
        if (rg_grammar_lost(g)) {
            if (i == first)
                rg_grammar_lose(a->grammar);
            else
                f->d.candidates[i].id = -1;
            return;
        }
        const int32_t id = f->d.candidates[i].id;
        if (ends_answer(m->request, id) || !rg_grammar_advance(g, id) || rg_grammar_stuck(g)) {
            draw_behind_end(f, i + 1, id);
            return;
        }
        if (!rg_denoise_goes_on(&f->d, &f->e, i + 1 - first, f->d.candidates[i].confidence))
            return;
    }
}

void rg_draw_candidate(rg_sample_scratch *s, int thread, const rg_draw_mask *m, float *logits)
{
    rg_fill *f = m->fill;
    thread_scratch *own = &s->of[thread];

    if (rg_all_finite(logits, s->vocab_size)) {
        logits = rg_fill_take(f, m->position, m->without, logits, s->vocab_size);
        if (!logits)
            return;
    }
    if (!rg_all_finite(logits, s->vocab_size)) { /* as they came, or guided: a scale can be too large */
        atomic_store(&m->request->not_finite, true);
        return;
    }
    if (!f->rows) {
        draw_at(s, own, m, m->position, NULL, logits);
        return;
    }
    f->rows[m->position - f->e.from] = logits;
    if (atomic_fetch_sub(&f->n_missing, 1) == 1)
        draw_in_order(s, own, m);
}

/* From 1: those before id have a greater logit, or the same and a lower id. */
static int32_t rank_of(const float *logits, int32_t n, int32_t id)
{
    float own = logits[id];
    int32_t rank = 1;

    for (int32_t i = 0; i < id; i++)
        rank += logits[i] >= own;
    for (int32_t i = id + 1; i < n; i++)
        rank += logits[i] > own;
    return rank;
}

bool rg_draw_prompt_logprob(rg_sample_scratch *s, int thread, const float *logits, int32_t id, rg_id_logprob *out,
                            int32_t k, rg_top *tops)
{
    if (!rg_all_finite(logits, s->vocab_size))
        return false;
    *out = (rg_id_logprob){ .logprob = rg_logprobs(s->of[thread].sampler, logits, id, k, tops),
                            .rank = rank_of(logits, s->vocab_size, id) };
    return true;
}
