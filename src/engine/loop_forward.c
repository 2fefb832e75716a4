/* loop_forward.c -- the first half of a step: which spans, what is wanted of their rows, and what is drawn from those.
 *
 * sample, pool and take_labels are called on all of the step's threads, each for rows of its own. */
#include <string.h>

#include "base/clock.h"
#include "engine/loop_inner.h"

bool rg_loop_is_evaluation(const rg_planned *p)
{
    return p->ends && p->request->samples[p->sample].fill;
}

/* Choose the spans. */
bool rg_loop_next(rg_loop *l)
{
    int32_t most = l->options.max_rows, wanted = l->budget ? l->budget(l->budget_arg) : most;
    int32_t least = 1 + (rg_loop_fixes_drafts(&l->options) ? l->options.max_draft : 0);

    l->left = (rg_row_budget){ .rows = wanted < least ? least : wanted < most ? wanted : most,
                               .logits = l->runner->max_logits };
    l->n_plan = rg_scheduler_next(l->scheduler, &l->left, l->plan);
    for (int i = 0; i < l->n_plan; i++) {
        const rg_planned *p = &l->plan[i];
        int32_t start = p->request->samples[p->sample].seq->length;

        l->left.rows -= p->n_rows;
        l->left.logits -= 1 + rg_request_rows_to_score(p->request, start, p->n_rows).n;
    }
    return l->n_plan > 0;
}

/* What is wanted of the i-th span, laid out last, of n_rows rows from position start and n_draft of a draft: the logits
 * of those that score ids of the prompt and of those that ids are drawn from; or hidden states; or the head's
 * scores. */
static void want(rg_loop *l, int i, int32_t start, int32_t n_draft)
{
    const rg_planned *p = &l->plan[i];
    rg_rows run;

    rg_step_batch_pair(&l->rows, p->request->params.second);
    if (rg_request_is_scored(p->request)) {
        rg_step_batch_want_labels(&l->rows, rg_request_rows_for_head(p->request));
        return;
    }
    if (rg_request_embeds(p->request)) {
        run = rg_request_rows_to_pool(p->request, start, p->n_rows);
        if (run.n)
            rg_step_batch_want_hidden(&l->rows, run);
        return;
    }
    run = rg_request_rows_to_score(p->request, start, p->n_rows);
    rg_request_begin_scores(p->request, start, p->n_rows);
    rg_step_batch_want_scores(&l->rows, run.first, run.n);
    if (p->ends && rg_request_draws(p->request))
        rg_step_batch_want_draws(&l->rows, n_draft);
    if (rg_speculation_reads(l->speculation, p) && rg_speculation_tap(l->speculation)->reads_head)
        rg_step_batch_want_hidden(&l->rows, (rg_rows){ 0, p->n_rows + n_draft });
}

/* Draft, and lay out the rows of all spans. */
void rg_loop_lay_out(rg_loop *l)
{
    if (l->speculation)
        rg_speculation_draft(l->speculation, l->plan, l->n_plan, &l->left);
    rg_step_batch_begin(&l->rows);
    for (int i = 0; i < l->n_plan; i++) {
        const rg_planned *p = &l->plan[i];
        const rg_seq *q = p->request->samples[p->sample].seq;
        const rg_draft_tree *draft = rg_speculation_of(l->speculation, i);

        if (l->speculation)
            atomic_store(&l->n_in_turn[i], 0);
        if (rg_loop_is_evaluation(p)) {
            const rg_fill *f = p->request->samples[p->sample].fill;

            rg_step_batch_add_fill(&l->rows, l->states, f, p->without ? f->without : q);
            continue;
        }
        rg_step_batch_add(&l->rows, l->states, q, rg_request_tokens(p->request, p->sample), p->n_rows, draft);
        want(l, i, q->length, draft ? draft->n : 0);
    }
}

/* ---- rows of logits to ids -------------------------------------------------------------------------------------- */

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
static rg_drawn draw(rg_loop *l, int thread, const rg_wanted *w, const float *mu, float *logits)
{
    const rg_planned *p = &l->plan[w->span];
    const rg_draft_tree *draft = rg_speculation_of(l->speculation, w->span);
    rg_draw_place at = { .request = p->request, .sample = p->sample, .mu = mu,
                         .top = rg_request_tops(p->request, p->sample, w->node) };
    int32_t ids[RG_MAX_DRAFT], nodes[RG_MAX_DRAFT];
    rg_draw_guess guesses[RG_MAX_DRAFT];
    rg_drawn drawn;

    if (p->request->max_draft)
        at.verify = l->options.verify;
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
    drawn = rg_draw(l->scratch, thread, &at, logits);
    for (int32_t k = 0; k < at.n_guesses && l->judged; k++)
        l->judged[l->rows.first_draw[w->span] + 1 + nodes[k]] = guesses[k];
    return drawn;
}

/* All rows of the span have come: an id is drawn after each, parents before children, since mirostat's bound at a child
 * follows from the logits that the rules left of its parent's. */
