/* shares.c -- see shares.h. */
#include "engine/shares.h"

#include <math.h> /* ceil, fmin, fmax: exact */

#include "base/mem.h"

typedef struct rg_share_stock {
    struct rg_share_stock *next;
    rg_share all[];
} rg_share_stock;

bool rg_shares_reserve(rg_shares *s, int32_t room, rg_error *err)
{
    const int32_t n = room - s->room;
    size_t bytes = sizeof(rg_share_stock) + (size_t)(n > 0 ? n : 0) * sizeof(rg_share);

    if (n <= 0)
        return true;
    rg_share_stock *stock = rg_alloc(bytes);
    if (!stock)
        return rg_fail_memory(err, bytes);
    stock->next = s->stock;
    s->stock = stock;
    s->room = room;
    for (int32_t i = 0; i < n; i++) {
        stock->all[i].next = s->unused;
        s->unused = &stock->all[i];
    }
    return true;
}

void rg_shares_fini(rg_shares *s)
{
    for (rg_share_stock *t = s->stock, *next; t; t = next) {
        next = t->next;
        rg_free(t);
    }
    *s = (rg_shares){ 0 };
}

rg_share *rg_shares_join(rg_shares *s, uint64_t tenant, double weight)
{
    rg_share *t = s->first;

    while (t && t->tenant != tenant)
        t = t->next;
    if (!t) {
        t = s->unused;
        RG_ASSERT(t);
        s->unused = t->next;
        *t = (rg_share){ .tenant = tenant, .served = s->now, .next = s->first };
        t->above = s->above ? rg_shares_join(s->above, tenant, weight) : NULL;
        s->first = t;
        s->n++;
    }
    t->weight = weight;
    t->n_requests++;
    return t;
}

void rg_shares_leave(rg_shares *s, rg_share *t)
{
    rg_share **at = &s->first;

    if (--t->n_requests)
        return;
    RG_ASSERT(!t->n_seqs);
    while (*at != t)
        at = &(*at)->next;
    if (t->above)
        rg_shares_leave(s->above, t->above);
    *at = t->next;
    t->next = s->unused;
    s->unused = t;
    s->n--;
}

/* ---- sequences and blocks ---------------------------------------------------------------------------------------- */

bool rg_shares_may_take(const rg_shares *s, const rg_share *t, int32_t n_idle)
{
    double n = 0;

    for (const rg_share *u = s->first; u; u = u->next) {
        /* so many more may u take before it has as much for its weight as t would have */
        double before = fmax(ceil((t->n_seqs + 1) * u->weight / t->weight) - 1, 1) - u->n_seqs;

        if (u != t && !u->is_blocked)
            n += fmax(0, fmin(before, u->n_wanted));
    }
    return n_idle > 0 && (!t->n_seqs || n_idle > n);
}

bool rg_share_may_claim(const rg_share *t, int64_t own, int64_t n, const rg_share *other, int64_t theirs,
                        int64_t given)
{
    const bool is_first = !own;

    return (double)(own + n) * (is_first ? 1 : other->weight) <= (double)(theirs - given) * (is_first ? 1 : t->weight);
}

rg_share *rg_shares_most_seqs(const rg_shares *s, const rg_share *t)
{
    rg_share *most = NULL;

    for (rg_share *u = s->first; u; u = u->next)
        if (u != t && rg_share_may_claim(t, t->n_seqs, 1, u, u->n_seqs, 1) &&
            (!most || u->n_seqs * most->weight > most->n_seqs * u->weight))
            most = u;
    return most;
}

rg_share *rg_shares_most_blocks(const rg_shares *s, const rg_share *t)
{
    rg_share *most = NULL;

    for (rg_share *u = s->first; u; u = u->next)
        if (u != t && u->n_blocks && !u->was_asked &&
            (!most || (double)u->n_blocks * most->weight > (double)most->n_blocks * u->weight))
            most = u;
    return most;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

int32_t rg_shares_prompt_rows(const rg_shares *s, int32_t budget)
{
    double weights = 0, n = 0;

    for (const rg_share *t = s->first; t; t = t->next)
        weights += t->n_answers || t->n_prompt ? t->weight : 0;
    for (const rg_share *t = s->first; t; t = t->next)
        if (t->n_prompt)
            n += fmax(0, fmin((double)t->n_prompt, budget * t->weight / weights - t->n_answers));
    return s->n > 1 ? (int32_t)n : 0;
}

void rg_shares_begin(const rg_shares *s, rg_share *t)
{
    t->served = fmax(t->served, s->now);
}

void rg_shares_serve(rg_shares *s, rg_share *t, double n)
{
    s->now = fmax(s->now, t->served);
    t->served += n / t->weight;
}

void rg_shares_check(const rg_shares *s)
{
    int32_t n = 0;

    for (const rg_share *t = s->first; t; t = t->next, n++)
        RG_ASSERT(t->n_requests > 0 && t->n_seqs >= 0 && t->weight > 0);
    RG_ASSERT(n == s->n);
}
