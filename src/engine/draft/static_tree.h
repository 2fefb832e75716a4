/* static_tree.h -- Medusa's trees (Cai et al. 2024): which ranks of the heads' guesses are drafted, the same in every
 * step.
 *
 * A choice is a path of ranks, the first of the first head.  The order of choices is that in which they are worth
 * having, so that the first ones are the best smaller tree. */
#ifndef RG_ENGINE_DRAFT_STATIC_TREE_H
#define RG_ENGINE_DRAFT_STATIC_TREE_H

#include "engine/draft/draft.h"
#include "engine/sampler.h"

enum { RG_MEDUSA_RANKS = 10, RG_MEDUSA_HEADS = 16 }; /* guesses of a head, and heads, at most */

typedef struct rg_static_tree {
    int32_t n;
    uint8_t length[RG_MAX_DRAFT];
    uint8_t rank[RG_MAX_DRAFT][RG_MEDUSA_HEADS];
} rg_static_tree;

/* The authors' choices for a model of 7 billion weights: 63 of them. */
void rg_static_tree_usual(rg_static_tree *t);
/* Choices as JSON, a list of lists of ranks.  A parent stands before what follows it.  False and *err: it is damaged.
 */
bool rg_static_tree_read(rg_static_tree *t, const char *name, const char *json, size_t n, rg_error *err);

/* What the heads guess, best first. */
typedef struct rg_head_guesses {
    int32_t n_heads;
    int32_t n[RG_MEDUSA_HEADS];
    int32_t id[RG_MEDUSA_HEADS][RG_MEDUSA_RANKS];
} rg_head_guesses;

/* The first choices, at most `most` and not deeper than depth, of those whose guesses there are; chain: without
 * branches.  Shorter paths stand first, and then lower ranks. */
void rg_static_tree_draft(const rg_static_tree *t, const rg_head_guesses *g, int32_t depth, int32_t most, bool chain,
                          rg_draft_tree *out);

#endif
