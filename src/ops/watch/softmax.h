/* softmax.h -- the reader that looks at the weights of attention: how many are small, by layer and position.
 *
 * Wraps the computing reader, keeps the keys that layers store, and works out the weights of some rows in double.  Of
 * sequences that begin at place 0, one at a time, whose rows see nothing behind them; K/V in f32. */
#ifndef RG_OPS_WATCH_SOFTMAX_H
#define RG_OPS_WATCH_SOFTMAX_H

#include "ops/watch/copy.h"

enum { RG_SOFTMAX_THRESHOLDS = 3, RG_SOFTMAX_PLACES = 8 };

extern const double rg_softmax_thresholds[RG_SOFTMAX_THRESHOLDS]; /* 1e-4, 1e-3, 1e-2 */
/* The first position of each run of positions that is told of by itself: 0, 64, 256, 1024, ... */
int rg_softmax_place(int i);

/* Sums over heads of rows. */
typedef struct rg_softmax_sums {
    double rows, keys, blocks;            /* heads of rows; keys that they see; blocks of 64 that hold them */
    double below[RG_SOFTMAX_THRESHOLDS];  /* keys whose weight is below it */
    double unread[RG_SOFTMAX_THRESHOLDS]; /* blocks that attention leaves out at this threshold (rg_fwd), */
    double lost[RG_SOFTMAX_THRESHOLDS];   /*   and the weights of their keys */
} rg_softmax_sums;

typedef struct rg_softmax_stats rg_softmax_stats;

/* Statistics of every `every`-th row.  NULL and *err: no memory. */
rg_softmax_stats *rg_softmax_stats_new(int n_layers, int every, rg_error *err);
void rg_softmax_stats_free(rg_softmax_stats *s); /* NULL is fine */
/* A reader that adds to s; allocates when sequences grow, so not for serving. */
const rg_reader *rg_softmax_stats_wrap(rg_softmax_stats *s, const rg_reader *inner);
/* False: something was left out, for want of memory, or since a layer's keys are chosen by an indexer. */
bool rg_softmax_stats_complete(const rg_softmax_stats *s);
/* Rows of a layer at positions from rg_softmax_place(place) on.  rows 0: there are none. */
const rg_softmax_sums *rg_softmax_stats_at(const rg_softmax_stats *s, int layer, int place);

#endif
