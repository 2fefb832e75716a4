/* gptq.h -- GPTQ (Frantar et al. 2023): columns are coded one after the other, and what is lost by each is made up for
 * in those that are still to come, by the second derivatives of the layer's error. */
#ifndef RG_SHRINK_GPTQ_H
#define RG_SHRINK_GPTQ_H

#include "base/pool.h"
#include "shrink/kbit.h"

typedef struct rg_gptq_options {
    bool act_order;     /* columns in falling order of their second derivative */
    bool static_groups; /* all scales are chosen before the first column is coded; groups are runs of columns even if
                         * the order is another */
    double damp;        /* share of the mean diagonal that is added to it; 0: 0.01 */
} rg_gptq_options;

/* Code w [rows, cols]; to has been initialised.  gram [cols, cols] is the sum of x x^T of what the matrix reads, whole,
 * up to a factor.  *damped (may be NULL): what the damping was raised to, so that the factorisation succeeds.  False:
 * no memory, or gram is not finite. */
bool rg_gptq(rg_coded *to, const rg_coding *c, const float *w, const double *gram, const rg_gptq_options *o,
             rg_pool *pool, double *damped, rg_error *err) RG_MUST_CHECK;

#endif
