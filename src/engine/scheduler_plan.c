/* scheduler_plan.c -- the plan of a step: whose rows it computes, and how many of each.
 *
 * A step is planned for the foreground first, waiting requests included, and then for the background with what is
 * left. The foreground takes state from the background before anything else, so that no foreground request waits for
 * state or is preempted while a background request holds any.
 *
 * Why there is always progress.  The first of the ranked samples is planned before all others.  If its state cannot
 * grow, samples behind it give way until it is alone; and alone it fits, since rg_loop_submit refused what does not.
 * It is not taken out of the plan again: where a tenant gives to another one, its latest sample gives, and it has
 * another one then (or gives all it has, once at most, to a sample that is planned next).  Other samples take state
 * from tenants with more than theirs, and else from what is behind them and not in the plan; prompts do the latter
 * only while the plan is empty. */
#include "engine/scheduler_inner.h"

#include "base/clock.h"

enum { MIN_PROMPT_ROWS = 4 }; /* of prompts in a step, however many answers are being written: no prompt starves */

/* A prompt needs two rows of logits at least: one that is read besides, and one to draw from. */
static int32_t prompt_rows_left(const rg_planning *p)
{
    int32_t rows = p->prompts < p->budget ? p->prompts : p->budget;

    return p->logits > 1 ? rows : 0;
}

/* Where no answer is being written, a prompt of up to twice the rows that are left is not cut: a second step would read
 * all weights again. */
static int32_t rows_given(const rg_planning *p, int32_t wanted)
{
    int32_t left = prompt_rows_left(p);

    if (wanted <= left || (!p->n && wanted <= p->budget && wanted <= (int64_t)2 * left))
        return wanted;
    return left;
}

/* How many of n rows from a position the step can compute, where their logits are wanted: the row to draw from, and
 * three quarters of the logits that are left, so that one prompt does not keep all others out of a step. */
static int32_t rows_to_read(const rg_planning *p, const rg_request *r, int32_t at, int32_t n)
{
    rg_rows rows = rg_work_read(r, at, n);
    int32_t most = p->logits - 1 - (p->logits - 1) / 4;

    return rows.n > most ? rows.first + most : n;
}

static void plan_add(rg_planning *p, const rg_planned *e)
{
    p->logits -= e->took.logits;
    p->budget -= e->took.rows;
    p->prompts -= e->is_prompt ? e->took.rows : 0;
    p->plan[p->n++] = *e;
}

/* n rows of sample i, and as many for a draft as are reserved. */
static void plan_rows(rg_planning *p, rg_request *r, int i, int32_t n, int32_t reserved, bool is_prompt)
{
    const rg_sample *a = &r->samples[i];
    int32_t n_logits = rg_work_read(r, a->seq->length, n).n + 1;

    plan_add(p, &(rg_planned){ .request = r,
                               .sample = i,
                               .n_rows = n,
                               .ends = a->seq->length + n == r->work->target(r, i),
                               .is_prompt = is_prompt,
                               .took = { .rows = n + reserved, .logits = n_logits + reserved } });
}

/* The rows of a prompt count as its tenant's. */
static void plan_prompt_rows(rg_scheduler *s, rg_planning *p, rg_request *r, int i, int32_t n)
{
    plan_rows(p, r, i, n, 0, true);
    if (r->turn.share)
        rg_shares_serve(&s->shares, r->turn.share, n);
}

bool rg_scheduler_is_planned(const rg_scheduler *s, const rg_request *r, int i)
{
    const rg_planning *p = s->planning;

    for (int k = 0; k < p->n; k++)
        if (p->plan[k].request == r && p->plan[k].sample == i)
            return true;
    return false;
}

/* ---- answers that are being written ------------------------------------------------------------------------------ */

bool rg_sample_is_decoding(const rg_request *r, int i)
{
    const rg_sample *a = &r->samples[i];

    return rg_sample_is_active(a) && !r->sees_ahead && r->work->is_open(r, i) && !r->work->waits_to_fork(r, i) &&
           r->work->target(r, i) - a->seq->length == 1;
}

/* Rows kept free for the draft of an answer that is being written. */
static int32_t rows_reserved(const rg_scheduler *s, const rg_request *r, int i)
{
    return rg_loop_fixes_drafts(&s->options) && r->max_draft && r->samples[i].n_output ? s->options.max_draft : 0;
}

