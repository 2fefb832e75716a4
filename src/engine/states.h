/* states.h -- what sequence.c and states.c share: the engine's pools, store and prefix index, and how blocks are
 * counted.  Nobody else includes it. */
#ifndef RG_ENGINE_STATES_H
#define RG_ENGINE_STATES_H

#include "engine/restore.h"

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
    rg_durable *durable; /* files of what prefix has, borrowed; NULL: there are none */
    struct rg_restores *restores; /* what is on its way from there; NULL without durable */
    rg_contents contents; /* of given rows that it may know */
    rg_node **path;    /* scratch of match: as many as the index has nodes */
    int32_t *count; /* scratch of check and of count, 0 between calls: as many as the largest pool, for each group */
    size_t n_count; /* of one group */
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

/* The first block of a group from which on all are kept while the next row is at p. */
static inline int32_t first_kept(const rg_states *s, int g, int32_t p)
{
    return rg_kept_from(&s->spec.group[g].kept, p);
}

/* True if a sequence committed to p keeps block b of a group of positions. */
static inline bool is_kept(const rg_states *s, int g, int32_t b, int32_t p)
{
    return b >= first_kept(s, g, p) || rg_kept_for_good(&s->spec.group[g].kept, b);
}

/* ---- files of prefixes (restore.c); all without effect where there are none ---- */

/* Hand over the blocks of q's tail, the end of these ids; and of all nodes up to it that were not handed over yet. */
void rg_states_put(const rg_states *s, const rg_seq *q, const int32_t *tokens);
void rg_states_put_path(const rg_states *s, const rg_seq *q);
void rg_restores_free(struct rg_restores *r); /* NULL is fine */
/* Add to count[block] the references that restores hold in group g. */
void rg_restores_count(const rg_states *s, int g, int32_t *count);

/* ---- counts ---- */

/* Blocks of group g that a sequence committed to p keeps. */
int32_t rg_seq_kept_blocks(const rg_states *s, int g, int32_t p);

/* Blocks that must be taken so that [length, upto) can be written. */
int32_t rg_seq_blocks_wanted(const rg_states *s, const rg_seq *q, int g, int32_t upto);

#endif
