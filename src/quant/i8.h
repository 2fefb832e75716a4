/* i8.h -- 8-bit signed integers: ids and counts, never a weight of a matrix product. */
#ifndef RG_QUANT_I8_H
#define RG_QUANT_I8_H

#include "quant/block.h"

static void i8_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const uint8_t *p = blocks;

    for (int64_t i = 0; i < n_blocks; i++) {
        int8_t v;
        memcpy(&v, p + (size_t)i * sizeof v, sizeof v);
        y[i] = (float)v;
    }
}

#define i8_encode NULL
#define i8_ints   NULL

#endif
