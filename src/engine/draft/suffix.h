/* suffix.h -- where the last ids of a text stood before, and how texts went on from there (SuffixDecoding, 2411.04975).
 *
 * An index is a ring of ids: the latest texts, one behind the other, each of one scope; a text is found within its
 * scope alone.  Each place knows the latest place before it with the same id, and with the same two ids, by way of
 * tables of heads that are indexed by a hash.  So an id is added in constant time, is forgotten when the ring comes
 * round to it, and the memory is fixed when the index is made: 28 bytes a place.  A search looks at RG_SUFFIX_LOOKS
 * places of each of the two chains at most, the latest first.
 *
 * The places found are what a suffix automaton's states stand for.  The chance of an id after the last m is the part of
 * the places with the same m ids that went on with it. */
#ifndef RG_ENGINE_DRAFT_SUFFIX_H
#define RG_ENGINE_DRAFT_SUFFIX_H

#include "base/error.h"
#include "model/state.h"

enum {
    RG_SUFFIX_LOOKS = 128,
    RG_SUFFIX_MATCHES = 4 * RG_SUFFIX_LOOKS, /* of two indexes */
};

typedef struct rg_suffix_index rg_suffix_index;

/* Room for at least so many ids.  NULL and *err: no memory. */
rg_suffix_index *rg_suffix_index_new(int32_t n, rg_error *err);
void rg_suffix_index_free(rg_suffix_index *x); /* NULL is fine */
void rg_suffix_index_clear(rg_suffix_index *x);
/* One id more of the text that was begun last, which belongs to this scope; what is no id ends it. */
void rg_suffix_index_add(rg_suffix_index *x, int32_t id, uint64_t scope);

/* A place whose last ids are those of a text: the last `length` of them, at most as many as were asked for. */
typedef struct rg_suffix_match {
    const rg_suffix_index *index;
    uint32_t next; /* the place after it */
    int32_t length;
} rg_suffix_match;

/* Places at which the last id of ids[0, n) stands, with as many of those before as agree, up to max_length; the
 * text's own end is none.  Writes at most `room`, returns their number. */
int32_t rg_suffix_find(const rg_suffix_index *x, uint64_t scope, const int32_t *ids, int32_t n, int32_t max_length,
                       rg_suffix_match *out, int32_t room);

typedef struct rg_suffix_limits {
    int32_t max_length;    /* ids of the match and of the draft's path together */
    int32_t most;          /* ids of a draft */
    float factor, offset;  /* ... and at most factor * (length of the match) + offset */
    float min_probability; /* of an id, those before it on its path included */
    bool chain;
} rg_suffix_limits;

typedef struct rg_suffix_draft {
    int32_t n;
    int32_t id[RG_MAX_DRAFT], parent[RG_MAX_DRAFT]; /* parents before children; -1: it follows the text */
    float probability[RG_MAX_DRAFT];
    float score;           /* their sum: how many ids are expected to be right */
    int32_t length;        /* of the match that it goes on from; 0: there is none */
} rg_suffix_draft;

/* The draft of the highest score over all lengths of match; of several, that of the longest match.  Puts the matches
 * in another order. */
void rg_suffix_draft_best(rg_suffix_match *matches, int32_t n, const rg_suffix_limits *limits, rg_suffix_draft *best);

#endif
