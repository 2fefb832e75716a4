/* f32.h -- IEEE single precision, little-endian. */
#ifndef RG_QUANT_F32_H
#define RG_QUANT_F32_H

#include "quant/block.h"

static void f32_decode(const void *blocks, int64_t n_blocks, float *y)
{
    if (n_blocks)
        memcpy(y, blocks, (size_t)n_blocks * sizeof *y);
}

static void f32_encode(const float *x, int64_t n_blocks, void *blocks)
{
    if (n_blocks)
        memcpy(blocks, x, (size_t)n_blocks * sizeof *x);
}

#define f32_ints NULL

#endif
