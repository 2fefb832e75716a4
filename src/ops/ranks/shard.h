/* shard.h -- a reader of the seam that shares out a step's operations among ranks.
 *
 * The text of a model is the same on every rank, and so are its handles.  Where a rank has a part of a weight (rows,
 * columns, matrices) or of K/V (heads), it computes a run of columns of what the operation makes: the activation is
 * then *split*, and this reader hands its run on as a view.  Operations that take columns by themselves, attention and
 * recurrences go on with runs; what a product of columns gives is added up over the ranks, in their order; and an
 * operation that needs whole rows gets them gathered first.  So any text is computed right, and what no rule is for is
 * computed by every rank alike.
 *
 * Which activations are split follows from the text alone, so all ranks and threads agree without a word. */
#ifndef RG_OPS_RANKS_SHARD_H
#define RG_OPS_RANKS_SHARD_H

#include "ops/ops.h"
#include "ops/ranks/link.h"

/* What a step exchanges. */
typedef struct rg_exchanges {
    uint64_t n;     /* each waits for other ranks once */
    uint64_t bytes; /* that one rank puts into its slot */
} rg_exchanges;

typedef struct rg_shard {
    rg_reader reader; /* first: put around whatever the step's reader is */
    rg_link *link;
    rg_exchanges exchanged;     /* by this thread's account, which is that of all threads */
    int64_t units[RG_MAX_ACTS]; /* of each activation that is split: equal runs of its columns; 0: it is whole */
    const rg_weight *maker[RG_MAX_ACTS]; /* of each that is split: whose rows its columns come from, or NULL */
    /* While it is found out which weights and states ranks can have parts of, of a text that computes nothing. */
    const struct rg_shard_finder *finder; /* NULL: that is known */
    /* What this rank keeps of a recurrence's state, which is cut into so many equal parts; NULL: all of it.  Of a draft
     * row in its log, `common` bytes belong to all parts. */
    const rg_buffer *(*state_here)(const void *arg, const rg_buffer *whole, int64_t units, size_t common);
    const void *state_arg;
} rg_shard;

/* Who is asked and told meanwhile. */
typedef struct rg_shard_finder {
    /* An operation needs all of this weight, and ranks have parts of it.  It is not computed then. */
    void (*refuse)(void *arg, const rg_weight *w);
    /* An operation would have no columns to gather if this weight were cut into so many units.  True: it is from now
     * on. */
    bool (*recut)(void *arg, const rg_weight *w, int64_t units);
    void *arg;
} rg_shard_finder;

/* One thread's reader for one step, around that of f, which it replaces. */
void rg_shard_begin(rg_shard *s, rg_link *link, rg_fwd *f);
/* Have all of an activation on rank 0, after which nothing else of the step needs it. */
void rg_shard_to_zero(rg_shard *s, rg_fwd *f, rg_act *a);
/* Give f its reader back, and add what was exchanged to the link's counts. */
void rg_shard_end(rg_shard *s, rg_fwd *f);

#endif
