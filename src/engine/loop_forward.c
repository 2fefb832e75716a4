/* loop_forward.c -- the first half of a turn: which spans, what their work wants of the rows, and the rows computed. */
#include "engine/loop_inner.h"

bool rg_loop_next(rg_loop *l)
{
    int32_t most = l->options.max_rows, wanted = l->budget ? l->budget(l->budget_arg) : most;
    int32_t least = 1 + (rg_loop_fixes_drafts(&l->options) ? l->options.max_draft : 0);
    rg_work_step *s = &l->step;

    l->left = (rg_row_budget){ .rows = wanted < least ? least : wanted < most ? wanted : most,
                               .logits = l->member.runner->max_logits };
    s->n_plan = rg_scheduler_next(l->scheduler, &l->left, s->plan);
    for (int i = 0; i < s->n_plan; i++) {
        const rg_planned *p = &s->plan[i];
        int32_t start = p->request->samples[p->sample].seq->length;

        l->left.rows -= p->n_rows;
        l->left.logits -= 1 + rg_work_read(p->request, start, p->n_rows).n;
    }
    if (l->speculation && s->n_plan)
        rg_speculation_draft(l->speculation, s->plan, s->n_plan, &l->left);
    return s->n_plan > 0;
}

void rg_loop_lay_out(rg_loop *l)
{
    rg_work_step *s = &l->step;

    rg_step_batch_begin(&s->member->rows);
    for (int i = 0; i < s->n_plan; i++)
        rg_work_request(s, i)->work->want(s, i);
}

/* What the batch reads and computes. */
static rg_step_load load_of(const rg_loop *l)
{
    const rg_batch *b = &l->member.rows.batch;
    rg_step_load load = { 0 };

    for (int i = 0; i < b->n_spans; i++)
        rg_step_load_add(&load, &l->time.facts, b->spans[i].start, b->spans[i].n_rows, 0);
    load.n_logits = b->n_logits;
    return load;
}

/* Every request of the step took part in it, once, however many spans it has. */
static void note_step(rg_loop *l, double took_s, double limit_s)
{
    for (int i = 0; i < l->step.n_plan; i++) {
        rg_request *r = l->step.plan[i].request;

        atomic_fetch_add_explicit(&r->counts.n_rows, l->member.rows.spans[i].n_rows, memory_order_relaxed);
        if (r->counts.last_step == l->stats.n_steps)
            continue;
        r->counts.last_step = l->stats.n_steps;
        atomic_fetch_add_explicit(&r->counts.steps_ns, (uint64_t)(1e9 * took_s), memory_order_relaxed);
        atomic_fetch_add_explicit(&r->counts.limit_ns, (uint64_t)(1e9 * limit_s), memory_order_relaxed);
    }
}

bool rg_loop_forward(rg_loop *l)
{
    const rg_sink sink = rg_work_sink(&l->step);
    rg_step_load load = load_of(l);

    rg_member_step(&l->member, &sink);
    if (rg_runner_lost_state(l->member.runner))
        return false;
    const double took_s = l->member.took_s;
    if (l->speculation)
        rg_speculation_stepped(l->speculation, &load, took_s);
    pthread_mutex_lock(&l->lock);
    rg_step_time_learn(&l->time, &load, took_s);
    l->stats.n_steps++;
    l->stats.n_rows += (uint64_t)l->member.rows.batch.n_rows;
    l->stats.bytes_read += (uint64_t)rg_step_bytes(&l->time.facts, &load);
    l->stats.ops += rg_step_product_ops(&l->time.facts, &load) + load.key_ops;
    double limit_s = rg_step_limit_s(&l->time, &load);
    l->stats.limit_s += limit_s;
    pthread_mutex_unlock(&l->lock);
    note_step(l, took_s, limit_s);
    return true;
}
