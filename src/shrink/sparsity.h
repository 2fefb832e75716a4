/* sparsity.h -- TEAL (Liu et al. 2024): thresholds below which activations count as zero, so that the columns of a
 * matrix that they meet need not be read. */
#ifndef RG_SHRINK_SPARSITY_H
#define RG_SHRINK_SPARSITY_H

#include "base/buf.h"
#include "shrink/stage.h"

/* The threshold below which the share `sparsity` of activations lies, were they as often negative as positive: from the
 * authors' histogram, of 10,000 bins with a hundredth of the values in the first and in the last.  Sorts x, n > 0 of
 * them. */
float rg_sparsity_threshold(float *x, size_t n, double sparsity);

/* Thresholds of all matrices of a model, the same share for each: {"sparsity": .., "thresholds": {name: ..}}.  The
 * stage stands before the first layer; *realized: the share of the values seen that lie below. */
bool rg_sparsity_calibrate(rg_stage *s, int n_samples, int ctx, double sparsity, rg_buf *json, double *realized,
                           rg_error *err) RG_MUST_CHECK;

#endif