static void draw_in_turn(rg_loop *l, int thread, int span, const rg_draft_tree *draft)
{
    const rg_planned *p = &l->plan[span];
    const int32_t after_last = l->rows.first_draw[span];

    l->mu[after_last] = p->request->samples[p->sample].mu;
    for (int32_t node = RG_AFTER_LAST; node < draft->n; node++) {
        int32_t i = after_last + 1 + node;

        if (node >= 0) {
            int32_t parent = after_last + 1 + draft->parent[node];

            l->mu[i] = rg_draw_next_mu(l->scratch, p->request, l->mu[parent], l->in_turn[parent], draft->id[node]);
        }
        l->drawn[i] = draw(l, thread, &l->rows.wanted[i], &l->mu[i], l->in_turn[i]);
    }
}

/* A row came that an id is drawn after. */
static void take_row(rg_loop *l, int thread, int i, float *logits)
{
    const rg_wanted *w = &l->rows.wanted[i];
    const rg_draft_tree *draft = rg_speculation_of(l->speculation, w->span);

    if (!draft || !l->plan[w->span].request->params.sampling.mirostat) {
        l->drawn[i] = draw(l, thread, w, NULL, logits);
        return;
    }
    l->in_turn[i] = logits;
    if (atomic_fetch_add(&l->n_in_turn[w->span], 1) == draft->n) /* this one was the last of 1 + n */
        draw_in_turn(l, thread, w->span, draft);
}

/* Called on any of the step's threads, as is pool. */
static void sample(void *arg, int thread, int i, float *logits)
{
    rg_loop *l = arg;
    const rg_wanted *w = &l->rows.wanted[i];
    const rg_planned *p = &l->plan[w->span];
    rg_request *r = p->request;

    if (rg_loop_is_evaluation(p))
        rg_draw_candidate(l->scratch, thread, &(rg_draw_mask){ r, p->sample, w->node, p->without }, logits);
    else if (r->beams)
        rg_draw_beam(l->scratch, thread, r, p->sample, logits);
    else if (w->node != RG_TO_SCORE)
        take_row(l, thread, i, logits);
    else if (!rg_draw_score(l->scratch, thread, r, l->rows.index[l->rows.logit_rows[i]] + 1, logits))
        atomic_store(&r->not_finite, true);
}

static void pool(void *arg, int thread, int i, const float *rows, size_t stride)
{
    (void)thread;
    rg_loop *l = arg;
    const rg_rows *run = &l->rows.hidden[i];
    rg_request *r = l->plan[l->rows.hidden_of[i]].request;

    if (rg_request_embeds(r))
        rg_request_pool(r, l->rows.index[run->first], run->n, rows, stride);
    else
        rg_tap_put_hidden(rg_speculation_tap(l->speculation), run->first, run->n, rows, stride);
}

static void take_labels(void *arg, int thread, int i, const float *scores)
{
    (void)thread;
    rg_loop *l = arg;

    rg_request_take_labels(l->plan[l->rows.scores_of[i]].request, scores);
}

/* What the batch reads and computes. */
static rg_step_load load_of(const rg_loop *l)
{
    const rg_batch *b = &l->rows.batch;
    rg_step_load load = { 0 };

    for (int i = 0; i < b->n_spans; i++)
        rg_step_load_add(&load, &l->time.facts, b->spans[i].start, b->spans[i].n_rows, 0);
    load.n_logits = b->n_logits;
    return load;
}

/* Every request of the step took part in it, once, however many spans it has. */
static void note_step(rg_loop *l, double took_s, double limit_s)
{
    for (int i = 0; i < l->n_plan; i++) {
        rg_request *r = l->plan[i].request;

        if (r->last_step == l->stats.n_steps)
            continue;
        r->last_step = l->stats.n_steps;
        atomic_fetch_add_explicit(&r->steps_ns, (uint64_t)(1e9 * took_s), memory_order_relaxed);
        atomic_fetch_add_explicit(&r->limit_ns, (uint64_t)(1e9 * limit_s), memory_order_relaxed);
    }
}

void rg_loop_forward(rg_loop *l)
{
    rg_step_load load = load_of(l);
    uint64_t start = rg_now_ns();

    l->runner->step(l->runner, &l->rows.batch,
                    &(rg_sink){ .logits = sample, .hidden = pool, .scores = take_labels, .arg = l });
    double took_s = rg_seconds(start, rg_now_ns());
    if (l->speculation)
        rg_speculation_stepped(l->speculation, &load, took_s);
    pthread_mutex_lock(&l->lock);
    rg_step_time_learn(&l->time, &load, took_s);
    l->stats.n_steps++;
    l->stats.n_rows += (uint64_t)l->rows.batch.n_rows;
    l->stats.bytes_read += (uint64_t)rg_step_bytes(&l->time.facts, &load);
    l->stats.ops += rg_step_product_ops(&l->time.facts, &load) + load.key_ops;
    double limit_s = rg_step_limit_s(&l->time, &load);
    l->stats.limit_s += limit_s;
    pthread_mutex_unlock(&l->lock);
    note_step(l, took_s, limit_s);
}
