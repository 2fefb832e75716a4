/* scheduler_plan.c -- the plan of a step: whose rows it computes, and how many of each.
 *
 * A step is planned for the foreground first, waiting requests included, and then for the background with what is left.
 * The foreground takes state from the background before anything else, so that no foreground request waits for state or
 * is preempted while a background request holds any.
 *
 * Why there is always progress.  The first live sample of the first running request is planned first.  If its state
 * cannot grow, later requests are preempted, then its own later samples swapped out or dropped, until it is alone; and
 * alone it fits, since rg_loop_submit refused what does not.  What is in the plan already is never preempted: decode
 * rows are planned by rank and take state from later requests only; prompts take it from the background while none of
 * that is planned, and from others only while the plan is empty. */
#include "engine/scheduler_inner.h"

#include "base/clock.h"

enum { MIN_PROMPT_ROWS = 4 }; /* of prompts in a step, however many answers are being written: no prompt starves */

typedef struct planning {
    rg_planned *plan;
    int n;
    int32_t budget, prompts; /* rows that are left, and how many of them prompts may have */
    int32_t logits;          /* and of how many the logits may be wanted */
} planning;

/* A prompt needs two rows of logits at least: one that scores an id, and one to draw from. */
static int32_t prompt_rows_left(const planning *p)
{
    int32_t rows = p->prompts < p->budget ? p->prompts : p->budget;

    return p->logits > 1 ? rows : 0;
}

/* Where no answer is being written, a prompt of up to twice the rows that are left is not cut: a second step would read
 * all weights again. */
static int32_t rows_given(const planning *p, int32_t wanted)
{
    int32_t left = prompt_rows_left(p);

    if (wanted <= left || (!p->n && wanted <= p->budget && wanted <= (int64_t)2 * left))
        return wanted;
    return left;
}

/* Of n rows from a position, as many as there is memory for the logits of: beside the row to draw from, three quarters
 * of what is left, so that one prompt does not keep all others out of a step. */
static int32_t rows_scored(const planning *p, const rg_request *r, int32_t at, int32_t n)
{
    rg_rows rows = rg_request_rows_to_score(r, at, n);
    int32_t most = p->logits - 1 - (p->logits - 1) / 4;

    return rows.n > most ? rows.first + most : n;
}

static void plan_add(planning *p, rg_request *r, int i, int32_t n_rows)
{
    const rg_sample *a = &r->samples[i];

    p->logits -= rg_request_rows_to_score(r, a->seq->length, n_rows).n + 1;
    p->plan[p->n++] = (rg_planned){
        .request = r, .sample = i, .n_rows = n_rows, .ends = a->seq->length + n_rows == rg_sample_target(r, a)
    };
    p->budget -= n_rows;
}

static bool is_planned(const planning *p, const rg_request *r, int i)
{
    for (int k = 0; k < p->n; k++)
        if (p->plan[k].request == r && p->plan[k].sample == i)
            return true;
    return false;
}

/* ---- answers that are being written ------------------------------------------------------------------------------ */

static bool is_decoding(const rg_request *r, int i)
{
    const rg_sample *a = &r->samples[i];

    return rg_sample_is_active(a) && rg_branch_is_open(r, i) && !rg_branch_is_to_fork(r, i) && !a->fill &&
           !r->is_whole && rg_sample_target(r, a) - a->seq->length == 1;
}

/* Rows kept free for the draft of an answer that is being written. */
static int32_t rows_reserved(const rg_scheduler *s, const rg_request *r, int i)
{
    return rg_loop_fixes_drafts(&s->options) && r->max_draft && r->samples[i].n_output ? s->options.max_draft : 0;
}

/* Plan the next id of an answer that is being written, with room for its draft if that is reserved. */
static void plan_answer(rg_scheduler *s, planning *p, rg_request *r, int i, bool may_preempt)
{
    rg_seq *q = r->samples[i].seq;
    int32_t reserved = rows_reserved(s, r, i);
    bool grown;

    if (reserved >= p->budget || reserved >= p->logits)
        return;
    do
        grown = rg_seq_grow(s->states, q, q->length + 1 + reserved);
    while (!grown && may_preempt && rg_scheduler_make_room(s, r, i));
    if (!grown && reserved && !p->n && r == s->running.head) /* alone it has no room for a draft, and never had any */
        grown = rg_seq_grow(s->states, q, q->length + 1);
    if (!grown)
        return;
    plan_add(p, r, i, 1);
    p->budget -= reserved;
    p->logits -= reserved;
}

