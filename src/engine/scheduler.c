/* scheduler.c -- two lists of requests by rank, a fixed stock of sequences, and the plan of a step.
 *
 * Rank is by arrival, with all background requests behind all others, which are the foreground.  A step is planned for
 * the foreground first, waiting requests included, and then for the background with what is left.  The foreground takes
 * state from the background before anything else, so that no foreground request waits for state or is preempted while a
 * background request holds any.
 *
 * Why there is always progress.  The first live sample of the first running request is planned first.  If its state
 * cannot grow, later requests are preempted, then its own later samples swapped out or dropped, until it is alone; and
 * alone it fits, since rg_loop_submit refused what does not.  What is in the plan already is never preempted: decode
 * rows are planned by rank and take state from later requests only; prompts take it from the background while none of
 * that is planned, and from others only while the plan is empty.
 *
 * Samples share their prompt: the first computes all of it but the last position, the others fork there.  A sample that
 * finds no sequence or no room at that moment starts later by itself, like a preempted one: from the longest cached
 * prefix.  Beams (branch.h) always fork, and hold all that they need or nothing: they are computed again after a
 * preemption, since copies that were swapped in would share no block. */
#include "engine/scheduler.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/branch.h"
#include "engine/fair.h"

enum { ELSEWHERE, WAITING, RUNNING }; /* rg_request.state */
enum {
    MIN_PROMPT_ROWS = 4,      /* of prompts in a step, however many answers are being written: no prompt starves */
    SWAP_FROM = 4 * RG_BLOCK, /* positions; where the machine was not measured */
};

typedef struct queue {
    rg_request *head, *tail;
    int32_t n;
} queue;

struct rg_scheduler {
    rg_states *states;
    rg_admission *admission;
    const rg_step_time *time;
    rg_loop_options options;
    queue waiting, running; /* by rank */
    rg_fair *fair;          /* the order of the waiting requests */
    bool forming;           /* static batching: requests may still join the running ones */
    rg_seq **seqs; /* all of them */
    rg_seq **idle; /* stack of those that no sample has */
    int32_t n_seqs, n_idle;
    uint64_t n_preempted, n_cached, n_prompt_rows;
    int64_t n_waiting_ids;
};

rg_scheduler *rg_scheduler_new(rg_states *states, rg_admission *admission, const rg_step_time *time,
                               const rg_loop_options *options, rg_error *err)
{
    rg_scheduler *s = rg_zalloc(sizeof *s);
    size_t n = (size_t)options->max_seqs;

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->states = states;
    s->admission = admission;
    s->time = time;
    s->options = *options;
    s->seqs = rg_array(n, sizeof(rg_seq *));
    s->idle = rg_array(n, sizeof(rg_seq *));
    if (!s->seqs || !s->idle) {
        rg_fail_memory(err, n * sizeof(rg_seq *));
        goto fail;
    }
    s->fair = rg_fair_new(rg_admission_most(options->max_waiting) + options->max_seqs, err);
    if (!s->fair)
        goto fail;
    for (size_t i = 0; i < n; i++) {
        rg_seq *q = rg_seq_new(states, options->max_seq_len + options->max_draft, 0, err);

        if (!q)
            goto fail;
        s->seqs[s->n_seqs++] = q;
        s->idle[s->n_idle++] = q;
    }
    return s;

fail:
    rg_scheduler_free(s);
    return NULL;
}

void rg_scheduler_free(rg_scheduler *s)
{
    if (!s)
        return;
    rg_scheduler_reap(s, true);
    rg_fair_free(s->fair);
    for (int32_t i = 0; i < s->n_seqs; i++)
        rg_seq_free(s->states, s->seqs[i]);
    rg_free(s->seqs);
    rg_free(s->idle);
    rg_free(s);
}

/* ---- the lists --------------------------------------------------------------------------------------------------- */

static queue *queue_of(rg_scheduler *s, const rg_request *r)
{
    RG_ASSERT(r->state == WAITING || r->state == RUNNING);
    return r->state == WAITING ? &s->waiting : &s->running;
}