/* Plan the next id of an answer that is being written, with room for its draft if that is reserved. */
static void plan_answer(rg_scheduler *s, rg_planning *p, rg_request *r, int i, bool may_preempt)
{
    rg_seq *q = r->samples[i].seq;
    int32_t reserved = rows_reserved(s, r, i);
    bool grown;

    if (reserved >= p->budget - p->kept.rows || reserved >= p->logits - p->kept.logits) {
        p->left_out = true;
        return;
    }
    do
        grown = rg_seq_grow(s->states, q, q->length + 1 + reserved);
    while (!grown && may_preempt && rg_scheduler_make_room(s, r, i));
    if (!grown && reserved && !p->n) { /* alone it has no room for a draft, and never had any */
        grown = rg_seq_grow(s->states, q, q->length + 1);
        reserved = 0;
    }
    p->left_out |= !grown;
    if (grown)
        plan_rows(p, r, i, 1, reserved, false);
}

static bool has_rows_for_answers(const rg_planning *p)
{
    return p->budget > p->kept.rows && p->logits > p->kept.logits;
}

/* The foreground's, by rank.  Some may be planned already. */
static void plan_answers(rg_scheduler *s, rg_planning *p)
{
    const bool again = p->n > 0;
    int32_t k = 0;

    p->left_out = false;
    for (; k < s->n_ranked && has_rows_for_answers(p); k++) {
        const rg_ranked *e = &s->ranked[k];

        if (e->request->turn.state == RG_LIST_RUNNING && rg_sample_is_decoding(e->request, e->sample) &&
            !(again && rg_scheduler_is_planned(s, e->request, e->sample)))
            plan_answer(s, p, e->request, e->sample, true);
    }
    p->left_out |= k < s->n_ranked;
}

static void plan_background(rg_scheduler *s, rg_planning *p)
{
    for (rg_request *r = s->running.head; r && has_rows_for_answers(p); r = r->turn.next)
        for (int i = 0; r->params.background && i < r->n_branches && has_rows_for_answers(p); i++)
            if (rg_sample_is_decoding(r, i))
                plan_answer(s, p, r, i, true);
}

/* ---- prompts, and whatever else is not one row ------------------------------------------------------------------- */

/* So many of the rows that sample i computes next: those before a snapshot, and before a draft with rows of its own,
 * which has the answer's last id. */
static int32_t rows_wanted(const rg_scheduler *s, const rg_request *r, int i, const rg_work_rows *w)
{
    int32_t at = w->first, before_draft = rows_reserved(s, r, i) > 0;
    int32_t most = r->work->target(r, i) - before_draft, end = w->end < most ? w->end : most;
    int32_t n = at < r->params.n_prompt ? r->params.n_prompt : INT32_MAX;
    int32_t stop = rg_states_next_stop(s->states, at, n);

    return (stop < n && stop < end ? stop : end) - at;
}

/* As many rows as there is room for; 0: none. */
static int32_t grow_some(rg_scheduler *s, const rg_request *r, rg_seq *q, int32_t n_rows)
{
    while (n_rows > 0 && !rg_seq_grow(s->states, q, q->length + n_rows))
        n_rows = rg_scheduler_clear_background(s, r) ? n_rows : n_rows / 2;
    return n_rows;
}

/* Grow a sample's sequences for rows that are never cut. */
static bool grow_uncut(rg_scheduler *s, const rg_request *r, const rg_sample *a, const rg_work_rows *w)
{
    rg_seq *const seqs[] = { a->seq, a->beside };

    for (size_t k = 0; k < RG_LEN(seqs); k++)
        if (seqs[k] && !rg_seq_grow(s->states, seqs[k], w->upto))
            return false;
    for (size_t k = 0; k < RG_LEN(seqs); k++)
        if (seqs[k] && r->is_scratch)
            rg_seq_scratch_from(s->states, seqs[k], w->first);
    return true;
}

/* Plan rows that are never cut: they wait for a step with room for all of them, which the first of a step always has.
 * False: there is no state for them. */
static bool plan_uncut(rg_scheduler *s, rg_planning *p, rg_request *r, int i, const rg_work_rows *w)
{
    const rg_sample *a = &r->samples[i];
    rg_planned e = { .request = r, .sample = i, .n_rows = w->end - w->first, .ends = true, .is_prompt = w->is_prompt,
                     .took = { .rows = (w->end - w->first) * r->n_seqs, .logits = w->logits } };

    if (p->n && (e.took.rows > (w->is_prompt ? prompt_rows_left(p) : p->budget) || e.took.logits > p->logits))
        return true;
    if (!grow_uncut(s, r, a, w))
        return false;
    plan_add(p, &e);
    if (r->turn.share)
        rg_shares_serve(&s->shares, r->turn.share, e.took.rows);
    e.beside = true;
    e.took = (rg_row_budget){ 0 };
    if (a->beside)
        plan_add(p, &e);
    return true;
}

