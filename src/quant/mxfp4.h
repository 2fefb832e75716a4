/* mxfp4.h -- 32 values of e2m1 under a power of two: w = 2^(e - 128) v, v the doubled value. */
#ifndef RG_QUANT_MXFP4_H
#define RG_QUANT_MXFP4_H

#include "quant/fp4.h"

typedef struct block_mxfp4 {
    uint8_t e;
    uint8_t q[16]; /* low nibble: value i; high nibble: value 16 + i */
} block_mxfp4;

static void mxfp4_ints(const void *block, rg_ints *out)
{
    const block_mxfp4 *b = block;

    out->table = fp4_doubled;
    out->scales[0] = b->e;
    load_nibbles(b->q, out->q);
}

static inline void mxfp4_put(const rg_ints *ints, block_mxfp4 *b)
{
    b->e = ints->scales[0];
    store_nibbles(b->q, ints->q);
}

static void mxfp4_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_mxfp4 *b = blocks;

    for (; n_blocks--; b++, y += 32) {
        float d = rg_e8m0_half_to_f32(b->e);
        for (int i = 0; i < 16; i++) {
            y[i] = value_table(d, fp4_doubled[b->q[i] & 15]);
            y[16 + i] = value_table(d, fp4_doubled[b->q[i] >> 4]);
        }
    }
}

/* The power of two of the largest value is that of 4, the largest of a code: 2^(e - 127) <= most / 4 < 2^(e - 126). */
static void mxfp4_encode(const float *x, int64_t n_blocks, void *blocks)
{
    block_mxfp4 *b = blocks;

    for (; n_blocks--; b++, x += 32) {
        float most = fabsf(extreme(x, 32)), d;
        int exponent = 0;

        if (most > 0.0f && !isinf(most))
            frexpf(most, &exponent); /* most = m 2^exponent, 0.5 <= m < 1 */
        b->e = most > 0.0f ? (uint8_t)(exponent < -124 ? 0 : exponent + 124) : 0;
        d = rg_e8m0_half_to_f32(b->e);
        for (int i = 0; i < 16; i++)
            b->q[i] = (uint8_t)(nearest_code(fp4_doubled, d, x[i]) | nearest_code(fp4_doubled, d, x[16 + i]) << 4);
    }
}

#endif
