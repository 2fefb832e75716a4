/* f64.h -- IEEE double precision, little-endian; rounded to single as it is decoded. */
#ifndef RG_QUANT_F64_H
#define RG_QUANT_F64_H

#include "quant/block.h"

static void f64_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const uint8_t *p = blocks;

    for (int64_t i = 0; i < n_blocks; i++) {
        double v;
        memcpy(&v, p + (size_t)i * sizeof v, sizeof v);
        y[i] = (float)v;
    }
}

static void f64_encode(const float *x, int64_t n_blocks, void *blocks)
{
    uint8_t *p = blocks;

    for (int64_t i = 0; i < n_blocks; i++) {
        double v = (double)x[i];
        memcpy(p + (size_t)i * sizeof v, &v, sizeof v);
    }
}

#define f64_ints NULL

#endif
