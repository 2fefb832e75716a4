/* sparsity.h -- TEAL (Liu et al. 2024): thresholds below which activations count as zero, so that the columns of a
 * matrix that they meet need not be read; and how much of it each matrix of a layer bears. */
#ifndef RG_SHRINK_SPARSITY_H
#define RG_SHRINK_SPARSITY_H

#include "base/buf.h"
#include "shrink/stage.h"

/* The authors' histogram of what an input reads: 10,000 bins, a hundredth of the values in the first and in the last,
 * the others of one width. */
enum { RG_SPREAD_BINS = 10000 };
typedef struct rg_spread {
    double edge[RG_SPREAD_BINS + 1];
    size_t n, upto[RG_SPREAD_BINS]; /* values; of them, in the bins up to each */
} rg_spread;

/* Sorts x, n > 0 of them. */
void rg_spread_of(rg_spread *to, float *x, size_t n);
/* The threshold below which the share `sparsity` of the values lies, were they as often negative as positive. */
float rg_spread_threshold(const rg_spread *s, double sparsity);

/* The matrices of a block, and what its output loses if these shares of their inputs count as zero. */
typedef struct rg_block_loss {
    int n;
    const double *size; /* [n] of each matrix */
    bool (*loss)(void *arg, const double *share, double *loss, rg_error *err);
    void *arg;
} rg_block_loss;

/* share [n]: TEAL's algorithm 1.  From nothing, the block's sparsity (the mean of the shares by size) rises in equal
 * steps up to the target, each by that matrix with which the block's output then loses least.  No share goes past 1.
 * False and *err: the loss could not be computed. */
bool rg_allocate_greedily(const rg_block_loss *b, double target, double step, double *share,
                          rg_error *err) RG_MUST_CHECK;

typedef struct rg_sparsity_options {
    double sparsity;    /* of all matrices that get thresholds together */
    bool greedy;        /* shares by rg_allocate_greedily within each layer; else one for all */
    int n_samples, ctx; /* as the stage has them */
    void (*progress)(void *arg, const char *what, double done); /* NULL: nobody asks */
    void *progress_arg;
    bool (*stop)(void); /* true: stop.  May be NULL */
} rg_sparsity_options;

/* Of the greedy way: the step of a layer's sparsity, and samples on which its loss is computed.  That is, as the
 * authors compute it, the mean over samples and channels of the norm of what the last quarter of the rows loses. */
#define RG_SPARSITY_STEP 0.01
enum { RG_SPARSITY_SAMPLES = 4 };

/* Thresholds of all matrices of a model but its experts, whose products obey none: {"sparsity": .., "thresholds":
 * {name: ..}, "shares": {name: ..}}.  The stage stands before the first layer; if greedy, it was opened for thresholds.
 * *realized: the share of the matrices' bytes, experts' included, that meets zeros on the text. */
bool rg_sparsity_calibrate(rg_stage *s, const rg_sparsity_options *o, rg_buf *json, double *realized,
                           rg_error *err) RG_MUST_CHECK;

#endif
