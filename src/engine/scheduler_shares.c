/* scheduler_shares.c -- the order in which sequences are planned, and which of them give up what they hold for others.
 *
 * Order: the k-th sequence of a tenant, by arrival, stands at k divided by the tenant's weight.  So with few rows
 * each tenant gets its share of them, and a newcomer's are among the first, however many sequences another tenant
 * runs.
 *
 * Who gives, by the rule of shares.h: a tenant that wants a sequence, where none is idle, takes one from the tenant
 * that holds the most for its weight, and one that wants memory takes it from the tenant that holds the most of
 * that.  It is the latest of the giver's sequences, since it has got the least from its state.  A sequence that is
 * wanted itself is dropped, not swapped out: swapped out it would still be held.  What it computed stays in the
 * prefix index as long as there is room.  Of a request with several samples one gives way at a time, unless they
 * hold state together.
 *
 * Why nobody gives and takes in turns: see shares.h for what the rule does.  Where memory comes in lumps it is tried
 * first whether the giver can give enough by the rule, so that nothing is taken in vain; and a request that is all its
 * tenant runs gives way to a small one once at most.  A request that waits to begin takes memory from others at most
 * MAX_CLAIMS times all its life, however often it comes to wait again. */
#include "engine/scheduler_inner.h"

#include <string.h>

enum {
    MAX_CLAIMS = 8,
    MAX_ASKED = 8,    /* tenants, for memory at a time */
    MAX_PASSED = 256, /* requests that are let in while another one, which came before them, waits for memory */
};

/* ---- what there is ----------------------------------------------------------------------------------------------- */

/* Sequences that sample i lacks; samples that hold state together get theirs all at once. */
static int32_t seqs_lacking(const rg_request *r, int i)
{
    const rg_sample *a = &r->samples[i];

    return rg_sample_is_live(a) && !a->seq ? r->n_seqs : 0;
}

/* Rows that it lacks before it gives something. */
static int32_t prompt_rows(const rg_request *r, int i)
{
    return !r->work->is_open(r, i) || rg_sample_is_decoding(r, i) ? 0 : r->work->n_left(r, i);
}

static void count_request(rg_request *r)
{
    rg_share *t = r->turn.share;

    r->turn.n_prompt_left = 0;
    for (int i = 0; i < r->n_branches; i++) {
        t->n_wanted += seqs_lacking(r, i);
        r->turn.n_prompt_left += prompt_rows(r, i);
        t->n_answers += rg_sample_is_decoding(r, i);
    }
    t->n_prompt += r->turn.n_prompt_left;
}

void rg_scheduler_count(rg_scheduler *s)
{
    for (rg_share *t = s->shares.first; t; t = t->next) {
        t->had_prompts = t->n_prompt > 0;
        t->n_wanted = t->n_answers = 0;
        t->n_prompt = 0;
        t->is_blocked = false;
    }
    s->held_up = NULL;
    for (rg_request *r = s->running.head; r; r = r->turn.next)
        if (r->turn.share)
            count_request(r);
    for (rg_request *r = s->shares.n > 1 ? s->waiting.head : NULL; r; r = r->turn.next)
        if (r->turn.share)
            count_request(r);
    for (rg_share *t = s->shares.first; t; t = t->next)
        if (t->n_prompt && !t->had_prompts)
            rg_shares_begin(&s->shares, t);
}

/* Merge sorted [from, mid) and [mid, end), by way of `to`. */
static void merge(rg_ranked *x, int32_t from, int32_t mid, int32_t end, rg_ranked *to)
{
    int32_t a = from, b = mid;

    for (int32_t k = from; k < end; k++)
        to[k] = b == end || (a < mid && x[a].at <= x[b].at) ? x[a++] : x[b++];
    memcpy(x + from, to + from, (size_t)(end - from) * sizeof *x);
}