/* Plan rows that may be cut.  False: there is no state for them. */
static bool plan_cut(rg_scheduler *s, rg_planning *p, rg_request *r, int i, const rg_work_rows *w)
{
    int32_t n = rows_to_read(p, r, w->first, rows_given(p, rows_wanted(s, r, i, w)));

    n = grow_some(s, r, r->samples[i].seq, !p->n && n < w->block ? w->block : n);
    n -= n % w->block;
    if (n)
        plan_prompt_rows(s, p, r, i, n);
    return n;
}

/* Plan a sample that is not decoding.  False: no room, and those after it shall not take what there is. */
static bool plan_prompt(rg_scheduler *s, rg_planning *p, rg_request *r, int i)
{
    bool first = p->n == 0;

    do {
        if (!rg_scheduler_activate(s, r, i, first && !rg_scheduler_may_clear(s, r)))
            continue;
        if (rg_sample_is_decoding(r, i) && rows_reserved(s, r, i)) { /* it has come back */
            plan_answer(s, p, r, i, first);
            return true;
        }
        rg_work_rows w = r->work->rows(r, i);
        if (w.block ? plan_cut(s, p, r, i, &w) : plan_uncut(s, p, r, i, &w))
            return true;
    } while (rg_scheduler_clear_background(s, r) ||
             (first ? rg_scheduler_make_room(s, r, i) : rg_scheduler_claim_state(s, r, i)));
    return false;
}

static bool plan_prompts_of(rg_scheduler *s, rg_planning *p, rg_request *r)
{
    for (int i = 0; i < r->n_branches && prompt_rows_left(p) > 0; i++) {
        const rg_sample *a = &r->samples[i];

        if (!r->work->is_open(r, i) || r->work->waits_to_fork(r, i) || rg_scheduler_is_planned(s, r, i))
            continue;
        if (!a->seq && p->n > 0 && !rg_scheduler_may_have_seqs(s, r))
            continue; /* it waits for a sequence; others need not wait for that */
        if (!plan_prompt(s, p, r, i))
            return false;
    }
    return true;
}

/* ---- waiting requests begin -------------------------------------------------------------------------------------- */

/* The waiting request r gets a state and runs; if none does, it need not have room for more than a row. */
static bool let_in(rg_scheduler *s, rg_request *r)
{
    bool is_ahead = rg_fair_is_ahead(s->fair);
    int i = 0;

    while (!r->work->is_open(r, i))
        i++;
    while (!rg_scheduler_activate(s, r, i, !s->running.n))
        if (!rg_scheduler_clear_background(s, r) && !rg_scheduler_claim_state(s, r, i))
            return false;
    if (s->held_up && s->held_up != r)
        s->held_up->turn.n_passed++;
    r->turn.was_ahead = is_ahead;
    rg_fair_take(s->fair, r);
    if (!r->counts.admitted_ns) {
        rg_applicant who = rg_request_applicant(r);

        atomic_store(&r->counts.admitted_ns, rg_now_ns());
        s->n_prompt_rows += (uint64_t)r->params.n_prompt;
        rg_admission_begin(s->admission, &who);
    }
    rg_request_forked(r);
    rg_scheduler_unlink(s, r);
    rg_scheduler_link(s, r, RG_LIST_RUNNING);
    return true;
}

/* Which waiting requests may begin in this step. */
typedef struct beginning {
    const rg_scheduler *s;
    const rg_request *before; /* only of tenants that were given no more rows of prompts than this one's; NULL: all */
} beginning;

static bool may_begin(void *arg, const rg_request *r)
{
    const beginning *b = arg;

    if (b->before && (!r->turn.share || r->turn.share == b->before->turn.share ||
                      r->turn.share->served > b->before->turn.share->served))
        return false;
    return !rg_scheduler_waits_to_fork(b->s, r) && rg_scheduler_may_pass(b->s, r) &&
           rg_scheduler_may_have_seqs(b->s, r);
}

/* The next to begin; NULL: there is none.  While nothing is planned, somebody has to. */
static rg_request *next_waiting(rg_scheduler *s, const rg_planning *p, const rg_request *before)
{
    rg_request *r = rg_fair_first_of(s->fair, may_begin, &(beginning){ s, before });

    if (before)
        return r && r->turn.share ? r : NULL;
    return r || p->n ? r : rg_fair_first(s->fair);
}

