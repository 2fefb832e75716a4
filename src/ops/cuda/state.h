/* state.h -- the memory of sequences on the device: the verbs of state. */
#ifndef RG_OPS_CUDA_STATE_H
#define RG_OPS_CUDA_STATE_H

#include "ops/backend.h"
#include "ops/cuda/device.h"

typedef struct rg_cuda_group {
    uint8_t *data; /* of the device */
    size_t block_bytes;
    bool per_position; /* it has a block for every 64 positions, not one for a sequence */
} rg_cuda_group;

int rg_cuda_state_groups(const rg_state_memory *m, const rg_cuda_group **groups);
void rg_cuda_add_state(rg_backend *b);

#endif
