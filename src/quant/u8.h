/* u8.h -- bytes: codes that other tensors explain, never weights by themselves. */
#ifndef RG_QUANT_U8_H
#define RG_QUANT_U8_H

#include "quant/block.h"

static void u8_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const uint8_t *p = blocks;

    for (int64_t i = 0; i < n_blocks; i++)
        y[i] = (float)p[i];
}

#define u8_encode NULL
#define u8_ints   NULL

#endif