static void unlink_request(rg_scheduler *s, rg_request *r)
{
    queue *q = queue_of(s, r);

    *(r->prev ? &r->prev->next : &q->head) = r->next;
    *(r->next ? &r->next->prev : &q->tail) = r->prev;
    r->next = r->prev = NULL;
    if (r->state == WAITING)
        s->n_waiting_ids -= r->params.n_prompt;
    r->state = ELSEWHERE;
    q->n--;
}

/* By rank: the background is behind all others. */
static bool comes_before(const rg_request *a, const rg_request *b)
{
    if (a->params.background != b->params.background)
        return b->params.background;
    return a->id < b->id;
}

/* Into a list at its place. */
static void link_request(rg_scheduler *s, rg_request *r, int state)
{
    queue *q = state == WAITING ? &s->waiting : &s->running;
    rg_request *after = q->tail;

    while (after && comes_before(r, after))
        after = after->prev;
    r->prev = after;
    r->next = after ? after->next : q->head;
    *(r->prev ? &r->prev->next : &q->head) = r;
    *(r->next ? &r->next->prev : &q->tail) = r;
    r->state = state;
    q->n++;
    if (state == WAITING)
        s->n_waiting_ids += r->params.n_prompt;
}

static void enqueue(rg_scheduler *s, rg_request *r)
{
    link_request(s, r, WAITING);
    rg_fair_add(s->fair, r);
}

void rg_scheduler_add(rg_scheduler *s, rg_request *r)
{
    enqueue(s, r);
}

int32_t rg_scheduler_n_running(const rg_scheduler *s)
{
    return s->running.n;
}

int64_t rg_scheduler_n_waiting_ids(const rg_scheduler *s)
{
    return s->n_waiting_ids;
}

uint64_t rg_scheduler_n_prompt_rows(const rg_scheduler *s)
{
    return s->n_prompt_rows;
}

int32_t rg_scheduler_n_waiting(const rg_scheduler *s)
{
    return s->waiting.n;
}

bool rg_scheduler_some_wait(const rg_scheduler *s)
{
    return s->waiting.head && !s->waiting.head->params.background;
}

rg_request *rg_scheduler_running(const rg_scheduler *s, int i)
{
    rg_request *r = s->running.head;

    while (r && i-- > 0)
        r = r->next;
    return r;
}

uint64_t rg_scheduler_n_preempted(const rg_scheduler *s)
{
    return s->n_preempted;
}

uint64_t rg_scheduler_n_cached(const rg_scheduler *s)
{
    return s->n_cached;
}

/* ---- samples and their states ------------------------------------------------------------------------------------ */

static bool is_live(const rg_sample *a)
{
    return atomic_load_explicit(&a->finish, memory_order_relaxed) == RG_RUNNING;
}

static bool is_active(const rg_sample *a)
{
    return is_live(a) && a->seq && !a->seq->swapped;
}

/* True if it has neither a state nor any output: it may fork from another sample that has no output either. */
static bool is_unstarted(const rg_sample *a)
{
    return is_live(a) && !a->seq && !a->n_output;
}

/* Positions that must have state before the next id can be drawn. */
static int32_t target_of(const rg_request *r, const rg_sample *a)
{
    if (a->fill)
        return a->fill->d.n;
    return r->params.n_prompt + a->n_output;
}

void rg_scheduler_drop(rg_scheduler *s, rg_request *r, int i)
{
    rg_sample *a = &r->samples[i];
    bool told = r->beams && r->beams->n_ordered >= 0; /* the sample's ids are those of an answer, and not of the beam */

    if (!a->seq)
        return;
    rg_seq_release(s->states, a->seq, told ? NULL : rg_request_tokens(r, i));
    s->idle[s->n_idle++] = a->seq;
    a->seq = NULL;
    if (!a->fill)
        return;
    rg_fill_lose_state(a->fill);
    if (a->fill->without) {
        rg_seq_release(s->states, a->fill->without, NULL);
        s->idle[s->n_idle++] = a->fill->without;
        a->fill->without = NULL;
    }
}

void rg_scheduler_remove(rg_scheduler *s, rg_request *r)
{
    rg_applicant who = rg_request_applicant(r);

    for (int i = 0; i < r->n_branches; i++)
        rg_scheduler_drop(s, r, i);
    if (r->state == WAITING)
        rg_fair_remove(s->fair, r);
    if (!r->admitted_ns)
        rg_admission_leave(s->admission, &who);
    unlink_request(s, r);
    rg_request_unref(r);
}

