/* u32.h -- 32-bit codes and ids that other tensors or commands explain, never weights. */
#ifndef RG_QUANT_U32_H
#define RG_QUANT_U32_H

#include "quant/block.h"

static void u32_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const uint32_t *p = blocks;

    for (int64_t i = 0; i < n_blocks; i++)
        y[i] = (float)p[i];
}

#define u32_encode NULL
#define u32_ints   NULL

#endif
