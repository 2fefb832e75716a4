/* weights.h -- the verbs of weights (ops/backend.h) on this processor, whose back ends share one memory and make
 * the same layouts. */
#ifndef RG_OPS_CPU_WEIGHTS_H
#define RG_OPS_CPU_WEIGHTS_H

#include "ops/backend.h"

/* Set the verbs of weights, of their images and of paging. */
void rg_cpu_add_weights(rg_backend *b);

#endif
