/* loop_commit.c -- the second half of a step: the state of its rows is kept, and what they gave is given out. */
#include "engine/loop_inner.h"

/* The i-th span's sample has ended: its state is given back. */
static void end_sample(rg_loop *l, int i)
{
    const rg_planned *p = &l->step.plan[i];

    rg_speculation_end(l->speculation, p->request, p->sample);
    rg_scheduler_drop(l->scheduler, p->request, p->sample);
}

/* A request whose numbers turn out not to be finite ends with all its samples after the step, and so does one that a
 * step could not read experts for, of which nothing is kept. */
void rg_loop_commit(rg_loop *l)
{
    rg_work_step *s = &l->step;

    s->n_output = 0;
    for (int i = 0; i < s->n_plan; i++) {
        rg_request *r = rg_work_request(s, i);

        if (rg_step_batch_failed(&s->rows, i))
            r->no_weights = true;
        if (!r->no_weights && r->work->commit(s, i))
            end_sample(l, i);
    }
    rg_speculation_give_features(l->speculation);
    if (l->speculation)
        rg_speculation_committed(l->speculation);
    s->n_plan = 0;
    rg_scheduler_reap(l->scheduler, false);
}
