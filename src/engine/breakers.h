/* breakers.h -- DRY's sequence breakers as ids: the runs of ids that end a sequence.
 *
 * A breaker is a head, the id in which its text begins, and a tail, the ids of what remains of the text.  The engine
 * knows no texts: whoever has the tokenizer makes these.  Immutable and counted: requests share them, on any thread. */
#ifndef RG_ENGINE_BREAKERS_H
#define RG_ENGINE_BREAKERS_H

#include "base/error.h"

typedef struct rg_breaker {
    int32_t head;
    int32_t tail, n_tail; /* ids tails[tail, tail + n_tail); n_tail 0: the head alone is a breaker */
} rg_breaker;

typedef struct rg_breakers rg_breakers;

/* From all [n] and the tails that they point into, both made with base/mem and taken, on failure too.  One reference.
 * NULL and *err: no memory. */
rg_breakers *rg_breakers_new(rg_breaker *all, size_t n, int32_t *tails, rg_error *err);
rg_breakers *rg_breakers_ref(rg_breakers *b); /* b; NULL is fine, as below */
void rg_breakers_unref(rg_breakers *b);

/* The breakers with this head, the longest first, into *first; their number. */
size_t rg_breakers_of(const rg_breakers *b, int32_t head, const rg_breaker **first);
const int32_t *rg_breakers_tail(const rg_breakers *b, const rg_breaker *one);

#endif