void rg_scheduler_rank(rg_scheduler *s)
{
    int32_t n = 0;

    for (rg_share *t = s->shares.first; t; t = t->next)
        t->n_ranked = 0;
    for (rg_request *r = s->running.head; r; r = r->turn.next)
        for (int i = 0; r->turn.share && i < r->n_branches; i++)
            if (rg_sample_is_active(&r->samples[i]))
                s->ranked[n++] = (rg_ranked){ .request = r, .sample = i,
                                              .at = ++r->turn.share->n_ranked / r->turn.share->weight };
    s->n_ranked = n;
    for (int32_t size = 1; size < n && s->shares.n > 1; size *= 2)
        for (int32_t from = 0; from + size < n; from += 2 * size)
            merge(s->ranked, from, from + size, from + 2 * size < n ? from + 2 * size : n, s->ranked + s->n_seqs);
}

/* True if the sample at this place still holds a state, and may lose it for r: not one that r's own samples hold
 * together. */
static bool can_give(const rg_ranked *e, const rg_request *r)
{
    return e->request->turn.state == RG_LIST_RUNNING && rg_sample_is_active(&e->request->samples[e->sample]) &&
           (e->request != r || !r->work->together);
}

/* ---- giving ------------------------------------------------------------------------------------------------------ */

void rg_scheduler_unplan(rg_scheduler *s, const rg_request *r, int i)
{
    rg_planning *p = s->planning;
    int n = 0;

    for (int k = 0; p && k < p->n; k++) {
        const rg_planned *e = &p->plan[k];

        if (e->request != r || (i >= 0 && e->sample != i)) {
            p->plan[n++] = *e;
            continue;
        }
        p->budget += e->took.rows;
        p->logits += e->took.logits;
        p->prompts += e->is_prompt ? e->took.rows : 0;
    }
    if (p)
        p->n = n;
}

/* A running sample loses its state; a request that has no other, or holds it together, waits again. */
static void give(rg_scheduler *s, rg_request *r, int i, rg_preempt how)
{
    int n_active = 0;

    for (int k = 0; k < r->n_branches; k++)
        n_active += rg_sample_is_active(&r->samples[k]);
    if (r->work->together || n_active == 1) {
        rg_scheduler_preempt(s, r, how);
        return;
    }
    rg_scheduler_unplan(s, r, i);
    rg_scheduler_swap_or_drop(s, r, i, how);
}

/* ---- sequences --------------------------------------------------------------------------------------------------- */

/* What a request holds that gives way with this sample. */
static int32_t seqs_given(const rg_request *r, int i)
{
    int32_t n = 0;

    if (!r->work->together)
        return rg_sample_n_seqs(&r->samples[i]);
    for (int k = 0; k < r->n_branches; k++)
        n += rg_sample_n_seqs(&r->samples[k]);
    return n;
}

/* Whose state is in plain memory: it computes again. */
static bool drop_swapped(rg_scheduler *s, const rg_share *giver)
{
    for (rg_request *w = s->waiting.tail; w; w = w->turn.prev)
        for (int i = w->n_branches - 1; w->turn.share == giver && i >= 0; i--)
            if (w->samples[i].seq) {
                rg_scheduler_drop(s, w, i);
                return true;
            }
    return false;
}

/* Take a sequence for r from the tenant that holds the most.  False: by the rule, none gives. */
bool rg_scheduler_claim_seq(rg_scheduler *s, const rg_request *r)
{
    const rg_share *t = r->turn.share, *giver = t ? rg_shares_most_seqs(&s->shares, t) : NULL;

    if (!giver)
        return false;
    if (drop_swapped(s, giver))
        return true;
    for (int32_t k = s->n_ranked - 1; k >= 0; k--) {
        const rg_ranked *e = &s->ranked[k];

        if (e->request->turn.share != giver || !can_give(e, r))
            continue;
        if (rg_share_may_claim(t, t->n_seqs, 1, giver, giver->n_seqs, seqs_given(e->request, e->sample))) {
            give(s, e->request, e->sample, RG_PREEMPT_RECOMPUTE);
            return s->n_idle > 0;
        }
    }
    return false;
}

