/* answer.c -- answers: ids are drawn one after the other, from the logits of the row before each; with a draft, several
 * in a step.  Of n samples the first computes the prompt, and the others fork from it. */
#include "engine/work/answer.h"

#include <math.h>

enum { MAX_SAMPLES = 1024 };

/* ---- at the door ------------------------------------------------------------------------------------------------- */

static bool takes(const rg_params *p, const rg_request_model *m)
{
    (void)p;
    (void)m;
    return true;
}

bool rg_answer_check(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (m->whole && !m->diffusion)
        return rg_fail(err, RG_E_UNSUPPORTED, "this model is an encoder: it makes embeddings of texts%s, and generates "
                       "no answers", m->n_labels ? " and scores pairs of them" : "");
    if (m->headless) /* embedders made of language models are published without a head */
        return rg_fail(err, RG_E_UNSUPPORTED, "this model has no head (the checkpoint has no lm_head, and does not tie "
                       "it to the embedding): it makes embeddings of texts, and generates no answers");
    if (p->max_tokens < !p->prompt_logprobs)
        return rg_fail(err, RG_E_INPUT, "max_tokens is %d: want 1 or more, or 0 and prompt_logprobs",
                       (int)p->max_tokens);
    if (p->n_prompt_tops < 0 || p->n_prompt_tops > m->vocab_size)
        return rg_fail(err, RG_E_INPUT, "n_prompt_tops is %d: want 0 to %d", (int)p->n_prompt_tops, (int)m->vocab_size);
    if (p->prompt_logits && !p->prompt_logprobs)
        return rg_fail(err, RG_E_INPUT, "prompt_logits are kept with prompt_logprobs: set both");
    if (p->n_samples < 1 || p->n_samples > MAX_SAMPLES)
        return rg_fail(err, RG_E_INPUT, "n_samples is %d: want 1 to %d", (int)p->n_samples, MAX_SAMPLES);
    if (p->best_of < 0 || p->best_of > MAX_SAMPLES || (p->best_of && p->best_of < p->n_samples))
        return rg_fail(err, RG_E_INPUT, "best_of is %d: want at least the %d answers that are to be told, and at most "
                       "%d", (int)p->best_of, (int)p->n_samples, MAX_SAMPLES);
    if (p->best_of > p->n_samples && (m->diffusion || p->beam.n_beams))
        return rg_fail(err, RG_E_UNSUPPORTED, "best_of needs the log-probabilities of answers that are drawn: %s",
                       m->diffusion ? "this model fills them in" : "it does not go together with beams");
    if (p->scorer && p->best_of <= p->n_samples && !p->search.simulations)
        return rg_fail(err, RG_E_INPUT, "a scorer chooses among answers: it needs best_of above n_samples, or a tree "
                       "search");
    if (p->thinking.n_end && (m->diffusion || p->beam.n_beams))
        return rg_fail(err, RG_E_UNSUPPORTED, "a budget of thinking needs an answer that is drawn id by id: %s",
                       m->diffusion ? "this model fills it in" : "it does not go together with beams");
    if (p->n_predicted < 0)
        return rg_fail(err, RG_E_INPUT, "n_predicted is %d: want 0 or more", (int)p->n_predicted);
    for (int32_t i = 0; i < p->n_predicted; i++)
        if (p->predicted[i] < 0 || p->predicted[i] >= m->vocab_size)
            return rg_fail(err, RG_E_INPUT, "predicted: id %d is not one of the %d of the model", (int)p->predicted[i],
                           (int)m->vocab_size);
    return rg_thinking_check(&p->thinking, m->vocab_size, err) &&
           rg_sampling_check(&p->sampling, m->vocab_size, err) && rg_request_check_stops(p, m->vocab_size, err);
}

rg_work_shape rg_answer_shape(const rg_params *p, const rg_request_model *m)
{
    const int32_t n = p->best_of > p->n_samples ? p->best_of : p->n_samples;

    return (rg_work_shape){ .row = (size_t)p->n_prompt + (size_t)p->max_tokens, .n_branches = n, .n_ending = n,
                            .max_draft = m->max_draft };
}

void rg_answer_carve(rg_carver *c, rg_answer_part *a, const rg_params *p)
{
    const size_t n = p->best_of > p->n_samples ? (size_t)p->best_of : 0;
    int32_t *best = rg_carve(c, n, sizeof *best);
    double *values = rg_carve(c, p->scorer ? n : 0, sizeof *values);

    if (c->base)
        *a = (rg_answer_part){ .best = n ? best : NULL, .values = n && p->scorer ? values : NULL };
}

