/* scheduler_state.c -- which samples hold a sequence: they get one, fork, and lose it to those that rank before them.
 *
 * Samples share their prompt: the first computes all of it but the last position, the others fork there.  A sample that
 * finds no sequence or no room at that moment starts later by itself, like a preempted one: from the longest cached
 * prefix.  Work whose samples hold state together always forks, and has all that it needs or nothing: it is computed
 * again after a preemption, since copies that were swapped in would share no block. */
#include "engine/scheduler_inner.h"

enum { SWAP_FROM = 4 * RG_BLOCK }; /* positions; where the machine was not measured */

/* ---- state is given back or taken -------------------------------------------------------------------------------- */

static void put_back(rg_scheduler *s, const rg_request *r, rg_seq *q)
{
    s->idle[s->n_idle++] = q;
    if (r->turn.share)
        r->turn.share->n_seqs--;
}

/* False: it had none. */
static bool drop_state(rg_scheduler *s, rg_request *r, int i)
{
    rg_sample *a = &r->samples[i];

    if (!a->seq)
        return false;
    rg_seq_release(s->states, a->seq, r->is_told ? NULL : rg_request_tokens(r, i));
    put_back(s, r, a->seq);
    a->seq = NULL;
    if (a->beside) {
        rg_seq_release(s->states, a->beside, NULL);
        put_back(s, r, a->beside);
        a->beside = NULL;
    }
    return true;
}

void rg_scheduler_drop(rg_scheduler *s, rg_request *r, int i)
{
    if (drop_state(s, r, i) && r->work->lose && !r->work->together)
        r->work->lose(r, i);
}

/* Drop the state of all samples, of a request whose samples hold state together. */
static void drop_all(rg_scheduler *s, rg_request *r)
{
    for (int i = 0; i < r->n_branches; i++)
        (void)drop_state(s, r, i);
    r->work->lose(r, 0);
}

/* True if the state of so many positions should be copied out, and in again later. */
static bool swaps(const rg_scheduler *s, int32_t n, rg_preempt how)
{
    if (how == RG_PREEMPT_AUTO && s->time->roofs.bytes_s > 0)
        return rg_step_time_swap_is_quicker(s->time, n, s->options.max_rows);
    return how == RG_PREEMPT_SWAP || (how == RG_PREEMPT_AUTO && n >= SWAP_FROM);
}

void rg_scheduler_swap_or_drop(rg_scheduler *s, rg_request *r, int i, rg_preempt how)
{
    rg_seq *q = r->samples[i].seq;

    if (!q->scratch && swaps(s, q->committed, how) && rg_seq_swap_out(s->states, q)) {
        s->n_swapped++;
        return;
    }
    s->n_recomputed++;
    rg_scheduler_drop(s, r, i);
}

bool rg_scheduler_preempt(rg_scheduler *s, rg_request *r, rg_preempt how)
{
    if (!r || r->turn.state != RG_LIST_RUNNING)
        return false;
    rg_scheduler_unplan(s, r, -1);
    if (r->work->together) {
        drop_all(s, r);
        s->n_recomputed++;
    }
    for (int i = r->n_branches - 1; i >= 0; i--)
        if (rg_sample_is_active(&r->samples[i]))
            rg_scheduler_swap_or_drop(s, r, i, how);
    rg_scheduler_unlink(s, r);
    rg_scheduler_add(s, r);
    atomic_fetch_add_explicit(&r->counts.n_preempted, 1, memory_order_relaxed);
    s->n_preempted++;
    return true;
}

static bool some_are_active(const rg_request *r)
{
    for (int i = 0; i < r->n_branches; i++)
        if (rg_sample_is_active(&r->samples[i]))
            return true;
    return false;
}

/* What was copied out is whole, and stays.  Those for which the queue has no room end, the last ones. */
void rg_scheduler_lose(rg_scheduler *s)
{
    int32_t room = rg_fair_room(s->fair);

    for (rg_request *r = s->running.head; r; r = r->turn.next)
        atomic_fetch_add(&r->counts.n_lost, room-- > 0 ? some_are_active(r) : RG_MOST_LOST + 1);
    (void)rg_scheduler_reap(s, false);
    for (rg_request *r; (r = s->running.head);) {
        (void)rg_scheduler_preempt(s, r, RG_PREEMPT_RECOMPUTE);
        rg_request_wake(r);
    }
}

bool rg_scheduler_may_clear(const rg_scheduler *s, const rg_request *r)
{
    return !r->params.background && s->running.tail && s->running.tail->params.background;
}

