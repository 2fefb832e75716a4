/* copy.h -- the values of an activation in memory of the host, for readers that look at them. */
#ifndef RG_OPS_WATCH_COPY_H
#define RG_OPS_WATCH_COPY_H

#include "ops/ops.h"

/* Where one activation after the other is copied; zeroed at first. */
typedef struct rg_copy {
    float *rows; /* [rows, cols] */
    size_t room; /* in floats */
    int cols;
} rg_copy;

/* The activation as it stands here, [rows, cols], until the next copy to the same place: on the first thread of the
 * step; NULL on the others, where nothing is computed, and for want of memory.  Called by all threads alike.  Allocates
 * when an activation is larger than those before: not for serving. */
const float *rg_copy_take(rg_copy *c, rg_fwd *f, const rg_act *a);
void rg_copy_fini(rg_copy *c);

#endif
