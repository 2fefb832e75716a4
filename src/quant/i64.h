/* i64.h -- 64-bit signed integers, little-endian: ids and counts, never a weight of a matrix product. */
#ifndef RG_QUANT_I64_H
#define RG_QUANT_I64_H

#include "quant/block.h"

static void i64_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const uint8_t *p = blocks;

    for (int64_t i = 0; i < n_blocks; i++) {
        int64_t v;
        memcpy(&v, p + (size_t)i * sizeof v, sizeof v);
        y[i] = (float)v;
    }
}

#define i64_encode NULL
#define i64_ints   NULL

#endif
