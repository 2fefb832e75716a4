/* search.h -- the tree search of a request: place i of the tree (tree.h) is sample i, and its path the sample's ids.
 *
 * A sample whose path has ended gives back its state, which the prefix index keeps, and the next round's path begins
 * with what the index has of it: so paths share their blocks, preempted ones too.  Where values come from a scorer, the
 * request leaves the scheduler after each round (it is held), the reader's thread values the paths, and hands it in
 * again. */
#ifndef RG_ENGINE_WORK_SEARCH_H
#define RG_ENGINE_WORK_SEARCH_H

#include "engine/tree.h"
#include "engine/work/work.h"

/* The search of a request; NULL: it has none. */
rg_tree *rg_search_of(const rg_request *r);

/* The score of the answer that is told as number k; NaN: there is none. */
double rg_search_score(const rg_request *r, int32_t k);

#endif
