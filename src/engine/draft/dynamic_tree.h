/* dynamic_tree.h -- EAGLE-2's tree (Li et al. 2024): grow by the likeliest nodes, and draft the likeliest of all.
 *
 * A node's log-probability is that of its path being right, as the drafter sees it.  Each level has the best
 * followers of every node that was open; the best of them are open next.  Pure functions over plain data. */
#ifndef RG_ENGINE_DRAFT_DYNAMIC_TREE_H
#define RG_ENGINE_DRAFT_DYNAMIC_TREE_H

#include "engine/draft/draft.h"
#include "engine/sampler.h"

enum {
    RG_TREE_WIDTH = 10, /* nodes that are open at once, and followers of one, at most */
    RG_TREE_DEPTH = 8,
    RG_TREE_NODES = RG_TREE_WIDTH + (RG_TREE_DEPTH - 1) * RG_TREE_WIDTH * RG_TREE_WIDTH,
};

typedef struct rg_dynamic_tree {
    int32_t width;                 /* 1 .. RG_TREE_WIDTH */
    int32_t n;
    int32_t id[RG_TREE_NODES], parent[RG_TREE_NODES]; /* -1: after the answer's last id */
    float logprob[RG_TREE_NODES];
    int32_t n_open, open[RG_TREE_WIDTH];
    int32_t first_new;             /* nodes of the level that is being made */
} rg_dynamic_tree;

/* Begin a tree with guesses of the id after the answer's last one: the first `width` of `best`, which is sorted, best
 * first.  All of them are open. */
void rg_dynamic_tree_begin(rg_dynamic_tree *t, int32_t width, const rg_guess *best, int32_t n);
/* What may follow the i-th open node. */
void rg_dynamic_tree_follow(rg_dynamic_tree *t, int32_t i, const rg_guess *best, int32_t n);
/* All open nodes have their followers: open the best of these. */
void rg_dynamic_tree_open(rg_dynamic_tree *t);
/* The best nodes, at most so many, as a draft: in the order in which they were made.  Which of the tree's each is goes
 * to kept [RG_MAX_DRAFT], unless that is NULL. */
void rg_dynamic_tree_draft(const rg_dynamic_tree *t, int32_t most, rg_draft_tree *out, int32_t *kept);

#endif