bool rg_scheduler_clear_background(rg_scheduler *s, const rg_request *r)
{
    return rg_scheduler_may_clear(s, r) && rg_scheduler_preempt(s, s->running.tail, s->options.preempt);
}

/* ---- samples get state ------------------------------------------------------------------------------------------- */

/* An idle sequence, unless a tenant with less than r's wants it; or that of a tenant with more.  If all are taken and r
 * must have one, a waiting request that is swapped out computes again; one of the background does so in any case. */
static rg_seq *take_seq(rg_scheduler *s, const rg_request *r, bool must)
{
    if (r->turn.share && !must && s->n_idle && !rg_shares_may_take(&s->shares, r->turn.share, s->n_idle))
        return NULL;
    if (!s->n_idle && !rg_scheduler_may_clear(s, r))
        (void)rg_scheduler_claim_seq(s, r);
    for (rg_request *w = s->waiting.tail; !s->n_idle && w && w != r; w = w->turn.prev) {
        if (!must && (r->params.background || !w->params.background))
            break;
        for (int i = 0; i < w->n_branches; i++)
            rg_scheduler_drop(s, w, i);
    }
    if (!s->n_idle)
        return NULL;
    if (r->turn.share) {
        r->turn.share->n_seqs++;
        r->turn.share->n_wanted -= r->turn.share->n_wanted > 0;
    }
    return s->idle[--s->n_idle];
}

/* True if there is room for what sample i needs before it begins: the request would else be preempted at once. */
static bool has_room(const rg_scheduler *s, const rg_request *r, int i)
{
    const rg_work_room room = r->work->room(r, i);

    return rg_states_has_room(s->states, r->samples[i].seq, room.n_positions, room.forks);
}

/* The second sequence of a sample that has two.  False: there is none. */
static bool take_beside(rg_scheduler *s, const rg_request *r, rg_sample *a, bool must)
{
    if (r->n_seqs < 2)
        return true;
    a->beside = take_seq(s, r, must);
    if (!a->beside)
        return false;
    a->beside->rope = r->who.rope;
    a->beside->adapter = r->who.adapter;
    if (r->is_scratch)
        rg_seq_scratch(a->beside);
    return true;
}

/* The leading ids of sample i whose state may come from a cached prefix. */
static int32_t most_cached(const rg_request *r, int i)
{
    return r->is_scratch || r->params.uncached ? 0 : r->work->cacheable(r, i);
}

rg_restoring rg_scheduler_restore(rg_scheduler *s, rg_request *r)
{
    const int first = r->work->first ? r->work->first(r) : 0;

    return rg_states_restore(s->states, &(rg_restore_of){ .tokens = rg_request_tokens(r, first),
                                                          .n = most_cached(r, first),
                                                          .salt = rg_request_scope(r, s->options.share_prefixes),
                                                          .scope = r->who.scopes[s->options.share_prefixes],
                                                          .owner = r });
}

/* How far the ids of sample j of `from` are those of sample i of r, and their state would be the same. */
static int32_t n_common(const rg_scheduler *s, const rg_request *r, int i, const rg_request *from, int j, int32_t most)
{
    const int32_t n_ids = from->params.n_prompt + from->samples[j].n_output;
    const int32_t *a = rg_request_tokens(r, i), *b = rg_request_tokens(from, j);
    int32_t n = 0;

    if (rg_request_scope(r, s->options.share_prefixes) != rg_request_scope(from, s->options.share_prefixes) ||
        r->who.rope != from->who.rope || r->who.adapter != from->who.adapter || from->is_told)
        return 0;
    most = most < n_ids ? most : n_ids;
    while (n < most && a[n] == b[n])
        n++;
    return n;
}

/* The sample of the request that r forks from which it can share most, *n positions; NULL: none. */
static const rg_seq *find_source(const rg_scheduler *s, const rg_request *r, int i, int32_t most, int32_t *n)
{
    const rg_request *from = r->forks;
    const rg_seq *best = NULL;

    *n = 0;
    for (int j = 0; from && j < from->n_branches; j++) {
        const rg_seq *q = from->samples[j].seq;
        const int32_t p = q ? rg_seq_shareable(s->states, q, n_common(s, r, i, from, j, most)) : 0;

        if (p > *n) {
            best = q;
            *n = p;
        }
    }
    return best;
}

bool rg_scheduler_waits_to_fork(const rg_scheduler *s, const rg_request *r)
{
    const rg_request *from = r->forks;
    const rg_seq *q = from && from->turn.state == RG_LIST_RUNNING ? from->samples[0].seq : NULL;
    int32_t n;

    if (!q || q->swapped || q->scratch || r->is_scratch || r->params.uncached || r->counts.admitted_ns ||
        from->params.background > r->params.background)
        return false;
    n = n_common(s, r, 0, from, 0, r->work->cacheable(r, 0) - 1);
    n = n < from->params.n_prompt ? n : from->params.n_prompt - 1;
    return q->committed < n;
}

