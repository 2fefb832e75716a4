/* loop_commit.c -- the second half of a step: the ids that stand, the state of their rows, and the ends of answers. */
#include <math.h>

#include "engine/branch.h"
#include "engine/loop_inner.h"

/* True if a snapshot of recurrent state should be kept here. */
static bool wants_snapshot(const rg_loop *l, const rg_request *r, int32_t committed)
{
    int32_t n = committed < r->params.n_prompt ? r->params.n_prompt : INT32_MAX;

    return committed < n && rg_states_next_stop(l->states, committed - 1, n) == committed;
}

/* Of the i-th span's draft the path of n nodes was right: keep their state. */
static void keep_path(rg_loop *l, int i, const int32_t *path, int32_t n)
{
    const rg_planned *p = &l->plan[i];
    rg_seq *q = p->request->samples[p->sample].seq;
    int32_t slots[RG_MAX_DRAFT];

    for (int32_t k = 0; k < n; k++)
        slots[k] = q->committed + path[k];
    rg_seq_commit(l->states, q, n, slots, rg_request_tokens(p->request, p->sample));
}

/* The nodes of the i-th span's draft that stand, from the root, into path; their number. */
static int32_t accepted_path(const rg_loop *l, int i, int32_t *path)
{
    const rg_draft_tree *draft = rg_speculation_of(l->speculation, i);
    const rg_drawn *drawn = l->drawn + l->rows.first_draw[i];
    const rg_draw_guess *judged = l->judged ? l->judged + l->rows.first_draw[i] + 1 : NULL;
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
static bool take_ids(rg_loop *l, int i)
{
    const rg_planned *p = &l->plan[i];
    rg_request *r = p->request;
    const rg_draft_tree *draft = rg_speculation_of(l->speculation, i);
    int32_t at = l->rows.first_draw[i] + 1, node = RG_AFTER_LAST, path[RG_MAX_DRAFT];
    int32_t n_path = accepted_path(l, i, path), n = 0;
    rg_finish finish = RG_RUNNING;

    /* Counted before the reader sees an end. */
    atomic_fetch_add_explicit(&r->n_steps, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->n_drafted, draft ? rg_draft_guesses(draft) : 0, memory_order_relaxed);
    for (;;) {
        const rg_drawn *d = &l->drawn[at + node];
        bool judged = n < n_path && l->judged; /* the guess stands, whatever was drawn */
        int32_t id = n < n_path ? draft->id[path[n]] : d->id;
        float logprob = judged ? l->judged[at + path[n]].logprob : d->logprob;

        if (d->id < 0) {
            atomic_store(&r->not_finite, true);
            break;
        }
        if (d->lost)
            rg_grammar_lose(r->samples[p->sample].grammar);
        if (r->params.sampling.mirostat)
            r->samples[p->sample].mu = judged ? l->mu[at + path[n]] : d->mu;
        finish = rg_request_append(r, p->sample, id, logprob, rg_request_tops(r, p->sample, node));
        l->n_output++;
        if (n == n_path || finish != RG_RUNNING)
            break;
        node = path[n++];
        atomic_fetch_add_explicit(&r->n_accepted, 1, memory_order_relaxed);
    }
    if (draft)
        keep_path(l, i, path, n);
    rg_speculation_checked(l->speculation, i, l->drawn + l->rows.first_draw[i], path, n);
    return finish != RG_RUNNING;
}

/* A planned sample has all the state that it waited for: it has drawn ids, or its embedding is complete, or there was
 * nothing to do beyond the prompt.  True: it is through. */
static bool take_output(rg_loop *l, int i)
{
    const rg_planned *p = &l->plan[i];
    rg_request *r = p->request;

    if (r->beams) {
        l->n_output += (uint64_t)rg_branch_listed(l->states, r, p->sample);
        return false; /* once the search is over, all its samples have ended */
    }
    if (rg_request_draws(r))
        return take_ids(l, i);
    if (rg_request_is_scored(r))
        rg_request_scored(r);
    else if (rg_request_embeds(r))
        rg_request_embedded(r);
    else
        rg_request_end(r, p->sample, RG_FINISH_LENGTH);
    return true;
}

/* After an evaluation: the ids that have become final from the answer's start on are given out.  True: it has
 * ended. */
static bool take_filled(rg_loop *l, const rg_planned *p)
{
    rg_sample *a = &p->request->samples[p->sample];
    int32_t n_final = rg_fill_commit(a->fill);
    rg_finish finish = RG_RUNNING;

    atomic_fetch_add_explicit(&p->request->n_steps, 1, memory_order_relaxed);
    while (a->n_output < n_final && finish == RG_RUNNING) {
        finish = rg_request_append(p->request, p->sample, a->ids[a->n_output], NAN, NULL);
        l->n_output++;
    }
    return finish != RG_RUNNING;
}

/* An evaluation is over: a block of the model is kept once its ids are final. */
static void commit_evaluation(rg_loop *l, int i)
{
    const rg_planned *p = &l->plan[i];
    rg_sample *a = &p->request->samples[p->sample];
    const rg_span *span = &l->rows.spans[i];

    if (p->without)
        return;
    rg_seq_advance(l->states, a->seq, span->n_rows, span->n_draft, a->fill->d.ids);
    if (!a->seq->scratch)
        rg_seq_rollback(l->states, a->seq, a->seq->committed);
    if (!atomic_load(&p->request->not_finite) && take_filled(l, p))
        rg_scheduler_drop(l->scheduler, p->request, p->sample);
}

/* The i-th span's rows are kept, and what they gave is given out.  A request whose numbers turn out not to be finite,
 * maybe only as its ids are taken here, ends with all its samples after the step.  Drafters hear nothing of its rows:
 * no id follows the last of them. */
static void commit_rows(rg_loop *l, int i)
{
    const rg_planned *p = &l->plan[i];
    rg_sample *a = &p->request->samples[p->sample];
    const int32_t *tokens = rg_request_tokens(p->request, p->sample);
    const rg_span *span = &l->rows.spans[i];
    const atomic_bool *not_finite = &p->request->not_finite;

    rg_seq_advance(l->states, a->seq, span->n_rows, span->n_draft, tokens);
    rg_request_note_prefilled(p->request, a->seq->committed);
    if (!a->seq->scratch && wants_snapshot(l, p->request, a->seq->committed))
        (void)rg_seq_snapshot(l->states, a->seq, tokens); /* without room no snapshot is kept */
    if (!atomic_load(not_finite)) {
        rg_request_publish_scores(p->request);
        if (p->ends && take_output(l, i)) {
            rg_speculation_end(l->speculation, p->request, p->sample);
            rg_scheduler_drop(l->scheduler, p->request, p->sample);
            return;
        }
    }
    if (atomic_load(not_finite))
        rg_seq_rollback(l->states, a->seq, a->seq->committed);
    else
        rg_speculation_note_features(l->speculation, p, i, span);
}

void rg_loop_commit(rg_loop *l)
{
    l->n_output = 0;
    for (int i = 0; i < l->n_plan; i++) {
        const rg_planned *p = &l->plan[i];

        if (rg_step_batch_failed(&l->rows, i))
            p->request->no_weights = true;
        if (p->request->no_weights)
            continue; /* it ends with all its samples below, and nothing of the step is kept */
        if (rg_loop_is_evaluation(p))
            commit_evaluation(l, i);
        else
            commit_rows(l, i);
    }
    rg_speculation_give_features(l->speculation);
    if (l->speculation)
        rg_speculation_committed(l->speculation);
    l->n_plan = 0;
    rg_scheduler_reap(l->scheduler, false);
}
