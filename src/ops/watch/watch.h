/* watch.h -- the reader that observes: named intermediates of a step, and mean |activation| per channel.
 *
 * Wraps the computing reader.  After each op, the first thread calls see(arg, layer, name, rows) for every output (and
 * for rg_note its input). */
#ifndef RG_OPS_WATCH_WATCH_H
#define RG_OPS_WATCH_WATCH_H

#include "ops/watch/copy.h"

typedef struct rg_watched {
    int layer;         /* -1 outside the layers */
    const char *name;
    rg_op_kind kind; /* what wrote it */
    bool note;       /* a place the model named with rg_note */
    int rows, cols;
    const float *data; /* [rows, cols], valid during the call; NULL when nothing is computed */
} rg_watched;

typedef struct rg_watch {
    rg_reader reader;  /* first */
    void (*see)(void *arg, const rg_watched *w);
    void *arg;
    rg_copy copy;
} rg_watch;

const rg_reader *rg_watch_init(rg_watch *w, const rg_reader *inner, void (*see)(void *arg, const rg_watched *w),
                               void *arg);
void rg_watch_fini(rg_watch *w);

/* Activation statistics: mean |x| per input channel of every matrix, over the rows that met it: all of them, or of an
 * expert those routed to it.  An expert's last matrix is not seen: its input never crosses the seam. */
typedef struct rg_act_stats rg_act_stats;

typedef struct rg_act_stat {
    const char *name;       /* of the weight that reads the channels */
    int n_mats, n_channels; /* stacked matrices (heads, experts), and the columns of one */
    const uint64_t *n_rows; /* [n_mats] */
    const double *sum;      /* [n_mats][n_channels] of |x| */
} rg_act_stat;

rg_act_stats *rg_act_stats_new(rg_error *err);
void rg_act_stats_free(rg_act_stats *s);
/* A reader that adds to s what every matrix of a step reads; allocates when it first meets a weight, so not for
 * serving. */
const rg_reader *rg_act_stats_wrap(rg_act_stats *s, const rg_reader *inner);
/* False: a weight was left out for want of memory. */
bool rg_act_stats_complete(const rg_act_stats *s);
int rg_act_stats_count(const rg_act_stats *s);
rg_act_stat rg_act_stats_at(const rg_act_stats *s, int i);

#endif
