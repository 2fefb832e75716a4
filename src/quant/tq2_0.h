/* tq2_0.h -- 256 values of -1, 0 and 1 in 2 bits under one scale: w = d (q - 1). */
#ifndef RG_QUANT_TQ2_0_H
#define RG_QUANT_TQ2_0_H

#include "quant/block.h"

typedef struct block_tq2_0 {
    uint8_t q[64]; /* half h, plane p, lane l: bits 2p of byte 32h + l are value 128h + 32p + l */
    uint8_t d[2];  /* f16 */
} block_tq2_0;

static void tq2_0_ints(const void *block, rg_ints *out)
{
    const block_tq2_0 *b = block;

    out->d = load16(b->d);
    for (int i = 0; i < 256; i++)
        out->q[i] = b->q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

/* 256 values from their integers. */
static inline void decode_ternary(const rg_ints *ints, float *y)
{
    float d = rg_f16_to_f32(ints->d);

    for (int i = 0; i < 256; i++)
        y[i] = value_scale(d, ints->q[i], 1);
}

static void tq2_0_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_tq2_0 *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 256) {
        tq2_0_ints(b, &ints);
        decode_ternary(&ints, y);
    }
}

/* The largest magnitude is the scale, as the published quantizer has it.  Writes q; returns d's f16 bits. */
static inline uint16_t ternary_codes(const float *x, uint8_t q[256])
{
    float d = fabsf(extreme(x, 256)), inverse = reciprocal(d);

    for (int i = 0; i < 256; i++)
        q[i] = (uint8_t)(round_into(x[i] * inverse, -1, 1) + 1);
    return rg_f32_to_f16(d);
}

static void tq2_0_encode(const float *x, int64_t n_blocks, void *blocks)
{
    block_tq2_0 *b = blocks;
    uint8_t q[256];

    for (; n_blocks--; b++, x += 256) {
        memset(b, 0, sizeof *b);
        store16(b->d, ternary_codes(x, q));
        for (int i = 0; i < 256; i++)
            b->q[i / 128 * 32 + i % 32] |= (uint8_t)(q[i] << i % 128 / 32 * 2);
    }
}

#endif