static void plan_decode(rg_scheduler *s, planning *p, bool background)
{
    for (rg_request *r = s->running.head; r && p->budget > 0 && p->logits > 0; r = r->next)
        for (int i = 0; r->params.background == background && i < r->n_branches && p->budget > 0 && p->logits > 0; i++)
            if (is_decoding(r, i))
                plan_answer(s, p, r, i, true);
}

/* ---- prompts and answers that are filled in ---------------------------------------------------------------------- */

static bool has_unstarted(const rg_request *r, int after)
{
    for (int i = after + 1; i < r->n_branches; i++)
        if (r->beams ? rg_branch_is_to_fork(r, i) : rg_sample_is_unstarted(&r->samples[i]))
            return true;
    return false;
}

/* True if another sample of r is computing the prompt, so that sample i can fork from it. */
static bool waits_for_fork(const rg_request *r, int i)
{
    if (r->beams)
        return rg_branch_is_to_fork(r, i);
    if (!rg_sample_is_unstarted(&r->samples[i]) || r->samples[i].fill)
        return false;
    for (int j = 0; j < i; j++) {
        const rg_sample *a = &r->samples[j];

        if (rg_sample_is_live(a) && a->seq && !a->n_output && a->seq->committed < r->params.n_prompt)
            return true;
    }
    return false;
}

/* Rows that sample i would compute next: up to the next id, or to a snapshot, or to where others fork.  Before a draft
 * with rows of its own, up to the answer's last id. */
static int32_t rows_wanted(const rg_scheduler *s, const rg_request *r, int i)
{
    const rg_sample *a = &r->samples[i];
    int32_t at = a->seq->length, before_draft = rows_reserved(s, r, i) > 0;
    int32_t end = a->fill ? a->fill->d.from : rg_sample_target(r, a) - before_draft;
    int32_t n_prompt = r->params.n_prompt, fork_at = r->beams ? rg_branch_fork_at(r) : n_prompt - 1, n, stop;

    if (!a->fill && at < fork_at && has_unstarted(r, i))
        end = fork_at;
    n = at < n_prompt ? n_prompt : INT32_MAX;
    stop = rg_states_next_stop(s->states, at, n);
    return (stop < n && stop < end ? stop : end) - at;
}

/* As many rows as there is room for; 0: none. */
static int32_t grow_some(rg_scheduler *s, const rg_request *r, rg_seq *q, int32_t n_rows)
{
    while (n_rows > 0 && !rg_seq_grow(s->states, q, q->length + n_rows))
        n_rows = rg_scheduler_clear_background(s, r) ? n_rows : n_rows / 2;
    return n_rows;
}

/* True if the sample's next rows are an evaluation of its answer, and not blocks of its model that are final. */
static bool is_to_evaluate(const rg_sample *a)
{
    return a->fill && (rg_fill_is_scratch(a->fill) || a->seq->length == a->fill->d.from);
}

static bool grow_fill(rg_scheduler *s, const rg_sample *a)
{
    const rg_fill *f = a->fill;

    if (!rg_fill_is_scratch(f))
        return rg_seq_grow(s->states, a->seq, f->e.end);
    if (!rg_seq_grow(s->states, a->seq, f->d.n) || (f->without && !rg_seq_grow(s->states, f->without, f->d.n)))
        return false;
    rg_seq_scratch_from(s->states, a->seq, f->e.first);
    if (f->without)
        rg_seq_scratch_from(s->states, f->without, f->e.first);
    return true;
}

/* Plan an evaluation, whose rows are never cut: it waits for a step with room for all of them.  The first of a step
 * always has it.  False: there is no state for it. */
