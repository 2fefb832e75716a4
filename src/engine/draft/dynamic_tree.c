/* dynamic_tree.c -- see dynamic_tree.h. */
#include "engine/draft/dynamic_tree.h"

static void add(rg_dynamic_tree *t, int32_t parent, const rg_guess *best, int32_t n)
{
    for (int32_t k = 0; k < n && k < t->width && t->n < RG_TREE_NODES; k++) {
        t->id[t->n] = best[k].id;
        t->parent[t->n] = parent;
        t->logprob[t->n++] = best[k].logprob + (parent >= 0 ? t->logprob[parent] : 0);
    }
}

void rg_dynamic_tree_begin(rg_dynamic_tree *t, int32_t width, const rg_guess *best, int32_t n)
{
    RG_ASSERT(width >= 1 && width <= RG_TREE_WIDTH);
    t->width = width;
    t->n = t->first_new = 0;
    add(t, -1, best, n);
    rg_dynamic_tree_open(t);
}

void rg_dynamic_tree_follow(rg_dynamic_tree *t, int32_t i, const rg_guess *best, int32_t n)
{
    add(t, t->open[i], best, n);
}

/* The best of nodes [first, n), best first, equal ones in their order; at most `most` of them.  A node's
 * log-probability is at most its parent's, so that the best of all are a tree.  Returns how many there are. */
static int32_t choose(const rg_dynamic_tree *t, int32_t first, int32_t most, int32_t *best)
{
    int32_t n = 0;

    for (int32_t i = first; i < t->n; i++) {
        int32_t at;

        if (n == most && !(n && t->logprob[best[n - 1]] < t->logprob[i]))
            continue;
        for (at = n < most ? n++ : n - 1; at > 0 && t->logprob[best[at - 1]] < t->logprob[i]; at--)
            best[at] = best[at - 1];
        best[at] = i;
    }
    return n;
}

void rg_dynamic_tree_open(rg_dynamic_tree *t)
{
    t->n_open = choose(t, t->first_new, t->width, t->open);
    t->first_new = t->n;
}

void rg_dynamic_tree_draft(const rg_dynamic_tree *t, int32_t most, rg_draft_tree *out, int32_t *kept)
{
    int32_t best[RG_MAX_DRAFT], to[RG_TREE_NODES], n = choose(t, 0, most < RG_MAX_DRAFT ? most : RG_MAX_DRAFT, best);
    int32_t n_kept = 0;

    for (int32_t i = 0; i < t->n; i++)
        to[i] = -1;
    for (int32_t k = 0; k < n; k++)
        to[best[k]] = 0;
    for (int32_t i = 0; i < t->n; i++) {
        if (to[i] < 0)
            continue;
        to[i] = rg_draft_add(out, t->parent[i] < 0 ? -1 : to[t->parent[i]], t->id[i]);
        if (kept)
            kept[n_kept++] = i;
    }
}