static void drop_beams(rg_scheduler *s, rg_request *r)
{
    for (int i = 0; i < r->n_branches; i++)
        rg_scheduler_drop(s, r, i);
    rg_branch_lose(r);
}

/* Why a request is to end now; RG_RUNNING: it is not. */
static rg_finish ends_now(const rg_request *r, uint64_t now)
{
    if (atomic_load_explicit(&r->cancelled, memory_order_relaxed))
        return RG_FINISH_CANCELLED;
    if (r->no_weights)
        return RG_FINISH_NO_WEIGHTS;
    if (atomic_load_explicit(&r->not_finite, memory_order_relaxed))
        return RG_FINISH_NOT_FINITE;
    return r->deadline_ns && now >= r->deadline_ns ? RG_FINISH_DEADLINE : RG_RUNNING;
}

static int reap_queue(rg_scheduler *s, queue *q, bool all)
{
    uint64_t now = q->n ? rg_now_ns() : 0;
    int n = 0;

    for (rg_request *r = q->head, *next; r; r = next) {
        int n_samples = r->n_ending;
        rg_finish why = all ? RG_FINISH_CANCELLED : ends_now(r, now);

        next = r->next;
        if (r->beams && (why == RG_FINISH_CANCELLED || why == RG_FINISH_DEADLINE))
            rg_request_tell(r, why);
        for (int i = 0; i < n_samples && why != RG_RUNNING; i++)
            rg_request_end(r, i, why);
        if (atomic_load(&r->n_ended) < n_samples)
            continue;
        if (rg_request_draws(r))
            rg_fair_learn(s->fair, r->samples[0].n_output);
        rg_scheduler_remove(s, r);
        n++;
    }
    return n;
}

int rg_scheduler_reap(rg_scheduler *s, bool all)
{
    return reap_queue(s, &s->running, all) + reap_queue(s, &s->waiting, all);
}

/* True if the state of so many positions should be copied out, and in again later. */
static bool swaps(const rg_scheduler *s, int32_t n, rg_preempt how)
{
    if (how == RG_PREEMPT_AUTO && s->time->roofs.bytes_s > 0)
        return rg_step_time_swap_is_quicker(s->time, n, s->options.max_rows);
    return how == RG_PREEMPT_SWAP || (how == RG_PREEMPT_AUTO && n >= SWAP_FROM);
}

/* A sample loses its state: swapped out to plain memory, or dropped, to be computed again. */
static void swap_or_drop(rg_scheduler *s, rg_request *r, int i, rg_preempt how)
{
    rg_seq *q = r->samples[i].seq;

    if (q->scratch || !swaps(s, q->committed, how) || !rg_seq_swap_out(s->states, q))
        rg_scheduler_drop(s, r, i);
}

bool rg_scheduler_preempt(rg_scheduler *s, rg_request *r, rg_preempt how)
{
    if (!r || r->state != RUNNING)
        return false;
    if (r->beams)
        drop_beams(s, r);
    for (int i = r->n_branches - 1; i >= 0; i--)
        if (is_active(&r->samples[i]))
            swap_or_drop(s, r, i, how);
    unlink_request(s, r);
    enqueue(s, r);
    atomic_fetch_add_explicit(&r->n_preempted, 1, memory_order_relaxed);
    s->n_preempted++;
    return true;
}

/* True if a background request holds state that the foreground request r may take. */
static bool may_clear(const rg_scheduler *s, const rg_request *r)
{
    return !r->params.background && s->running.tail && s->running.tail->params.background;
}

/* Take the state of the last background request.  False: there is none. */
static bool clear_background(rg_scheduler *s, const rg_request *r)
{
    return may_clear(s, r) && rg_scheduler_preempt(s, s->running.tail, s->options.preempt);
}

/* Take state from a sample that ranks behind sample i of the running request r: the last request's, or r's own last
 * sample.  False: there is none, or r has beams, which go on together. */
static bool make_room(rg_scheduler *s, rg_request *r, int i)
{
    if (s->running.tail != r)
        return rg_scheduler_preempt(s, s->running.tail, s->options.preempt);
    for (int j = r->n_branches - 1; j > i && !r->beams; j--) {
        if (!is_active(&r->samples[j]))
            continue;
        swap_or_drop(s, r, j, s->options.preempt);
        return true;
    }
    return false;
}

