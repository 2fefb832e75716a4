/* truth.h -- truth values that other tensors or commands explain, never weights. */
#ifndef RG_QUANT_TRUTH_H
#define RG_QUANT_TRUTH_H

#include "quant/block.h"

static void truth_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const uint8_t *p = blocks;

    for (int64_t i = 0; i < n_blocks; i++)
        y[i] = (float)p[i];
}

#define truth_encode NULL
#define truth_ints   NULL

#endif
