/* awq.h -- AWQ (Lin et al. 2023): channels that activations make important are scaled up before they are rounded, and
 * what makes them is scaled down; then ranges are cut where that helps. */
#ifndef RG_SHRINK_AWQ_H
#define RG_SHRINK_AWQ_H

#include "shrink/folds.h"
#include "shrink/shrink.h"

enum { RG_AWQ_RATIOS = 20, RG_AWQ_CUTS = 10, RG_AWQ_SAMPLES = 16 };

/* One search: the mean square error of what the model's stream gets, for each power of the activations' mean. */
typedef struct rg_awq_search {
    double loss[RG_AWQ_RATIOS];
    int best;
    float *scale; /* [cols], to be freed */
} rg_awq_search;

/* Searches the scale of a fold's activation, with its readers' weights as they stand in the layer's matrices.  The
 * loss is the error of the matrix that reads it, if one alone does; else that of the layer, run on the first
 * RG_AWQ_SAMPLES samples.  to->scale is NULL where the readers' results do not reach the stream: nothing is scaled. */
bool rg_awq_find_scale(rg_layer_work *l, const rg_fold *fold, rg_awq_search *to, rg_error *err) RG_MUST_CHECK;

/* What a matrix reads, as the search for cuts needs it. */
typedef struct rg_awq_seen {
    const float *x; /* [n, cols], borrowed */
    int64_t n, cols, width; /* columns of a group */
    double *gram; /* [groups, width, width] products of a group's columns; NULL: groups are wider than there are rows */
} rg_awq_seen;

/* False and *err: no memory. */
bool rg_awq_seen_init(rg_awq_seen *s, const rg_coding *c, const float *x, int64_t n, int64_t cols, rg_pool *pool,
                      rg_error *err) RG_MUST_CHECK;
void rg_awq_seen_fini(rg_awq_seen *s);
/* Cut points of a row of the matrix: most[g] is the largest magnitude that group g keeps. */
void rg_awq_find_cuts(const rg_coding *c, const rg_awq_seen *s, const float *row, float *most);

#endif