/* An idle sequence.  If all are taken and r must have one, a waiting request that is swapped out computes again; one of
 * the background does so in any case. */
static rg_seq *take_seq(rg_scheduler *s, const rg_request *r, bool must)
{
    for (rg_request *w = s->waiting.tail; !s->n_idle && w && w != r; w = w->prev) {
        if (!must && (r->params.background || !w->params.background))
            break;
        for (int i = 0; i < w->n_branches; i++)
            rg_scheduler_drop(s, w, i);
    }
    return s->n_idle ? s->idle[--s->n_idle] : NULL;
}

/* True if there is room for the sample's state up to its next id and a block beyond; of beams, for that of all.  A
 * request must have that to start running, or it would be preempted at once. */
static bool has_room(const rg_scheduler *s, const rg_request *r, const rg_sample *a)
{
    int32_t most = r->params.n_prompt + r->params.max_tokens, upto = target_of(r, a) + RG_BLOCK;
    rg_forks forks = { 0 };

    if (a->fill || r->is_whole)
        return rg_states_has_room(s->states, a->seq, rg_request_positions(r), (rg_forks){ 0 });
    if (r->beams)
        forks = (rg_forks){ .n = r->n_branches, .shared = r->params.n_prompt - 1 };
    return rg_states_has_room(s->states, a->seq, upto < most ? upto : most, forks);
}

/* Ids that a cached prefix may have: those that no later step changes, of a sequence that keeps what it computed. */
static int32_t ids_to_match(const rg_request *r, const rg_sample *a)
{
    if (!a->fill)
        return rg_request_cacheable(r, target_of(r, a));
    return rg_fill_is_scratch(a->fill) ? 0 : rg_request_cacheable(r, a->fill->d.from);
}

/* What a filled-in answer's new sequence needs besides.  False: there is no second sequence for guidance. */
static bool begin_fill(rg_scheduler *s, const rg_request *r, rg_sample *a, bool must)
{
    if (!rg_fill_is_scratch(a->fill))
        return true;
    if (rg_fill_is_guided(a->fill)) {
        a->fill->without = take_seq(s, r, must);
        if (!a->fill->without)
            return false;
        a->fill->without->rope = a->seq->rope;
        a->fill->without->adapter = a->seq->adapter;
        rg_seq_scratch(a->fill->without);
    }
    rg_seq_scratch(a->seq);
    return true;
}

/* Let sample i, which has an empty sequence, start from the longest cached prefix of its first n_most ids. */
static int32_t match_prefix(rg_scheduler *s, rg_request *r, int i, int32_t n_most, rg_uncached *uncached)
{
    rg_seq *q = r->samples[i].seq;

    *uncached = RG_UNCACHED_OFF;
    q->rope = r->rope;
    q->adapter = r->adapter;
    q->salt = r->salt ^ (s->options.share_prefixes ? 0 : r->tenant * 0x9e3779b97f4a7c15u);
    if (r->is_whole)
        rg_seq_scratch(q);
    return n_most ? rg_seq_match(s->states, q, rg_request_tokens(r, i), n_most, uncached) : 0;
}

static void note_cached(rg_scheduler *s, rg_request *r, int32_t n_found, rg_uncached uncached)
{
    s->n_cached += (uint64_t)n_found;
    if (!r->admitted_ns) {
        r->n_cached = n_found;
        r->uncached = (int)uncached;
    }
}

/* Give a request with beams all its sequences, and the first beam a state that can grow. */
static bool activate_beams(rg_scheduler *s, rg_request *r, bool must)
{
    int first = rg_branch_first(r);
    rg_sample *a = &r->samples[first];
    rg_uncached uncached;
    int32_t n_found, n_most = target_of(r, a), fork_at = rg_branch_fork_at(r);

    if (a->seq)
        return true;
    for (int i = 0; i < r->n_branches; i++) {
        r->samples[i].seq = take_seq(s, r, must);
        if (!r->samples[i].seq) {
            drop_beams(s, r);
            return false;
        }
    }
    if (r->beams->n_running > 1 && fork_at + 1 < n_most)
        n_most = fork_at + 1; /* a match is shorter: the others can fork where it ends */
    n_found = match_prefix(s, r, first, rg_request_cacheable(r, n_most), &uncached);
    if (!must && !has_room(s, r, a)) {
        drop_beams(s, r);
        return false;
    }
    note_cached(s, r, n_found, uncached);
    rg_branch_fork(s->states, r);
    return true;
}

