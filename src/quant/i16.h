/* i16.h -- 16-bit signed integers, little-endian: ids and counts, never a weight of a matrix product. */
#ifndef RG_QUANT_I16_H
#define RG_QUANT_I16_H

#include "quant/block.h"

static void i16_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const uint8_t *p = blocks;

    for (int64_t i = 0; i < n_blocks; i++) {
        int16_t v;
        memcpy(&v, p + (size_t)i * sizeof v, sizeof v);
        y[i] = (float)v;
    }
}

#define i16_encode NULL
#define i16_ints   NULL

#endif
