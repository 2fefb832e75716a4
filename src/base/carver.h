/* carver.h -- one allocation for many arrays: the same function carves it twice, first to count, then to place. */
#ifndef RG_BASE_CARVER_H
#define RG_BASE_CARVER_H

#include <stddef.h>

#include "base/mem.h"

typedef struct rg_carver {
    char *base;  /* NULL: only counting */
    size_t used; /* bytes so far */
    size_t align; /* of each array */
    bool failed; /* they are more than a size can say */
} rg_carver;

/* Room for n things of a size.  NULL while only counting. */
static inline void *rg_carve(rg_carver *c, size_t n, size_t size)
{
    size_t bytes, at;

    if (!rg_round_up(c->used, c->align, &at) || !rg_mul(n, size, &bytes) ||
        !rg_add(at, bytes, &c->used) || c->used > (size_t)PTRDIFF_MAX - 64) {
        c->failed = true;
        c->used = 0;
        return NULL;
    }
    return c->base ? c->base + at : NULL;
}

/* The same for n times m things. */
static inline void *rg_carve_table(rg_carver *c, size_t n, size_t m, size_t size)
{
    size_t all = 0;

    if (!rg_mul(n, m, &all))
        c->failed = true;
    return rg_carve(c, all, size);
}

#endif
