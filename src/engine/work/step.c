/* step.c -- see step.h. */
#include "engine/work/step.h"

static void take_logits(void *arg, int thread, int i, float *logits)
{
    rg_work_step *s = arg;

    rg_work_request(s, s->member->rows.wanted[i].span)->work->take_logits(s, thread, i, logits);
}

static void take_hidden(void *arg, int thread, int i, const float *rows, size_t stride)
{
    (void)thread;
    rg_work_step *s = arg;

    rg_work_request(s, s->member->rows.hidden_of[i])->work->take_hidden(s, i, rows, stride);
}

static void take_scores(void *arg, int thread, int i, const float *scores)
{
    (void)thread;
    rg_work_step *s = arg;

    rg_work_request(s, s->member->rows.scores_of[i])->work->take_scores(s, i, scores);
}

static void take_soft(void *arg, int thread, int i, const float *soft)
{
    (void)thread;
    rg_work_step *s = arg;

    const rg_work *work = rg_work_request(s, s->member->rows.wanted[i].span)->work;

    if (work->take_soft)
        work->take_soft(s, i, soft);
}

rg_sink rg_work_sink(rg_work_step *s)
{
    return (rg_sink){
        .logits = take_logits, .hidden = take_hidden, .scores = take_scores, .soft = take_soft, .arg = s
    };
}

void rg_work_add_rows(rg_work_step *s, int i)
{
    const rg_planned *p = &s->plan[i];

    rg_step_batch_add(&s->member->rows, s->member->states, p->request->samples[p->sample].seq,
                      rg_request_tokens(p->request, p->sample), p->n_rows, rg_speculation_of(s->speculation, i));
    rg_step_batch_give(&s->member->rows, p->request->params.given, p->request->params.n_given,
                       p->request->given_dim);
    rg_step_batch_pair(&s->member->rows, p->request->params.second);
}

/* True if a snapshot of recurrent state should be kept here. */
static bool wants_snapshot(const rg_states *states, const rg_request *r, int32_t committed)
{
    int32_t n = committed < r->params.n_prompt ? r->params.n_prompt : INT32_MAX;

    return committed < n && rg_states_next_stop(states, committed - 1, n) == committed;
}

bool rg_work_commit_rows(rg_work_step *s, int i, bool (*take)(rg_work_step *s, int i))
{
    const rg_planned *p = &s->plan[i];
    rg_request *r = p->request;
    rg_seq *q = r->samples[p->sample].seq;
    const int32_t *tokens = rg_request_tokens(r, p->sample);
    const rg_span *span = &s->member->rows.spans[i];

    rg_seq_advance(s->member->states, q, span->n_rows, span->n_draft, tokens);
    rg_request_note_prefilled(r, q->committed);
    if (!q->scratch && wants_snapshot(s->member->states, r, q->committed))
        (void)rg_seq_snapshot(s->member->states, q, tokens); /* without room no snapshot is kept */
    if (!atomic_load(&r->not_finite) && take(s, i))
        return true;
    if (atomic_load(&r->not_finite)) /* maybe only as its ids were taken */
        rg_seq_rollback(s->member->states, q, q->committed);
    else
        rg_speculation_note_features(s->speculation, p, i, span);
    return false;
}