static void carve(rg_carver *c, rg_request *r, const rg_params *p, const rg_request_model *m)
{
    (void)m;
    rg_answer_part *own = rg_carve(c, 1, sizeof *own);

    rg_answer_carve(c, own, p);
    if (!c->base)
        return;
    r->part = own;
    r->in_bulk = own->best != NULL;
}

/* ---- rows that are wanted ---------------------------------------------------------------------------------------- */

/* How many of the logits after each node of the draft are needed. */
static void pick(rg_work_step *s, const rg_planned *p, const rg_draft_tree *draft)
{
    for (int32_t node = RG_AFTER_LAST; node < (draft ? draft->n : 0); node++) {
        int32_t path[RG_MAX_DRAFT];
        const rg_draw_place at = { .request = p->request, .sample = p->sample,
                                   .n_draft = draft ? rg_draft_path(draft, node, path) : 0,
                                   .verify = p->request->max_draft ? s->verify : RG_VERIFY_COUPLED };

        rg_step_batch_pick(&s->member->rows, node, rg_draw_pick(&at));
    }
}

void rg_answer_want(rg_work_step *s, int i)
{
    const rg_planned *p = &s->plan[i];
    const rg_draft_tree *draft = rg_speculation_of(s->speculation, i);
    const int32_t n_draft = draft ? draft->n : 0;

    if (s->n_in_turn)
        atomic_store(&s->n_in_turn[i], 0);
    if (p->ends && rg_request_draws(p->request))
        rg_step_batch_want_draws(&s->member->rows, n_draft);
    if (p->ends && rg_request_draws(p->request))
        pick(s, p, draft);
    if (rg_speculation_reads(s->speculation, p) && rg_speculation_tap(s->speculation)->reads_head)
        rg_step_batch_want_hidden(&s->member->rows, (rg_rows){ 0, p->n_rows + n_draft });
}

static void want(rg_work_step *s, int i)
{
    rg_work_add_rows(s, i);
    rg_answer_want(s, i);
}

/* ---- rows of logits to ids --------------------------------------------------------------------------------------- */

/* The guesses of what follows a node of a draft. */
static int32_t guesses_after(const rg_draft_tree *d, int32_t node, rg_draw_guess *out, int32_t *nodes)
{
    int32_t n = 0;

    for (int32_t i = node + 1; i < d->n; i++)
        if (d->parent[i] == node && !d->probe[i]) {
            out[n] = (rg_draw_guess){ .id = d->id[i], .from = d->from[i] };
            nodes[n++] = i;
        }
    return n;
}

/* Draw the id after a row of an answer or of its draft.  mu: as in rg_draw_place. */
static rg_drawn draw(rg_work_step *s, int thread, const rg_wanted *w, const float *mu, float *logits)
{
    const rg_planned *p = &s->plan[w->span];
    const rg_draft_tree *draft = rg_speculation_of(s->speculation, w->span);
    rg_draw_place at = { .request = p->request, .sample = p->sample, .mu = mu,
                         .top = rg_request_tops(p->request, p->sample, w->node) };
    int32_t ids[RG_MAX_DRAFT], nodes[RG_MAX_DRAFT];
    rg_draw_guess guesses[RG_MAX_DRAFT];
    rg_drawn drawn;

    if (p->request->max_draft)
        at.verify = s->verify;
    if (draft) {
        at.guess = w->node >= 0 && draft->probe[w->node];
        at.draft = ids;
        at.n_draft = rg_draft_path(draft, w->node, ids);
        for (int32_t k = 0; k < at.n_draft; k++)
            ids[k] = draft->id[ids[k]];
    }
    if (draft && at.verify != RG_VERIFY_COUPLED) {
        at.guesses = guesses;
        at.n_guesses = guesses_after(draft, w->node, guesses, nodes);
    }
    drawn = rg_draw(s->member->scratch, thread, &at, logits);
    for (int32_t k = 0; k < at.n_guesses && s->judged; k++)
        s->judged[s->member->rows.first_draw[w->span] + 1 + nodes[k]] = guesses[k];
    return drawn;
}

/* All rows of the span have come: an id is drawn after each, parents before children, since mirostat's bound at a child
 * follows from the logits that the rules left of its parent's. */
