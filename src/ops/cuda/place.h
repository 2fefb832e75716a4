/* place.h -- weights in the device's memory: how formats become the layouts of params.h, and the verbs of weights. */
#ifndef RG_OPS_CUDA_PLACE_H
#define RG_OPS_CUDA_PLACE_H

#include "ops/backend.h"
#include "ops/cuda/device.h"

typedef struct rg_cuda_placed {
    rg_placed placed;  /* first */
    rgk_matrix matrix; /* of a vector: `at` alone */
    size_t bytes;
    bool is_vector;
    uint8_t *host;     /* the same bytes, where rows are put; NULL: the device has them all */
} rg_cuda_placed;

static inline const rg_cuda_placed *rg_cuda_placed_of(const rg_placed *p)
{
    return (const rg_cuda_placed *)p;
}

/* What has been put is on the device when this returns.  Between steps, or before the first use in one. */
void rg_cuda_settle(const rg_placed *p);

/* True, and which layout, if matrices of this type can be there. */
bool rg_cuda_layout_of(rg_type type, rgk_layout *layout);
void rg_cuda_add_weights(rg_backend *b);

#endif
