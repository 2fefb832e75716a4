/* u16.h -- 16-bit codes and ids that other tensors or commands explain, never weights. */
#ifndef RG_QUANT_U16_H
#define RG_QUANT_U16_H

#include "quant/block.h"

static void u16_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const uint16_t *p = blocks;

    for (int64_t i = 0; i < n_blocks; i++)
        y[i] = (float)p[i];
}

#define u16_encode NULL
#define u16_ints   NULL

#endif
