/* q8_0.h -- 32 values in 8 bits under one scale: w = d q, q signed. */
#ifndef RG_QUANT_Q8_0_H
#define RG_QUANT_Q8_0_H

#include "quant/block.h"

typedef struct block_q8_0 {
    uint8_t d[2]; /* f16 */
    int8_t q[32];
} block_q8_0;

static void q8_0_ints(const void *block, rg_ints *out)
{
    const block_q8_0 *b = block;

    out->d = load16(b->d);
    for (int i = 0; i < 32; i++)
        out->q[i] = (uint8_t)(b->q[i] + 128);
}

static void q8_0_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_q8_0 *b = blocks;

    for (; n_blocks--; b++, y += 32) {
        float d = rg_f16_to_f32(load16(b->d));
        for (int i = 0; i < 32; i++)
            y[i] = value_scale(d, b->q[i], 0);
    }
}

static void q8_0_encode(const float *x, int64_t n_blocks, void *blocks)
{
    block_q8_0 *b = blocks;

    for (; n_blocks--; b++, x += 32) {
        float d = fabsf(extreme(x, 32)) / 127.0f, inverse = reciprocal(d);
        store16(b->d, rg_f32_to_f16(d));
        for (int i = 0; i < 32; i++)
            b->q[i] = (int8_t)round_into(x[i] * inverse, -127, 127);
    }
}

#endif
