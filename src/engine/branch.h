/* branch.h -- the beams of a request as its samples: place i of the search (beam.h) is sample i.
 *
 * Beams hold sequences all together or not at all: a request with beams begins with as many sequences as it has beams,
 * and gives all back when it is preempted.  One of them, the first that runs, then computes the state that all have in
 * common, and the others fork from it there, so that what is shared is held once however often the request was
 * preempted.  Their rows are planned like those of any samples; a beam whose candidates are listed waits for the
 * others, however many steps that takes.  The engine thread's alone, but for rg_draw_beam. */
#ifndef RG_ENGINE_BRANCH_H
#define RG_ENGINE_BRANCH_H

#include "engine/request.h"

/* True if sample i computes rows: it is written, and is no beam that waits. */
static inline bool rg_branch_is_open(const rg_request *r, int i)
{
    return atomic_load_explicit(&r->samples[i].finish, memory_order_relaxed) == RG_RUNNING &&
           (!r->beams || rg_beams_waits(r->beams, i));
}

/* The sample from which the others fork. */
static inline int rg_branch_first(const rg_request *r)
{
    int i = 0;

    while (r->beams && i < r->n_branches - 1 && !r->beams->beam[i].runs)
        i++;
    return i;
}

/* Positions that all beams have in common: before the last one of each, which each computes itself. */
static inline int32_t rg_branch_fork_at(const rg_request *r)
{
    const rg_beams *b = r->beams;

    return r->params.n_prompt + (b->n_common < b->n_ids ? b->n_common : b->n_ids - 1);
}

/* True if beam i will fork from the first and has not yet. */
bool rg_branch_is_to_fork(const rg_request *r, int i);
/* Fork the beams that are to, if the first is there. */
void rg_branch_fork(rg_states *s, rg_request *r);

/* The beams' states are given back (by the caller): what was listed is lost. */
void rg_branch_lose(rg_request *r);

/* Beam i has its candidates.  Once all have: a step of the search, and every place gets its ids, its state and where it
 * stands in the grammar; or the search is over, and the answers are told.  Returns the number of ids that beams went on
 * with. */
int32_t rg_branch_listed(rg_states *s, rg_request *r, int i);

#endif