/* Give sample i a state that can grow: from swap, or from the longest cached prefix.  must: do not wait for more
 * room. */
static bool activate(rg_scheduler *s, rg_request *r, int i, bool must)
{
    rg_sample *a = &r->samples[i];
    rg_uncached uncached;
    int32_t n_found;

    if (r->beams)
        return activate_beams(s, r, must);
    if (is_active(a))
        return true;
    if (a->seq)
        return (must || has_room(s, r, a)) && rg_seq_swap_in(s->states, a->seq);
    a->seq = take_seq(s, r, must);
    if (!a->seq)
        return false;
    n_found = match_prefix(s, r, i, ids_to_match(r, a), &uncached);
    if ((a->fill && !begin_fill(s, r, a, must)) || (!must && !has_room(s, r, a))) {
        rg_scheduler_drop(s, r, i);
        return false;
    }
    note_cached(s, r, n_found, uncached);
    return true;
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

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
        .request = r, .sample = i, .n_rows = n_rows, .ends = a->seq->length + n_rows == target_of(r, a)
    };
    p->budget -= n_rows;
}

/* Where the other samples may fork from this one: before the prompt's last position, which each computes itself. */
static bool is_at_fork(const rg_request *r, const rg_sample *a)
{
    return is_active(a) && !a->fill && !a->n_output && a->seq->committed == r->params.n_prompt - 1;
}

static void fork_samples(rg_scheduler *s, rg_request *r)
{
    int from = 0;

    if (r->beams) {
        rg_branch_fork(s->states, r);
        return;
    }
    while (from < r->n_branches && !is_at_fork(r, &r->samples[from]))
        from++;
    for (int i = from + 1; i < r->n_branches; i++) {
        rg_sample *a = &r->samples[i];

        if (!is_unstarted(a))
            continue;
        while (!(a->seq = take_seq(s, r, false)))
            if (!clear_background(s, r))
                return;
        RG_ASSERT(rg_seq_fork(s->states, r->samples[from].seq, a->seq));
    }
}

static bool has_unstarted(const rg_request *r, int after)
{
    for (int i = after + 1; i < r->n_branches; i++)
        if (r->beams ? rg_branch_is_to_fork(r, i) : is_unstarted(&r->samples[i]))
            return true;
    return false;
}

/* True if another sample of r is computing the prompt, so that sample i can fork from it. */
static bool waits_for_fork(const rg_request *r, int i)
{
    if (r->beams)
        return rg_branch_is_to_fork(r, i);
    if (!is_unstarted(&r->samples[i]) || r->samples[i].fill)
        return false;
    for (int j = 0; j < i; j++) {
        const rg_sample *a = &r->samples[j];

        if (is_live(a) && a->seq && !a->n_output && a->seq->committed < r->params.n_prompt)
            return true;
    }
    return false;
}

/* Rows kept free for the draft of an answer that is being written. */
static int32_t rows_reserved(const rg_scheduler *s, const rg_request *r, int i)
{
    return rg_loop_fixes_drafts(&s->options) && r->max_draft && r->samples[i].n_output ? s->options.max_draft : 0;
}

/* Rows that sample i would compute next: up to the next id, or to a snapshot, or to where others fork.  Before a draft
 * with rows of its own, up to the answer's last id. */
static int32_t rows_wanted(const rg_scheduler *s, const rg_request *r, int i)
{
    const rg_sample *a = &r->samples[i];
    int32_t at = a->seq->length, end = a->fill ? a->fill->d.from : target_of(r, a) - (rows_reserved(s, r, i) > 0);
    int32_t n_prompt = r->params.n_prompt, fork_at = r->beams ? rg_branch_fork_at(r) : n_prompt - 1, n, stop;

    if (!a->fill && at < fork_at && has_unstarted(r, i))
        end = fork_at;
    n = at < n_prompt ? n_prompt : INT32_MAX;
    stop = rg_states_next_stop(s->states, at, n);
    return (stop < n && stop < end ? stop : end) - at;
}

