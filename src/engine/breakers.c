/* breakers.c -- see breakers.h.  Sorted by head, so that those of an id lie side by side. */
#include "engine/breakers.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"

struct rg_breakers {
    atomic_int refs;
    rg_breaker *all; /* [n] */
    size_t n;
    int32_t *tails;
};

static int by_head(const void *a, const void *b)
{
    const rg_breaker *x = a, *y = b;

    if (x->head != y->head)
        return x->head < y->head ? -1 : 1;
    if (x->n_tail != y->n_tail)
        return x->n_tail > y->n_tail ? -1 : 1;
    return x->tail < y->tail ? -1 : x->tail > y->tail;
}

rg_breakers *rg_breakers_new(rg_breaker *all, size_t n, int32_t *tails, rg_error *err)
{
    rg_breakers *b = rg_zalloc(sizeof *b);

    if (!b) {
        rg_free(all);
        rg_free(tails);
        return rg_fail_memory(err, sizeof *b), NULL;
    }
    atomic_init(&b->refs, 1);
    b->all = all;
    b->n = n;
    b->tails = tails;
    if (n)
        qsort(all, n, sizeof *all, by_head);
    return b;
}

rg_breakers *rg_breakers_ref(rg_breakers *b)
{
    if (b)
        atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void rg_breakers_unref(rg_breakers *b)
{
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) > 1)
        return;
    rg_free(b->all);
    rg_free(b->tails);
    rg_free(b);
}

size_t rg_breakers_of(const rg_breakers *b, int32_t head, const rg_breaker **first)
{
    size_t low = 0, high = b ? b->n : 0, n = 0;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (b->all[mid].head < head)
            low = mid + 1;
        else
            high = mid;
    }
    *first = b ? b->all + low : NULL;
    while (b && low + n < b->n && b->all[low + n].head == head)
        n++;
    return n;
}

const int32_t *rg_breakers_tail(const rg_breakers *b, const rg_breaker *one)
{
    return b->tails + one->tail;
}