/* True if there are n sequences for a tenant, idle or by the rule. */
static bool are_there(const rg_scheduler *s, const rg_share *t, int32_t n)
{
    double claims = s->n_idle;

    if (n == 1 && s->n_idle)
        return rg_shares_may_take(&s->shares, t, s->n_idle);
    for (const rg_share *u = s->shares.first; u && claims < n; u = u->next) {
        double most = u->n_seqs - (double)(t->n_seqs + n) * (t->n_seqs ? u->weight / t->weight : 1);

        claims += u != t && most > 0 ? (double)(int32_t)most : 0;
    }
    return claims >= n;
}

bool rg_scheduler_may_have_seqs(const rg_scheduler *s, const rg_request *r)
{
    int i = 0, n;

    if (!r->turn.share || rg_scheduler_may_clear(s, r))
        return true;
    while (i < r->n_branches - 1 && !r->work->is_open(r, i))
        i++;
    n = r->work->together && !r->samples[i].seq ? r->n_branches : seqs_lacking(r, i);
    return !n || are_there(s, r->turn.share, n);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Blocks that a sequence holds; at least one, for what it keeps besides its positions. */
static int64_t blocks_of_seq(const rg_seq *q)
{
    return !q || q->swapped ? 0 : q->n_blocks > 1 ? q->n_blocks : 1;
}

static int64_t blocks_of(const rg_sample *a)
{
    return blocks_of_seq(a->seq) + blocks_of_seq(a->beside);
}

static void count_blocks(rg_scheduler *s)
{
    for (rg_share *t = s->shares.first; t; t = t->next) {
        t->n_blocks = 0;
        t->was_asked = false;
    }
    for (const rg_request *r = s->running.head; r; r = r->turn.next)
        for (int i = 0; r->turn.share && i < r->n_branches; i++)
            r->turn.share->n_blocks += blocks_of(&r->samples[i]);
}

/* What becomes free with this sample: of samples that hold state together all with the first, nothing with others. */
static int64_t blocks_given(const rg_request *r, int i)
{
    int64_t n = 0;

    if (!r->work->together)
        return blocks_of(&r->samples[i]);
    for (int k = 0; k < r->n_branches && i == r->work->first(r); k++)
        n += blocks_of(&r->samples[k]);
    return n;
}

/* An exception to the rule, once for a request: it is all that its tenant runs, holds more than twice what another one
 * needs, and leaves.  Somebody who needs little need not wait until a long answer ends. */
static bool may_give_all(const rg_share *t, int64_t n, const rg_share *giver, const rg_request *r, int64_t here)
{
    return here == giver->n_blocks && !r->turn.gave_all &&
           rg_share_may_claim(t, 2 * t->n_blocks, 2 * n, giver, giver->n_blocks, 0);
}

/* Go through the giver's samples, the latest first, until they have n blocks; give: they give them up.  False: by the
 * rule there are not as many. */
static bool go_through(rg_scheduler *s, const rg_request *r, const rg_share *giver, int64_t n, bool gives)
{
    const int64_t own = r->turn.share->n_blocks, theirs = giver->n_blocks;
    int64_t given = 0;

    for (int32_t k = s->n_ranked - 1; k >= 0 && given < n; k--) {
        const rg_ranked *e = &s->ranked[k];
        int64_t here = e->request->turn.share == giver && can_give(e, r) ? blocks_given(e->request, e->sample) : 0;

        if (!here)
            continue;
        given += here;
        if (!rg_share_may_claim(r->turn.share, own, n, giver, theirs, given) &&
            !may_give_all(r->turn.share, n, giver, e->request, here))
            return false;
        e->request->turn.gave_all |= gives && given == theirs;
        if (gives)
            give(s, e->request, e->sample, s->options.preempt);
    }
    return given >= n;
}

/* Take n blocks for r from the tenant that holds the most blocks and can give so many. */
static bool claim_blocks(rg_scheduler *s, const rg_request *r, int64_t n)
{
    rg_share *giver;

    if (!r->turn.share || s->shares.n < 2)
        return false;
    count_blocks(s);
    for (int k = 0; k < MAX_ASKED && (giver = rg_shares_most_blocks(&s->shares, r->turn.share)); k++) {
        if (go_through(s, r, giver, n, false))
            return go_through(s, r, giver, n, true);
        giver->was_asked = true;
    }
    return false;
}

bool rg_scheduler_claim_state(rg_scheduler *s, rg_request *r, int i)
{
    int64_t n = (r->work->target(r, i) + RG_BLOCK - 1) / RG_BLOCK + 2;

    if (r->turn.n_claims >= MAX_CLAIMS || !claim_blocks(s, r, r->work->together ? n * r->n_branches : n))
        return false;
    r->turn.n_claims++;
    return true;
}

static int32_t rank_of(const rg_scheduler *s, const rg_request *r, int i)
{
    int32_t k = 0;

    while (k < s->n_ranked && (s->ranked[k].request != r || s->ranked[k].sample != i))
        k++;
    return k;
}

/* A sample that got its state in this step, and is not planned. */
static bool take_from_new(rg_scheduler *s, const rg_request *r, int i)
{
    for (rg_request *v = s->running.tail; v; v = v->turn.prev)
        for (int k = v->n_branches - 1; k >= 0; k--) {
            const rg_ranked e = { .request = v, .sample = k };

            if ((v == r && k == i) || !can_give(&e, r) || rank_of(s, v, k) < s->n_ranked ||
                rg_scheduler_is_planned(s, v, k))
                continue;
            give(s, v, k, s->options.preempt);
            return true;
        }
    return false;
}

/* The last sample that ranks behind sample i of r and is not planned gives way; any: of any tenant, else of its own. */
static bool take_from_behind(rg_scheduler *s, const rg_request *r, int i, bool any)
{
    const int32_t own = rank_of(s, r, i);

    for (int32_t k = s->n_ranked - 1; k > own; k--) {
        const rg_ranked *e = &s->ranked[k];

        if (!can_give(e, r) || (!any && e->request->turn.share != r->turn.share) ||
            rg_scheduler_is_planned(s, e->request, e->sample))
            continue;
        give(s, e->request, e->sample, s->options.preempt);
        return true;
    }
    return any && own < s->n_ranked && take_from_new(s, r, i);
}

/* Take from its own tenant's last sample; while nothing is planned, from anybody's, so that there is a step. */
static bool take_from_last(rg_scheduler *s, const rg_request *r, int i)
{
    return take_from_behind(s, r, i, false) || (!s->planning->n && take_from_behind(s, r, i, true));
}

/* The same for the background, whose requests rank by arrival. */
static bool take_from_tail(rg_scheduler *s, rg_request *r, int i)
{
    if (s->running.tail != r)
        return rg_scheduler_preempt(s, s->running.tail, s->options.preempt);
    for (int j = r->n_branches - 1; j > i && !r->work->together; j--) {
        if (!rg_sample_is_active(&r->samples[j]))
            continue;
        rg_scheduler_swap_or_drop(s, r, j, s->options.preempt);
        return true;
    }
    return false;
}

bool rg_scheduler_make_room(rg_scheduler *s, rg_request *r, int i)
{
    if (r->params.background)
        return take_from_tail(s, r, i);
    return rg_scheduler_clear_background(s, r) || claim_blocks(s, r, 1) || take_from_last(s, r, i);
}

/* ---- those that find no room ------------------------------------------------------------------------------------- */

void rg_scheduler_block(rg_scheduler *s, rg_request *r)
{
    if (!r->turn.share)
        return;
    r->turn.share->is_blocked = true;
    if (s->held_up)
        return;
    s->held_up = r;
    count_blocks(s);
}

bool rg_scheduler_may_pass(const rg_scheduler *s, const rg_request *r)
{
    const rg_request *h = s->held_up;
    const rg_share *own = r->turn.share;

    if (!h || !own)
        return true;
    if (own->is_blocked || h->turn.n_passed >= MAX_PASSED)
        return false;
    return (double)own->n_blocks * h->turn.share->weight <= (double)h->turn.share->n_blocks * own->weight;
}