static bool plan_evaluation(rg_scheduler *s, planning *p, rg_request *r, int i)
{
    const rg_fill *f = r->samples[i].fill;
    int32_t n = f->e.end - f->e.first;

    if (p->n && (rg_fill_rows(f) > p->budget || rg_fill_logits(f) > p->logits))
        return true;
    if (!grow_fill(s, &r->samples[i]))
        return false;
    p->logits -= rg_fill_logits(f);
    p->budget -= rg_fill_rows(f);
    p->plan[p->n++] = (rg_planned){ .request = r, .sample = i, .n_rows = n, .ends = true };
    if (f->without)
        p->plan[p->n++] = (rg_planned){ .request = r, .sample = i, .n_rows = n, .ends = true, .without = true };
    return true;
}

/* Plan a prompt that is computed whole: it waits for a step with room for all of its rows, which the first of a step
 * always has.  False: there is no state for it. */
static bool plan_whole(rg_scheduler *s, planning *p, rg_request *r)
{
    int32_t n = r->params.n_prompt;

    if (p->n && n > prompt_rows_left(p))
        return true;
    if (!rg_seq_grow(s->states, r->samples[0].seq, n))
        return false;
    plan_add(p, r, 0, n);
    p->prompts -= n;
    return true;
}

/* Plan a sample that is not decoding.  False: no room, and those after it shall not take what there is. */
static bool plan_prompt(rg_scheduler *s, planning *p, rg_request *r, int i)
{
    int32_t block = r->samples[i].fill && !rg_fill_is_scratch(r->samples[i].fill) ? r->samples[i].fill->d.sees : 1;
    bool first = p->n == 0;

    do {
        int32_t n_rows;

        if (!rg_scheduler_activate(s, r, i, first && !rg_scheduler_may_clear(s, r)))
            continue;
        if (is_decoding(r, i) && rows_reserved(s, r, i)) { /* it has come back */
            plan_answer(s, p, r, i, first);
            return true;
        }
        if (is_to_evaluate(&r->samples[i])) {
            if (plan_evaluation(s, p, r, i))
                return true;
            continue;
        }
        if (r->is_whole) {
            if (plan_whole(s, p, r))
                return true;
            continue;
        }
        n_rows = rows_scored(p, r, r->samples[i].seq->length, rows_given(p, rows_wanted(s, r, i)));
        n_rows = grow_some(s, r, r->samples[i].seq, !p->n && n_rows < block ? block : n_rows);
        n_rows -= n_rows % block;
        if (!n_rows)
            continue;
        plan_add(p, r, i, n_rows);
        p->prompts -= n_rows;
        return true;
    } while (rg_scheduler_clear_background(s, r) || (first && rg_scheduler_make_room(s, r, i)));
    return false;
}

static bool plan_prompts_of(rg_scheduler *s, planning *p, rg_request *r)
{
    for (int i = 0; i < r->n_branches && prompt_rows_left(p) > 0; i++) {
        const rg_sample *a = &r->samples[i];

        if (!rg_branch_is_open(r, i) || waits_for_fork(r, i) || is_planned(p, r, i))
            continue;
        if (!a->seq && !s->n_idle && p->n > 0 && !rg_scheduler_may_clear(s, r))
            continue; /* it waits for a sequence; others need not wait for that */
        if (!plan_prompt(s, p, r, i))
            return false;
    }
    return true;
}

/* ---- waiting requests begin -------------------------------------------------------------------------------------- */

/* The waiting request r gets a state and runs; if the plan is empty, it need not have room for more than a row. */
static bool let_in(rg_scheduler *s, const planning *p, rg_request *r)
{
    int i = 0;

    while (!rg_branch_is_open(r, i))
        i++;
    while (!rg_scheduler_activate(s, r, i, p->n == 0 && !rg_scheduler_may_clear(s, r)))
        if (!rg_scheduler_clear_background(s, r))
            return false;
    r->was_ahead = rg_fair_is_ahead(s->fair);
    rg_fair_take(s->fair, r);
    if (!r->admitted_ns) {
        rg_applicant who = rg_request_applicant(r);

        atomic_store(&r->admitted_ns, rg_now_ns());
        s->n_prompt_rows += (uint64_t)r->params.n_prompt;
        rg_admission_begin(s->admission, &who);
    }
    rg_scheduler_unlink(s, r);
    rg_scheduler_link(s, r, RG_LIST_RUNNING);
    return true;
}

