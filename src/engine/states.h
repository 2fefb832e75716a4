/* states.h -- what sequence.c and states.c share: the engine's pools, store and prefix index, and how blocks are
 * counted.  Nobody else includes it. */
#ifndef RG_ENGINE_STATES_H
#define RG_ENGINE_STATES_H

#include "engine/sequence.h"

typedef struct pool_of {
    rg_states *states;
    int group;
} pool_of;

struct rg_states {
    rg_state_spec spec;
    rg_store *store;
    rg_blocks *pools[RG_MAX_GROUPS];
    pool_of evict_args[RG_MAX_GROUPS];
    rg_prefix *prefix; /* NULL: nothing is shared across requests */
    rg_node **path;    /* scratch of match: as many as the index has nodes */
    int32_t *count; /* scratch of check: as many as the largest pool */
    rg_seq *seqs;
    bool has_recurrent;
};

static inline int32_t blocks_for(int32_t n)
{
    return (int32_t)(((int64_t)n + RG_BLOCK - 1) / RG_BLOCK);
}

static inline bool is_recurrent(const rg_states *s, int g)
{
    return s->spec.group[g].per == RG_PER_SEQUENCE;
}

/* The most draft rows of a span. */
static inline int32_t most_drafts(const rg_states *s)
{
    return s->has_recurrent ? s->spec.max_draft : RG_MAX_DRAFT;
}

/* The first block of a group that a row at p sees. */
static inline int32_t first_kept(const rg_states *s, int g, int32_t p)
{
    int window = s->spec.group[g].window;

    return window && p >= window ? (p - window + 1) / RG_BLOCK : 0;
}

/* Blocks of group g that a sequence committed to p keeps. */
static inline int32_t kept_blocks(const rg_states *s, int g, int32_t p)
{
    return is_recurrent(s, g) ? p > 0 : blocks_for(p) - first_kept(s, g, p);
}

/* Blocks that must be taken so that [length, upto) can be written. */
int32_t rg_seq_blocks_wanted(const rg_states *s, const rg_seq *q, int g, int32_t upto);

#endif
