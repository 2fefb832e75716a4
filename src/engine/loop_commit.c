/* loop_commit.c -- the second half of a turn: the state of its rows is kept, and what they gave is given out. */
#include "engine/loop_inner.h"

/* The i-th span's sample has ended: its state is given back. */
static void end_sample(rg_loop *l, int i)
{
    const rg_planned *p = &l->step.plan[i];

    rg_speculation_end(l->speculation, p->request, p->sample);
    rg_scheduler_drop(l->scheduler, p->request, p->sample);
}

/* A request whose numbers turn out not to be finite ends with all its samples after the turn, and so does one that a
 * step could not read experts for; nothing of what the step made for it is kept. */
void rg_loop_commit(rg_loop *l)
{
    rg_work_step *s = &l->step;

    s->n_output = 0;
    for (int i = 0; i < s->n_plan; i++) {
        rg_request *r = rg_work_request(s, i);

        if (rg_step_batch_failed(&s->member->rows, i))
            r->no_weights = true;
        if (!r->no_weights && r->work->commit(s, i))
            end_sample(l, i);
    }
    for (int i = 0; i < s->n_plan; i++)
        if (rg_work_request(s, i)->work->settle)
            rg_work_request(s, i)->work->settle(rg_work_request(s, i));
    rg_speculation_give_features(l->speculation);
}

void rg_loop_undo(rg_loop *l)
{
    for (int i = 0; i < l->step.n_plan; i++)
        if (rg_work_request(&l->step, i)->work->undo)
            rg_work_request(&l->step, i)->work->undo(rg_work_request(&l->step, i));
}

/* What the turn took counts as its tenants', by their rows, among all members. */
static void charge(rg_loop *l)
{
    const double us = 1e6;
    int32_t n_rows = 0;

    for (int i = 0; i < l->step.n_plan; i++)
        n_rows += l->step.plan[i].n_rows;
    for (int i = 0; i < l->step.n_plan; i++) {
        const rg_planned *p = &l->step.plan[i];

        if (p->request->turn.share)
            rg_shares_serve(l->tenants, p->request->turn.share->above, us * l->turn_s * p->n_rows / n_rows);
    }
}

void rg_loop_end_turn(rg_loop *l)
{
    if (l->speculation)
        rg_speculation_committed(l->speculation);
    if (l->tenants)
        charge(l);
    l->step.n_plan = 0;
    rg_scheduler_reap(l->scheduler, false);
}
