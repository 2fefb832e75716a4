/* u64.h -- 64-bit counts that other tensors or commands explain, never weights. */
#ifndef RG_QUANT_U64_H
#define RG_QUANT_U64_H

#include "quant/block.h"

static void u64_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const uint64_t *p = blocks;

    for (int64_t i = 0; i < n_blocks; i++)
        y[i] = (float)p[i];
}

#define u64_encode NULL
#define u64_ints   NULL

#endif
