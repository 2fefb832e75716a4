/* tree.h -- a root row and a tree of drafts behind it as one span, and the chain of each of its rows as plain rows. */
#ifndef RG_TEST_TREE_H
#define RG_TEST_TREE_H

#include <string.h>

#include "ops/batch.h"

enum { TREE_ROWS = 10 };

/* The parent of each row; row 0 is the root and no draft. */
static const int tree_parent[TREE_ROWS] = { -1, 0, 0, 1, 2, 2, 3, 5, 5, 7 };

/* Some rows of one sequence, as a batch.  It points into itself. */
typedef struct tree {
    int n, place[TREE_ROWS];               /* where each row's operands lie */
    int32_t index[TREE_ROWS], end[TREE_ROWS], slot[TREE_ROWS], pos[TREE_ROWS][4];
    int32_t lists[TREE_ROWS][TREE_ROWS];
    const int32_t *ancestors[TREE_ROWS];
    rg_span span;
    rg_batch batch;
} tree;

/* like: its tables are the span's. */
static inline void tree_rows(tree *t, int n, int start, const rg_span *like)
{
    memset(t, 0, sizeof *t);
    t->n = n;
    t->span = *like;
    t->span.n_rows = n;
    t->span.start = start;
    t->batch = (rg_batch){ .n_rows = n, .n_spans = 1, .spans = &t->span, .index = t->index, .kv_end = t->end,
                           .pos = (const int32_t(*)[4])t->pos };
}

/* The tree, whose root is at position start; operands of row i are at place start + i. */
static inline void tree_init(tree *t, int start, const rg_span *like)
{
    int depth[TREE_ROWS];

    tree_rows(t, TREE_ROWS, start, like);
    t->span.n_draft = TREE_ROWS - 1;
    t->batch.slot = t->slot;
    t->batch.ancestors = t->ancestors;
    for (int i = 0; i < TREE_ROWS; i++) {
        depth[i] = i ? depth[tree_parent[i]] + 1 : 0;
        t->index[i] = start + depth[i];
        t->end[i] = t->index[i] + 1;
        t->slot[i] = t->place[i] = start + i;
        t->ancestors[i] = i ? t->lists[i] : NULL;
        for (int d = depth[i], a = i; d > 0; a = tree_parent[a])
            t->lists[i][--d] = start + a;
    }
}

/* The rows from the root to row i, with their operands, as rows that are no drafts. */
static inline void tree_chain(tree *t, int i, int start, const rg_span *like)
{
    int n = 1;

    for (int a = i; tree_parent[a] >= 0; a = tree_parent[a])
        n++;
    tree_rows(t, n, start, like);
    for (int d = n - 1, a = i; d >= 0; d--, a = tree_parent[a]) {
        t->place[d] = start + a;
        t->index[d] = start + d;
        t->end[d] = start + d + 1;
    }
}

#endif