/* Let sample i, which has an empty sequence, start from the longest cached prefix, or share more than that with the
 * request that it forks. */
static int32_t match_prefix(rg_scheduler *s, rg_request *r, int i, rg_uncached *uncached)
{
    rg_seq *q = r->samples[i].seq;
    int32_t n_most = most_cached(r, i);

    *uncached = RG_UNCACHED_OFF;
    q->rope = r->who.rope;
    q->adapter = r->who.adapter;
    q->salt = rg_request_scope(r, s->options.share_prefixes);
    q->scope = r->who.scopes[s->options.share_prefixes];
    if (r->is_scratch)
        rg_seq_scratch(q);
    if (!n_most)
        return 0;
    int32_t n_shared, n_found = rg_seq_match(s->states, q, rg_request_tokens(r, i), n_most, uncached);
    const rg_seq *from = find_source(s, r, i, n_most - 1, &n_shared);
    if (n_shared <= n_found)
        return n_found;
    rg_seq_release(s->states, q, NULL);
    RG_ASSERT(rg_seq_fork_at(s->states, from, n_shared, q));
    *uncached = n_shared + RG_BLOCK >= n_most ? RG_UNCACHED_NOTHING : RG_UNCACHED_NEW;
    return n_shared;
}

static void note_cached(rg_scheduler *s, rg_request *r, int32_t n_found, rg_uncached uncached)
{
    s->n_cached += (uint64_t)n_found;
    rg_request_note_prefilled(r, n_found);
    if (!r->counts.admitted_ns) {
        r->counts.n_cached = n_found;
        r->counts.uncached = (int)uncached;
    }
}

/* Give all samples their sequences, and the first a state that can grow. */
static bool activate_all(rg_scheduler *s, rg_request *r, bool must)
{
    const int first = r->work->first(r);
    rg_uncached uncached;
    int32_t n_found;

    if (r->samples[first].seq)
        return true;
    for (int i = 0; i < r->n_branches; i++) {
        r->samples[i].seq = take_seq(s, r, must);
        if (!r->samples[i].seq) {
            drop_all(s, r);
            return false;
        }
    }
    n_found = match_prefix(s, r, first, &uncached);
    if (!must && !has_room(s, r, first)) {
        drop_all(s, r);
        return false;
    }
    note_cached(s, r, n_found, uncached);
    r->work->fork(s->states, r);
    return true;
}

bool rg_scheduler_activate(rg_scheduler *s, rg_request *r, int i, bool must)
{
    rg_sample *a = &r->samples[i];
    rg_uncached uncached;
    int32_t n_found;

    if (r->work->together)
        return activate_all(s, r, must);
    if (rg_sample_is_active(a))
        return true;
    if (a->seq)
        return (must || has_room(s, r, i)) && rg_seq_swap_in(s->states, a->seq);
    a->seq = take_seq(s, r, must);
    if (!a->seq)
        return false;
    n_found = match_prefix(s, r, i, &uncached);
    if (!take_beside(s, r, a, must) || (!must && !has_room(s, r, i))) {
        rg_scheduler_drop(s, r, i);
        return false;
    }
    note_cached(s, r, n_found, uncached);
    return true;
}

/* Where the other samples may fork from this one: before the prompt's last position, which each computes itself. */
static bool is_at_fork(const rg_request *r, const rg_sample *a)
{
    return rg_sample_is_active(a) && !r->sees_ahead && !a->n_output && a->seq->committed == r->params.n_prompt - 1;
}

bool rg_scheduler_fork(rg_scheduler *s, rg_request *r)
{
    bool forked = false;
    int from = 0;

    if (r->work->together) {
        r->work->fork(s->states, r);
        return false; /* they had their sequences */
    }
    while (from < r->n_branches && !is_at_fork(r, &r->samples[from]))
        from++;
    for (int i = from + 1; i < r->n_branches; i++) {
        rg_sample *a = &r->samples[i];

        if (!rg_sample_is_unstarted(a) || !r->work->is_open(r, i))
            continue;
        while (!(a->seq = take_seq(s, r, false)))
            if (!rg_scheduler_clear_background(s, r))
                return forked;
        RG_ASSERT(rg_seq_fork(s->states, r->samples[from].seq, a->seq));
        forked = true;
    }
    return forked;
}