/* Plan what there is room for of a request's prompts, after it was let in if it waits.  False: it found none. */
static bool plan_or_block(rg_scheduler *s, rg_planning *p, rg_request *r)
{
    if ((r->turn.state == RG_LIST_RUNNING || let_in(s, r)) && plan_prompts_of(s, p, r))
        return true;
    rg_scheduler_block(s, r);
    return false;
}

/* Take requests from the queue as long as there is room: all, or only those on burst credit.  False: some find none. */
static bool admit_waiting(rg_scheduler *s, rg_planning *p, bool background, bool only_ahead)
{
    bool room = true;
    rg_request *r;

    while (prompt_rows_left(p) > 0 && (r = next_waiting(s, p, NULL)) && r->params.background == background &&
           (!only_ahead || rg_fair_is_ahead(s->fair)))
        if (!plan_or_block(s, p, r)) {
            room = false;
            if (background || !p->n)
                break;
        }
    return room;
}

/* ---- how many rows prompts may have ------------------------------------------------------------------------------ */

/* The number of foreground requests whose prompts wait for rows, and where the first of all prompts goes on; -1: there
 * is none. */
static int32_t count_prompts(const rg_scheduler *s, int64_t *first_at)
{
    int32_t n = 0;

    *first_at = s->waiting.n ? 0 : -1;
    for (const rg_request *r = s->running.tail; r; r = r->turn.prev) {
        int i = 0;

        while (i < r->n_branches && (!r->work->is_open(r, i) || rg_sample_is_decoding(r, i)))
            i++;
        if (i == r->n_branches)
            continue;
        *first_at = r->samples[i].seq ? r->samples[i].seq->length : 0;
        n += !r->params.background;
    }
    for (const rg_request *r = s->waiting.head; r && !r->params.background && n < s->options.max_seqs; r = r->turn.next)
        n++;
    return n;
}

/* By how much the limit options.pace may be exceeded.  A single prompt must not slow down the answers further.  But
 * where many prompts wait, keeping the limit would delay them for long, and every step would read all weights for a few
 * rows: then they are computed together. */
static double pace_of(int32_t n_prompts, int32_t n_decode)
{
    const double most = 2;
    double pace = n_decode > 0 ? 2.0 * (n_prompts - 1) / n_decode : 1;

    return pace < 1 ? 1 : pace < most ? pace : most;
}

/* What the rows of all answers that are being written read and compute. */
static rg_step_load count_answers(const rg_scheduler *s, int32_t most)
{
    rg_step_load load = { 0 };

    for (const rg_request *r = s->running.head; r; r = r->turn.next)
        for (int i = 0; i < r->n_branches && load.n_rows < most; i++)
            if (rg_sample_is_decoding(r, i))
                rg_step_load_add(&load, &s->time->facts, r->samples[i].seq->length, 1, 1);
    return load;
}