static bool is_decoding(const rg_request *r, int i)
{
    const rg_sample *a = &r->samples[i];

    return is_active(a) && rg_branch_is_open(r, i) && !rg_branch_is_to_fork(r, i) && !a->fill && !r->is_whole &&
           target_of(r, a) - a->seq->length == 1;
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
    while (!grown && may_preempt && make_room(s, r, i));
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

/* As many rows as there is room for; 0: none. */
static int32_t grow_some(rg_scheduler *s, const rg_request *r, rg_seq *q, int32_t n_rows)
{
    while (n_rows > 0 && !rg_seq_grow(s->states, q, q->length + n_rows))
        n_rows = clear_background(s, r) ? n_rows : n_rows / 2;
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

        if (!activate(s, r, i, first && !may_clear(s, r)))
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
    } while (clear_background(s, r) || (first && make_room(s, r, i)));
    return false;
}

static bool is_planned(const planning *p, const rg_request *r, int i)
{
    for (int k = 0; k < p->n; k++)
        if (p->plan[k].request == r && p->plan[k].sample == i)
            return true;
    return false;
}

static bool plan_prompts_of(rg_scheduler *s, planning *p, rg_request *r)
{
    for (int i = 0; i < r->n_branches && prompt_rows_left(p) > 0; i++) {
        const rg_sample *a = &r->samples[i];

        if (!rg_branch_is_open(r, i) || waits_for_fork(r, i) || is_planned(p, r, i))
            continue;
        if (!a->seq && !s->n_idle && p->n > 0 && !may_clear(s, r))
            continue; /* it waits for a sequence; others need not wait for that */
        if (!plan_prompt(s, p, r, i))
            return false;
    }
    return true;
}

/* The waiting request r gets a state and runs; if the plan is empty, it need not have room for more than a row. */
static bool let_in(rg_scheduler *s, const planning *p, rg_request *r)
{
    int i = 0;

    while (!rg_branch_is_open(r, i))
        i++;
    while (!activate(s, r, i, p->n == 0 && !may_clear(s, r)))
        if (!clear_background(s, r))
            return false;
    r->was_ahead = rg_fair_is_ahead(s->fair);
    rg_fair_take(s->fair, r);
    if (!r->admitted_ns) {
        rg_applicant who = rg_request_applicant(r);

        atomic_store(&r->admitted_ns, rg_now_ns());
        s->n_prompt_rows += (uint64_t)r->params.n_prompt;
        rg_admission_begin(s->admission, &who);
    }
    unlink_request(s, r);
    link_request(s, r, RUNNING);
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
            fork_samples(s, r);
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

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static int32_t check_queue(const rg_scheduler *s, const queue *q, int state)
{
    const rg_request *last = NULL;
    int32_t n = 0, n_held = 0;

    for (const rg_request *r = q->head; r; last = r, r = r->next, n++) {
        RG_ASSERT(r->state == state && r->prev == last && (!last || comes_before(last, r)));
        for (int i = 0; i < r->n_branches; i++) {
            const rg_sample *a = &r->samples[i];

            if (!a->seq)
                continue;
            RG_ASSERT(is_live(a) && a->seq->length == a->seq->committed);
            RG_ASSERT(a->seq->committed < target_of(r, a) + (r->beams && r->beams->beam[i].is_listed));
            RG_ASSERT(!r->beams || r->beams->beam[i].runs || !a->seq->n_blocks);
            RG_ASSERT(state == RUNNING || a->seq->swapped);
            n_held += 1 + (a->fill && a->fill->without);
        }
    }
    RG_ASSERT(n == q->n && q->tail == last && n_held <= s->n_seqs);
    return n_held;
}

void rg_scheduler_check(const rg_scheduler *s)
{
    rg_fair_check(s->fair);
    RG_ASSERT(check_queue(s, &s->waiting, WAITING) + check_queue(s, &s->running, RUNNING) + s->n_idle == s->n_seqs);
    for (int32_t i = 0; i < s->n_idle; i++)
        RG_ASSERT(!s->idle[i]->length && !s->idle[i]->n_blocks && !s->idle[i]->swapped && !s->idle[i]->tail);
}