static void draw_in_turn(rg_work_step *s, int thread, int span, const rg_draft_tree *draft)
{
    const rg_planned *p = &s->plan[span];
    const int32_t after_last = s->member->rows.first_draw[span];

    s->mu[after_last] = p->request->samples[p->sample].mu;
    for (int32_t node = RG_AFTER_LAST; node < draft->n; node++) {
        int32_t i = after_last + 1 + node;

        if (node >= 0) {
            int32_t parent = after_last + 1 + draft->parent[node];

            s->mu[i] = rg_draw_next_mu(s->member->scratch, p->request, s->mu[parent], s->in_turn[parent],
                                       draft->id[node]);
        }
        s->drawn[i] = draw(s, thread, &s->member->rows.wanted[i], &s->mu[i], s->in_turn[i]);
    }
}

void rg_answer_take_logits(rg_work_step *s, int thread, int i, float *logits)
{
    const rg_wanted *w = &s->member->rows.wanted[i];
    const rg_draft_tree *draft = rg_speculation_of(s->speculation, w->span);

    if (!draft || !s->plan[w->span].request->params.sampling.mirostat) {
        s->drawn[i] = draw(s, thread, w, NULL, logits);
        return;
    }
    s->in_turn[i] = logits;
    if (atomic_fetch_add(&s->n_in_turn[w->span], 1) == draft->n) /* this one was the last of 1 + n */
        draw_in_turn(s, thread, w->span, draft);
}

void rg_answer_take_hidden(rg_work_step *s, int i, const float *rows, size_t stride)
{
    const rg_rows *run = &s->member->rows.hidden[i];

    rg_tap_put_hidden(rg_speculation_tap(s->speculation), run->first, run->n, rows, stride);
}

/* ---- ids that stand ---------------------------------------------------------------------------------------------- */

/* A path of n nodes of the i-th span's draft was right: keep the state of its rows. */
static void keep_path(rg_work_step *s, int i, const int32_t *path, int32_t n)
{
    const rg_planned *p = &s->plan[i];
    rg_seq *q = p->request->samples[p->sample].seq;
    int32_t slots[RG_MAX_DRAFT];

    for (int32_t k = 0; k < n; k++)
        slots[k] = q->committed + path[k];
    rg_seq_commit(s->member->states, q, n, slots, rg_request_tokens(p->request, p->sample));
}

/* The nodes of the i-th span's draft that stand, from the root, into path; their number. */
static int32_t accepted_path(const rg_work_step *s, int i, int32_t *path)
{
    const rg_draft_tree *draft = rg_speculation_of(s->speculation, i);
    const rg_drawn *drawn = s->drawn + s->member->rows.first_draw[i];
    const rg_draw_guess *judged = s->judged ? s->judged + s->member->rows.first_draw[i] + 1 : NULL;
    bool stands[RG_MAX_DRAFT];
    double log_p[RG_MAX_DRAFT];
    int32_t n = 0;

    if (!draft)
        return 0;
    if (!judged) {
        for (int32_t node = RG_AFTER_LAST; (node = rg_draft_find(draft, node, drawn[1 + node].id)) >= 0;)
            path[n++] = node;
        return n;
    }
    for (int32_t k = 0; k < draft->n; k++) {
        stands[k] = !draft->probe[k] && judged[k].stands;
        log_p[k] = judged[k].log_p;
    }
    return rg_typical_path(draft->parent, stands, log_p, draft->n, path);
}

/* The ids that the i-th span gives: those of the draft that stand, and the one drawn after them.  True: the answer has
 * ended. */
static bool take_ids(rg_work_step *s, int i)
{
    const rg_planned *p = &s->plan[i];
    rg_request *r = p->request;
    const rg_draft_tree *draft = rg_speculation_of(s->speculation, i);
    int32_t at = s->member->rows.first_draw[i] + 1, node = RG_AFTER_LAST, path[RG_MAX_DRAFT];
    int32_t n_path = accepted_path(s, i, path), n = 0;
    const bool predicted = draft && rg_speculation_is_predicted(s->speculation, i);
    rg_finish finish = RG_RUNNING;

    /* Counted before the reader sees an end. */
    atomic_fetch_add_explicit(&r->counts.n_steps, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->counts.n_drafted, draft ? rg_draft_guesses(draft) : 0, memory_order_relaxed);
    for (;;) {
        const rg_drawn *d = &s->drawn[at + node];
        bool judged = n < n_path && s->judged; /* the guess stands, whatever was drawn */
        int32_t id = n < n_path ? draft->id[path[n]] : d->id;
        float logprob = judged ? s->judged[at + path[n]].logprob : d->logprob;

        if (d->id < 0) {
            atomic_store(&r->not_finite, true);
            break;
        }
        if (d->lost)
            rg_grammar_lose(r->samples[p->sample].grammar);
        if (r->params.sampling.mirostat)
            r->samples[p->sample].mu = judged ? s->mu[at + path[n]] : d->mu;
        finish = rg_request_append(r, p->sample, id, logprob, rg_request_tops(r, p->sample, node));
        s->n_output++;
        if (n == n_path || finish != RG_RUNNING)
            break;
        node = path[n++];
        atomic_fetch_add_explicit(&r->counts.n_accepted, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&r->counts.n_predicted_accepted, predicted, memory_order_relaxed);
    }
    if (draft)
        keep_path(s, i, path, n);
    rg_speculation_checked(s->speculation, i, s->drawn + s->member->rows.first_draw[i], path, n);
    return finish != RG_RUNNING;
}