/* Limit the rows of prompts so that the step is expected to end in time for options.step_s and options.pace. */
static void limit_prompts(const rg_scheduler *s, const rg_row_budget *budget, rg_planning *p)
{
    const rg_loop_options *o = &s->options;
    int64_t prompt_at;
    int32_t n_prompts = count_prompts(s, &prompt_at);
    double most_s = o->step_s;

    p->prompts = budget->rows;
    if (prompt_at < 0 || (o->step_s <= 0 && o->pace <= 0) || s->time->roofs.bytes_s <= 0)
        return;
    rg_step_load answers = count_answers(s, budget->rows);
    if (o->pace > 0 && answers.n_rows > 0) {
        double kept_s = o->pace * pace_of(n_prompts, answers.n_rows) * rg_step_time_predict(s->time, &answers);
        most_s = most_s > 0 && most_s < kept_s ? most_s : kept_s;
    }
    if (most_s > 0)
        p->prompts = rg_step_time_rows(s->time, &answers, prompt_at, most_s, budget->rows);
    if (p->prompts < MIN_PROMPT_ROWS)
        p->prompts = MIN_PROMPT_ROWS;
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

static int32_t rows_to_go(const rg_request *r)
{
    return r->params.n_prompt - (r->samples[0].seq ? r->samples[0].seq->length : 0);
}

static bool is_shorter(const rg_request *a, const rg_request *b)
{
    return rows_to_go(a) != rows_to_go(b) ? rows_to_go(a) < rows_to_go(b) : a->id < b->id;
}

/* Among the prompts that went ahead, the next longer one than `after`; NULL: the shortest. */
static rg_request *next_ahead(const rg_scheduler *s, const rg_request *after, bool background)
{
    rg_request *next = NULL;

    for (rg_request *r = s->running.head; r; r = r->turn.next)
        if (r->turn.was_ahead && r->params.background == background && (!after || is_shorter(after, r)) &&
            (!next || is_shorter(r, next)))
            next = r;
    return next;
}

/* The next prompt to plan: the first by arrival, of the tenant that was given least, not planned in this step yet. */
static rg_request *next_prompt(const rg_scheduler *s, const rg_planning *p)
{
    rg_request *next = NULL;

    for (rg_request *r = s->running.head; r && r->turn.share; r = r->turn.next)
        if (r->turn.n_prompt_left && r->turn.planned_in != s->n_steps && (!p->n || rg_scheduler_may_pass(s, r)) &&
            (!next || r->turn.share->served < next->turn.share->served))
            next = r;
    return next;
}

/* Plan prompts of the foreground, tenant by tenant: the next is always the one that was given least, be its prompt in
 * hand or its request still waiting.  False: some find no room. */
static bool plan_by_tenants(rg_scheduler *s, rg_planning *p, bool joins)
{
    bool room = true;
    rg_request *r, *waiting;

    while (prompt_rows_left(p) > 0 && (r = next_prompt(s, p))) {
        waiting = joins && s->shares.n > 1 ? next_waiting(s, p, r) : NULL;
        if (waiting) {
            room &= plan_or_block(s, p, waiting);
            continue;
        }
        r->turn.planned_in = s->n_steps;
        room &= plan_or_block(s, p, r);
    }
    return room;
}

/* Plan prompts.  Where the step has answers, new requests on burst credit come first, the shortest of them first; then
 * all prompts by tenant, and requests that wait.  False: some find no room. */
static bool plan_foreground(rg_scheduler *s, rg_planning *p)
{
    bool joins = s->forming || !s->options.static_batching, room;

    if (joins && p->n > 0)
        (void)admit_waiting(s, p, false, true);
    for (rg_request *r = NULL; p->n > 0 && prompt_rows_left(p) > 0 && (r = next_ahead(s, r, false));)
        (void)plan_prompts_of(s, p, r);
    room = plan_by_tenants(s, p, joins);
    if (joins)
        room &= admit_waiting(s, p, false, false);
    return room;
}

static bool plan_background_prompts(rg_scheduler *s, rg_planning *p)
{
    bool joins = s->forming || !s->options.static_batching, room = true;

    for (rg_request *r = s->running.head; r && room && prompt_rows_left(p) > 0; r = r->turn.next)
        if (r->params.background)
            room = plan_prompts_of(s, p, r);
    return room && (!joins || admit_waiting(s, p, true, false));
}

/* Rank all samples; again, if samples forked. */
static void begin_step(rg_scheduler *s, rg_planning *p)
{
    s->planning = p;
    s->n_steps++;
    rg_scheduler_count(s);
    rg_scheduler_rank(s);
    bool forked = false;
    for (rg_request *r = s->running.head; r; r = r->turn.next)
        forked |= r->n_branches > 1 && rg_scheduler_fork(s, r);
    if (forked)
        rg_scheduler_rank(s);
    s->forming |= !s->running.n;
}

int rg_scheduler_next(rg_scheduler *s, const rg_row_budget *budget, rg_planned *plan)
{
    rg_planning p = { .plan = plan, .budget = budget->rows, .logits = budget->logits };
    bool room;

    begin_step(s, &p);
    limit_prompts(s, budget, &p);
    p.kept.rows = rg_shares_prompt_rows(&s->shares, budget->rows);
    p.kept.rows = p.kept.rows < p.prompts ? p.kept.rows : p.prompts;
    p.kept.logits = p.kept.rows > 0 ? 2 : 0;
    plan_answers(s, &p);
    p.kept = (rg_row_budget){ 0 };
    room = plan_foreground(s, &p);
    if (p.left_out)
        plan_answers(s, &p);
    plan_background(s, &p);
    if (room)
        room = plan_background_prompts(s, &p);
    s->forming = room && s->forming && prompt_rows_left(&p) <= 0 && s->n_idle > 0;
    s->planning = NULL;
    RG_ASSERT(p.n > 0 || (!s->running.n && !s->waiting.n));
    return p.n;
}
