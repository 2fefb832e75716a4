/* scheduler.c -- two lists of requests by rank, and a fixed stock of sequences.
 *
 * Rank is by arrival, with all background requests behind all others, which are the foreground. */
#include "engine/scheduler_inner.h"

#include "base/clock.h"
#include "base/mem.h"

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
    s->ranked = rg_array(n, 2 * sizeof *s->ranked);
    if (!s->seqs || !s->idle || !s->ranked) {
        rg_fail_memory(err, n * sizeof(rg_seq *));
        goto fail;
    }
    s->fair = rg_fair_new(rg_admission_most(options->max_waiting) + 2 * options->max_seqs, err);
    if (!s->fair ||
        !rg_shares_reserve(&s->shares, rg_admission_most(options->max_waiting) + 2 * options->max_seqs, err))
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
    rg_free(s->ranked);
    rg_shares_fini(&s->shares);
    rg_free(s);
}

/* ---- the lists --------------------------------------------------------------------------------------------------- */

static rg_request_list *list_of(rg_scheduler *s, const rg_request *r)
{
    RG_ASSERT(r->turn.state == RG_LIST_WAITING || r->turn.state == RG_LIST_RUNNING);
    return r->turn.state == RG_LIST_WAITING ? &s->waiting : &s->running;
}

void rg_scheduler_unlink(rg_scheduler *s, rg_request *r)
{
    rg_request_list *list = list_of(s, r);

    *(r->turn.prev ? &r->turn.prev->turn.next : &list->head) = r->turn.next;
    *(r->turn.next ? &r->turn.next->turn.prev : &list->tail) = r->turn.prev;
    r->turn.next = r->turn.prev = NULL;
    if (r->turn.state == RG_LIST_WAITING)
        s->n_waiting_ids -= r->params.n_prompt;
    r->turn.state = RG_LIST_NONE;
    list->n--;
}

/* By rank: the background is behind all others. */
static bool comes_before(const rg_request *a, const rg_request *b)
{
    if (a->params.background != b->params.background)
        return b->params.background;
    return a->id < b->id;
}

void rg_scheduler_link(rg_scheduler *s, rg_request *r, int state)
{
    rg_request_list *list = state == RG_LIST_WAITING ? &s->waiting : &s->running;
    rg_request *after = list->tail;

    while (after && comes_before(r, after))
        after = after->turn.prev;
    r->turn.prev = after;
    r->turn.next = after ? after->turn.next : list->head;
    *(r->turn.prev ? &r->turn.prev->turn.next : &list->head) = r;
    *(r->turn.next ? &r->turn.next->turn.prev : &list->tail) = r;
    r->turn.state = state;
    list->n++;
    if (state == RG_LIST_WAITING)
        s->n_waiting_ids += r->params.n_prompt;
}

void rg_scheduler_add(rg_scheduler *s, rg_request *r)
{
    if (!r->turn.share && !r->params.background)
        r->turn.share = rg_shares_join(&s->shares, r->who.tenant, r->who.weight);
    rg_request_number(r, s->states);
    rg_scheduler_link(s, r, RG_LIST_WAITING);
    rg_fair_add(s->fair, r);
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
        r = r->turn.next;
    return r;
}

uint64_t rg_scheduler_n_swapped(const rg_scheduler *s)
{
    return s->n_swapped;
}

uint64_t rg_scheduler_n_recomputed(const rg_scheduler *s)
{
    return s->n_recomputed;
}

uint64_t rg_scheduler_n_preempted(const rg_scheduler *s)
{
    return s->n_preempted;
}

uint64_t rg_scheduler_n_cached(const rg_scheduler *s)
{
    return s->n_cached;
}

/* ---- requests that end ------------------------------------------------------------------------------------------- */

/* After r ended: its state is given back, and the engine's reference dropped. */
static void remove_request(rg_scheduler *s, rg_request *r)
{
    rg_applicant who = rg_request_applicant(r);

    for (int i = 0; i < r->n_branches; i++)
        rg_scheduler_drop(s, r, i);
    if (r->turn.state == RG_LIST_WAITING)
        rg_fair_remove(s->fair, r);
    if (!r->counts.admitted_ns)
        rg_admission_leave(s->admission, &who);
    rg_scheduler_unlink(s, r);
    if (r->turn.share)
        rg_shares_leave(&s->shares, r->turn.share);
    r->turn.share = NULL;
    rg_request_forked(r);
    rg_request_unref(r);
}

void rg_scheduler_return(rg_scheduler *s, rg_request *r)
{
    s->n_held--;
    rg_scheduler_add(s, r);
}

/* A running request waits for its reader, and has no state: it leaves, and the engine keeps its reference. */
static void hold(rg_scheduler *s, rg_request *r)
{
    rg_scheduler_unlink(s, r);
    if (r->turn.share)
        rg_shares_leave(&s->shares, r->turn.share);
    r->turn.share = NULL;
    s->n_held++;
    atomic_store(&r->is_held, true);
    if (atomic_load(&r->is_closed) && atomic_exchange(&r->is_held, false))
        rg_scheduler_return(s, r); /* its reader closed it before it could see that */
    rg_request_wake(r);
}

