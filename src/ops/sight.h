/* sight.h -- which keys a row of attention sees, as data, and which positions a sequence has to keep for rows to come.
 *
 * A row at place i of its sequence sees keys at places j below its kv_end (batch.h): those of a window, or those that a
 * pattern admits (Sparse Transformer, Longformer, StreamingLLM, chunks).  Places are asked for 64 at a time, as bits of
 * a block.  What rows of several layers see of one store is united in an rg_kept, by which the engine lets go of
 * blocks.  Knows no K/V, no layer, no sequence. */
#ifndef RG_OPS_SIGHT_H
#define RG_OPS_SIGHT_H

#include "ops/batch.h"

enum {
    RG_MAX_TERMS = 8,     /* of one pattern */
    RG_MAX_PATTERNS = 8,  /* of one layer's heads */
    RG_MAX_LISTED = 64,   /* positions of a list */
    RG_SIGHT_HEADS = 256, /* query heads that can differ */
};

/* Which keys j a term admits to a row at i, j <= i. */
typedef enum rg_term_kind {
    RG_TERM_ALL,
    RG_TERM_WINDOW,  /* j = i - n step, n = 0 .. size - 1 */
    RG_TERM_STRIDE,  /* (i - j) mod size = 0 */
    RG_TERM_CHUNK,   /* floor(j / size) = floor(i / size) */
    RG_TERM_SUMMARY, /* j mod size >= size - step */
    RG_TERM_FIRST,   /* j < size */
    RG_TERM_LISTED,  /* i or j is one of the listed positions */
} rg_term_kind;

typedef struct rg_sight_term {
    rg_term_kind kind;
    int32_t size, step; /* size >= 1; 1 <= step, of a summary <= size */
} rg_sight_term;

/* Keys that at least one term admits, and the row's own. */
typedef struct rg_pattern {
    int n_terms;
    rg_sight_term terms[RG_MAX_TERMS];
} rg_pattern;

/* The patterns of a layer's query heads. */
typedef struct rg_patterns {
    int n_patterns;
    rg_pattern patterns[RG_MAX_PATTERNS];
    uint8_t of_head[RG_SIGHT_HEADS]; /* which of them; all 0 where there is one */
    int n_listed;
    int32_t listed[RG_MAX_LISTED];   /* of the terms of that kind; rising */
} rg_patterns;

typedef struct rg_sight {
    int32_t window;              /* keys up to the row's own, itself included; 0: all */
    bool around;                 /* and window - 1 keys after it, as far as kv_end allows; else all below kv_end */
    const rg_patterns *patterns; /* NULL: the window says all; else it says nothing */
} rg_sight;

extern const rg_sight rg_sight_all;

/* Bit n: the row sees the key at 64 block + n. */
uint64_t rg_sight_bits(const rg_sight *s, int head, int32_t i, int32_t kv_end, int32_t block);
/* No head of a row at i sees a key before this one. */
int32_t rg_sight_low(const rg_sight *s, int32_t i);
/* The last key that a row at i sees, and one more. */
static inline int32_t rg_sight_end(const rg_sight *s, int32_t i, int32_t kv_end)
{
    return s->around && s->window && kv_end - i > s->window ? i + s->window : kv_end;
}
/* What a causal row at position i sees at most: keys that a head sees, and blocks of 64 that hold them (a key that
 * several terms admit may be counted for each).  Exact where there are no patterns. */
typedef struct rg_seen {
    double keys, blocks;
} rg_seen;
rg_seen rg_sight_count(const rg_sight *s, int head, int32_t i);
/* The most keys that a row sees, however long its sequence; 0: no such limit. */
int32_t rg_sight_most(const rg_sight *s);
/* Do two query heads always see the same? */
static inline bool rg_sight_alike(const rg_sight *s, int head, int other)
{
    return !s->patterns || s->patterns->of_head[head] == s->patterns->of_head[other];
}

/* ---- what stays ---- */

/* Positions that rows from some place on can still see.  Made by rg_kept_add, from zeros. */
typedef struct rg_kept {
    bool all;                /* and then the rest is 0 */
    int32_t window;          /* so many before the next row, that row's own among them; 1 at least */
    int32_t chunk;           /* and those of its chunk; 0: no such term */
    int32_t first;           /* positions below it */
    int32_t period, columns; /* the last `columns` of every `period`; 0: none */
    int32_t until;           /* a row up to this one may see everything; 0: none */
    int n_listed;
    const int32_t *listed;   /* positions; borrowed from the patterns */
} rg_kept;

/* Also keep what rows with this sight see.  Where two sights do not unite into such a description, all stays. */
void rg_kept_add(rg_kept *k, const rg_sight *s);
bool rg_kept_same(const rg_kept *a, const rg_kept *b);
/* Blocks of 64 from this one on stay while the next row is at p; it never falls as p rises. */
int32_t rg_kept_from(const rg_kept *k, int32_t p);
/* True if an earlier block stays for good. */
bool rg_kept_for_good(const rg_kept *k, int32_t block);
/* Most blocks of a sequence of n positions while it grows by `rows` at a time, those being filled included. */
int64_t rg_kept_blocks(const rg_kept *k, int64_t n, int64_t rows);
/* True if that number grows with n without end, or as far as sequences are likely to be. */
bool rg_kept_grows(const rg_kept *k);

#endif
