/* float8.h -- the two formats of floats of 8 bits, values one after another, and powers of two that scale others. */
#ifndef RG_QUANT_FLOAT8_H
#define RG_QUANT_FLOAT8_H

#include "quant/block.h"

#define FLOAT8(name, from)                                                                                             \
    static void f8_##name##_decode(const void *blocks, int64_t n_blocks, float *y)                                     \
    {                                                                                                                  \
        const uint8_t *p = blocks;                                                                                     \
                                                                                                                       \
        for (int64_t i = 0; i < n_blocks; i++)                                                                         \
            y[i] = from(p[i]);                                                                                         \
    }

static inline float e8m0_value(uint8_t e)
{
    return e == 255 ? NAN : 2.0f * rg_e8m0_half_to_f32(e);
}

FLOAT8(e4m3, rg_e4m3_to_f32)
FLOAT8(e5m2, rg_e5m2_to_f32)
FLOAT8(e8m0, e8m0_value)

#define f8_e4m3_encode NULL
#define f8_e4m3_ints   NULL
#define f8_e5m2_encode NULL
#define f8_e5m2_ints   NULL
#define f8_e8m0_encode NULL
#define f8_e8m0_ints   NULL

#endif