int32_t rg_scheduler_n_held(const rg_scheduler *s)
{
    return s->n_held;
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
    if (atomic_load_explicit(&r->counts.n_lost, memory_order_relaxed) > RG_MOST_LOST)
        return RG_FINISH_LOST;
    return r->who.deadline_ns && now >= r->who.deadline_ns ? RG_FINISH_DEADLINE : RG_RUNNING;
}

static int reap_list(rg_scheduler *s, rg_request_list *list, bool all)
{
    uint64_t now = list->n ? rg_now_ns() : 0;
    int n = 0;

    for (rg_request *r = list->head, *next; r; r = next) {
        int n_samples = r->n_ending;
        rg_finish why = all ? RG_FINISH_CANCELLED : ends_now(r, now);

        next = r->turn.next;
        if (r->work->stop && (why == RG_FINISH_CANCELLED || why == RG_FINISH_DEADLINE))
            r->work->stop(r, why);
        for (int i = 0; i < n_samples && why != RG_RUNNING; i++)
            rg_request_end(r, i, why);
        if (why == RG_RUNNING && r->work->is_held && r->work->is_held(r)) {
            hold(s, r);
            continue;
        }
        if (atomic_load(&r->counts.n_ended) < n_samples)
            continue;
        if (rg_request_draws(r))
            rg_fair_learn(s->fair, r->samples[0].n_output);
        remove_request(s, r);
        n++;
    }
    return n;
}

int rg_scheduler_reap(rg_scheduler *s, bool all)
{
    return reap_list(s, &s->running, all) + reap_list(s, &s->waiting, all);
}

/* ---- what a host asks -------------------------------------------------------------------------------------------- */

int32_t rg_scheduler_most_tenants(const rg_scheduler *s)
{
    return s->shares.room;
}

void rg_scheduler_join(rg_scheduler *s, rg_shares *above)
{
    RG_ASSERT(!s->shares.n);
    s->shares.above = above;
}

double rg_scheduler_least_served(const rg_scheduler *s)
{
    double least = __builtin_inf();

    for (const rg_share *t = s->shares.first; t; t = t->next)
        least = t->above->served < least ? t->above->served : least;
    return least;
}

uint64_t rg_scheduler_first_deadline(const rg_scheduler *s)
{
    const rg_request_list *lists[] = { &s->running, &s->waiting };
    uint64_t first = UINT64_MAX;

    for (size_t k = 0; k < RG_LEN(lists); k++)
        for (const rg_request *r = lists[k]->head; r; r = r->turn.next)
            if (r->who.deadline_ns && r->who.deadline_ns < first)
                first = r->who.deadline_ns;
    return first;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* What tenants hold is what their requests hold. */
static void check_shares(const rg_scheduler *s)
{
    const rg_request_list *lists[] = { &s->running, &s->waiting };

    rg_shares_check(&s->shares);
    for (const rg_share *t = s->shares.first; t; t = t->next) {
        int32_t n_seqs = 0, n_requests = 0;

        for (size_t k = 0; k < RG_LEN(lists); k++)
            for (const rg_request *r = lists[k]->head; r; r = r->turn.next) {
                n_requests += r->turn.share == t;
                for (int i = 0; r->turn.share == t && i < r->n_branches; i++)
                    n_seqs += rg_sample_n_seqs(&r->samples[i]);
            }
        RG_ASSERT(n_seqs == t->n_seqs && n_requests == t->n_requests);
    }
}

static int32_t check_list(const rg_scheduler *s, const rg_request_list *list, int state)
{
    const rg_request *last = NULL;
    int32_t n = 0, n_held = 0;

    for (const rg_request *r = list->head; r; last = r, r = r->turn.next, n++) {
        RG_ASSERT(r->turn.state == state && r->turn.prev == last && (!last || comes_before(last, r)));
        for (int i = 0; i < r->n_branches; i++) {
            const rg_sample *a = &r->samples[i];

            if (!a->seq)
                continue;
            RG_ASSERT(rg_sample_is_live(a) && a->seq->length == a->seq->committed);
            RG_ASSERT(a->seq->committed < r->work->target(r, i) + !r->work->is_open(r, i));
            if (r->work->agree)
                r->work->agree(r, i);
            RG_ASSERT(state == RG_LIST_RUNNING || a->seq->swapped);
            n_held += rg_sample_n_seqs(a);
        }
    }
    RG_ASSERT(n == list->n && list->tail == last && n_held <= s->n_seqs);
    return n_held;
}

void rg_scheduler_check(const rg_scheduler *s)
{
    rg_fair_check(s->fair);
    check_shares(s);
    RG_ASSERT(check_list(s, &s->waiting, RG_LIST_WAITING) + check_list(s, &s->running, RG_LIST_RUNNING) + s->n_idle ==
              s->n_seqs);
    for (int32_t i = 0; i < s->n_idle; i++)
        RG_ASSERT(!s->idle[i]->length && !s->idle[i]->n_blocks && !s->idle[i]->swapped && !s->idle[i]->tail);
}