/* Take requests from the queue as long as there is room: all, or only those on burst credit.  False: there is none. */
static bool admit_waiting(rg_scheduler *s, planning *p, bool background, bool only_ahead)
{
    rg_request *r;

    while (prompt_rows_left(p) > 0 && (r = rg_fair_first(s->fair)) && r->params.background == background &&
           (!only_ahead || rg_fair_is_ahead(s->fair)))
        if (!let_in(s, p, r) || !plan_prompts_of(s, p, r))
            return false;
    return true;
}

/* ---- how many rows prompts may have ------------------------------------------------------------------------------ */

/* The number of foreground requests whose prompts wait for rows, and where the first of all prompts goes on; -1: there
 * is none. */
static int32_t count_prompts(const rg_scheduler *s, int64_t *first_at)
{
    int32_t n = 0;

    *first_at = s->waiting.n ? 0 : -1;
    for (const rg_request *r = s->running.tail; r; r = r->prev) {
        int i = 0;

        while (i < r->n_branches && (!rg_branch_is_open(r, i) || is_decoding(r, i)))
            i++;
        if (i == r->n_branches)
            continue;
        *first_at = r->samples[i].seq ? r->samples[i].seq->length : 0;
        n += !r->params.background;
    }
    for (const rg_request *r = s->waiting.head; r && !r->params.background && n < s->options.max_seqs; r = r->next)
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

    for (const rg_request *r = s->running.head; r; r = r->next)
        for (int i = 0; i < r->n_branches && load.n_rows < most; i++)
            if (is_decoding(r, i))
                rg_step_load_add(&load, &s->time->facts, r->samples[i].seq->length, 1, 1);
    return load;
}

/* Limit the rows of prompts so that the step is expected to end in time for options.step_s and options.pace. */
static void limit_prompts(const rg_scheduler *s, const rg_row_budget *budget, planning *p)
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

/* Of the prompts in hand that went ahead, the shortest that is longer than `after` (NULL: than none). */
static rg_request *next_ahead(const rg_scheduler *s, const rg_request *after, bool background)
{
    rg_request *next = NULL;

    for (rg_request *r = s->running.head; r; r = r->next)
        if (r->was_ahead && r->params.background == background && (!after || is_shorter(after, r)) &&
            (!next || is_shorter(r, next)))
            next = r;
    return next;
}

/* Plan prompts of the foreground, or of the background.  Beside answers, requests on burst credit are taken before the
 * prompts that are being computed go on, and of those taken so the shortest goes first.  False: some find no room. */
static bool plan_part(rg_scheduler *s, planning *p, bool background)
{
    bool joins = s->forming || !s->options.static_batching, room = true;

    if (joins && p->n > 0)
        (void)admit_waiting(s, p, background, true);
    for (rg_request *r = NULL; p->n > 0 && prompt_rows_left(p) > 0 && (r = next_ahead(s, r, background));)
        (void)plan_prompts_of(s, p, r);
    for (rg_request *r = s->running.head; r && room && prompt_rows_left(p) > 0; r = r->next)
        if (r->params.background == background)
            room = plan_prompts_of(s, p, r);
    if (room && joins)
        room = admit_waiting(s, p, background, false);
    return room;
}

int rg_scheduler_next(rg_scheduler *s, const rg_row_budget *budget, rg_planned *plan)
{
    planning p = { .plan = plan, .budget = budget->rows, .logits = budget->logits };
    bool room;

    for (rg_request *r = s->running.head; r; r = r->next)
        if (r->n_branches > 1)
            rg_scheduler_fork(s, r);
    s->forming |= !s->running.n;
    plan_decode(s, &p, false);
    limit_prompts(s, budget, &p);
    room = plan_part(s, &p, false);
    plan_decode(s, &p, true);
    if (room)
        room = plan_part(s, &p, true);
    s->forming = room && s->forming && prompt_rows_left(&p) <= 0 && s->n_idle > 0;
    RG_ASSERT(p.n > 0 || (!s->running.n && !s->waiting.n));
    return p.n;
}
