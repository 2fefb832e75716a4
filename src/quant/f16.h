/* f16.h -- IEEE half precision, little-endian; rounded to nearest even. */
#ifndef RG_QUANT_F16_H
#define RG_QUANT_F16_H

#include "quant/block.h"

static void f16_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const uint8_t *p = blocks;

    for (int64_t i = 0; i < n_blocks; i++)
        y[i] = rg_f16_to_f32(load16(p + 2 * i));
}

static void f16_encode(const float *x, int64_t n_blocks, void *blocks)
{
    uint8_t *p = blocks;

    for (int64_t i = 0; i < n_blocks; i++)
        store16(p + 2 * i, rg_f32_to_f16(x[i]));
}

#define f16_ints NULL

#endif
