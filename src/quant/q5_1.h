/* q5_1.h -- 32 values in 5 bits under a scale and a minimum: w = d q + m.  */
#ifndef RG_QUANT_Q5_1_H
#define RG_QUANT_Q5_1_H

#include "quant/fit.h"

typedef struct block_q5_1 {
    uint8_t d[2], m[2]; /* f16 */
    uint8_t h[4];       /* bit i: the fifth bit of value i */
    uint8_t q[16];      /* low nibble: value i; high nibble: value 16 + i */
} block_q5_1;

static inline int q5_1_code(const block_q5_1 *b, uint32_t h, int i)
{
    int low = i < 16 ? b->q[i] & 15 : b->q[i - 16] >> 4;

    return low | (int)(h >> i & 1) << 4;
}

static void q5_1_ints(const void *block, rg_ints *out)
{
    const block_q5_1 *b = block;
    uint32_t h = load32(b->h);

    out->d = load16(b->d);
    out->e = load16(b->m);
    for (int i = 0; i < 32; i++)
        out->q[i] = (uint8_t)q5_1_code(b, h, i);
}

static void q5_1_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_q5_1 *b = blocks;

    for (; n_blocks--; b++, y += 32) {
        float d = rg_f16_to_f32(load16(b->d)), m = rg_f16_to_f32(load16(b->m));
        uint32_t h = load32(b->h);
        for (int i = 0; i < 32; i++)
            y[i] = value_minimum(d, m, q5_1_code(b, h, i));
    }
}

static void q5_1_encode(const float *x, int64_t n_blocks, void *blocks)
{
    block_q5_1 *b = blocks;

    for (; n_blocks--; b++, x += 32) {
        float low, high, d, inverse;
        uint32_t h = 0;
        range(x, 32, &low, &high);
        d = (high - low) / 31.0f;
        inverse = reciprocal(d);
        memset(b->q, 0, sizeof b->q);
        for (int i = 0; i < 32; i++) {
            float a = (x[i] - low) * inverse;
            int q = truncate_into((double)(a + 0.5f), 0, 31);
            b->q[i % 16] |= (uint8_t)((q & 15) << (i < 16 ? 0 : 4));
            h |= (uint32_t)(q >> 4) << i;
        }
        store16(b->d, rg_f32_to_f16(d));
        store16(b->m, rg_f32_to_f16(low));
        store32(b->h, h);
    }
}

/* The line that loses least, each value weighing as `by` says. */
static void q5_1_weighted(const float *x, const float *by, int64_t n_blocks, void *blocks)
{
    block_q5_1 *b = blocks;

    for (; n_blocks--; b++, x += 32, by += 32) {
        uint16_t d, m;
        uint8_t q[32];
        uint32_t h = 0;
        fit_line_f16(x, by, 32, 31, &d, &m, q);
        store16(b->d, d);
        store16(b->m, m);
        memset(b->q, 0, sizeof b->q);
        for (int i = 0; i < 32; i++) {
            b->q[i % 16] |= (uint8_t)((q[i] & 15) << (i < 16 ? 0 : 4));
            h |= (uint32_t)(q[i] >> 4) << i;
        }
        store32(b->h, h);
    }
}

#endif
