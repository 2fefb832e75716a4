/* half.h -- the two formats of 16 bits: values one after another, each converted by itself. */
#ifndef RG_QUANT_HALF_H
#define RG_QUANT_HALF_H

#include "quant/block.h"

#define HALF_FORMAT(name)                                                                                              \
    static void name##_decode(const void *blocks, int64_t n_blocks, float *y)                                          \
    {                                                                                                                  \
        const uint8_t *p = blocks;                                                                                     \
                                                                                                                       \
        for (int64_t i = 0; i < n_blocks; i++)                                                                         \
            y[i] = rg_##name##_to_f32(load16(p + 2 * i));                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void name##_encode(const float *x, int64_t n_blocks, void *blocks)                                          \
    {                                                                                                                  \
        uint8_t *p = blocks;                                                                                           \
                                                                                                                       \
        for (int64_t i = 0; i < n_blocks; i++)                                                                         \
            store16(p + 2 * i, rg_f32_to_##name(x[i]));                                                                \
    }

#endif