bool rg_answer_take(rg_work_step *s, int i)
{
    return s->plan[i].ends && take_ids(s, i);
}

static bool commit(rg_work_step *s, int i)
{
    return rg_work_commit_rows(s, i, rg_answer_take);
}

/* ---- the best of several, in the reader's thread ----------------------------------------------------------------- */

/* The value of an answer: what its scorer says, or the mean log-probability of its ids. */
static double value_of(const rg_request *r, const rg_answer_part *own, int i)
{
    const rg_sample *s = &r->samples[i];

    if (own->values)
        return own->values[i];
    return s->n_drawn ? s->sum_logprobs / s->n_drawn : -INFINITY;
}

static bool all_have_ended(const rg_request *r)
{
    for (int i = 0; i < r->n_branches; i++)
        if (atomic_load(&r->samples[i].finish) == RG_RUNNING)
            return false;
    return true;
}

/* Once all samples have ended, and have values: in the order of these, equal ones as they are numbered. */
static void choose(const rg_request *r, rg_answer_part *own)
{
    if (!all_have_ended(r) || (own->values && !own->has_values))
        return;
    for (int i = 0; i < r->n_branches; i++) {
        int at = i;

        for (; at > 0 && value_of(r, own, i) > value_of(r, own, own->best[at - 1]); at--)
            own->best[at] = own->best[at - 1];
        own->best[at] = i;
    }
    own->is_chosen = true;
}

int32_t rg_answer_to_value(rg_request *r)
{
    const rg_answer_part *own = r->part;

    return own->values && !own->has_values && all_have_ended(r) ? r->n_branches : 0;
}

bool rg_answer_valued(rg_request *r, int32_t i, const int32_t **ids, const float **logprobs, int32_t *n)
{
    const rg_sample *s = &r->samples[i];

    *ids = s->ids;
    *logprobs = s->logprobs;
    *n = atomic_load(&s->n_ready);
    return true;
}

void rg_answer_take_values(rg_request *r, const double *values)
{
    rg_answer_part *own = r->part;

    for (int i = 0; i < r->n_branches; i++)
        own->values[i] = values[i] > -INFINITY && values[i] < INFINITY ? values[i] : -INFINITY;
    own->has_values = true;
}

rg_sample *rg_answer_told(rg_request *r, int k)
{
    rg_answer_part *own = r->part;

    if (!own->best)
        return &r->samples[k];
    if (!own->is_chosen)
        choose(r, own);
    return own->is_chosen ? &r->samples[own->best[k]] : NULL;
}

double rg_answer_score(const rg_request *r, int k)
{
    const bool has_part = r->work == &rg_work_answer || r->work == &rg_work_prompt_logprobs;
    const rg_answer_part *own = has_part ? r->part : NULL;

    return own && own->best && own->is_chosen ? value_of(r, own, own->best[k]) : NAN;
}

const rg_work rg_work_answer = {
    .name = "answer",
    .takes = takes, .check = rg_answer_check, .shape = rg_answer_shape, .carve = carve, .most = rg_rowwise_most,
    .is_open = rg_rowwise_is_open, .target = rg_rowwise_target, .room = rg_rowwise_room,
    .cacheable = rg_rowwise_cacheable, .waits_to_fork = rg_rowwise_waits_to_fork, .rows = rg_rowwise_rows,
    .n_left = rg_rowwise_n_left,
    .want = want, .take_logits = rg_answer_take_logits, .take_hidden = rg_answer_take_hidden, .commit = commit,
    .to_value = rg_answer_to_value, .valued = rg_answer_valued, .take_values = rg_answer_take_values,
    .told = rg_answer_told,
};
