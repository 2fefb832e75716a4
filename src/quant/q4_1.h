/* q4_1.h -- 32 values in 4 bits under a scale and a minimum: w = d q + m. */
#ifndef RG_QUANT_Q4_1_H
#define RG_QUANT_Q4_1_H

#include "quant/fit.h"

typedef struct block_q4_1 {
    uint8_t d[2], m[2]; /* f16 */
    uint8_t q[16];      /* low nibble: value i; high nibble: value 16 + i */
} block_q4_1;

static void q4_1_ints(const void *block, rg_ints *out)
{
    const block_q4_1 *b = block;

    out->d = load16(b->d);
    out->e = load16(b->m);
    for (int i = 0; i < 16; i++) {
        out->q[i] = b->q[i] & 15;
        out->q[16 + i] = b->q[i] >> 4;
    }
}

static void q4_1_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_q4_1 *b = blocks;

    for (; n_blocks--; b++, y += 32) {
        float d = rg_f16_to_f32(load16(b->d)), m = rg_f16_to_f32(load16(b->m));
        for (int i = 0; i < 16; i++) {
            y[i] = value_minimum(d, m, b->q[i] & 15);
            y[16 + i] = value_minimum(d, m, b->q[i] >> 4);
        }
    }
}

static void q4_1_encode(const float *x, int64_t n_blocks, void *blocks)
{
    block_q4_1 *b = blocks;

    for (; n_blocks--; b++, x += 32) {
        float low, high, d, inverse;
        range(x, 32, &low, &high);
        d = (high - low) / 15.0f;
        inverse = reciprocal(d);
        store16(b->d, rg_f32_to_f16(d));
        store16(b->m, rg_f32_to_f16(low));
        for (int i = 0; i < 16; i++) {
            float a = (x[i] - low) * inverse, c = (x[16 + i] - low) * inverse;
            b->q[i] =
                (uint8_t)(truncate_into((double)(a + 0.5f), 0, 15) | truncate_into((double)(c + 0.5f), 0, 15) << 4);
        }
    }
}

/* The line that loses least, each value weighing as `by` says. */
static void q4_1_weighted(const float *x, const float *by, int64_t n_blocks, void *blocks)
{
    block_q4_1 *b = blocks;

    for (; n_blocks--; b++, x += 32, by += 32) {
        uint16_t d, m;
        uint8_t q[32];
        fit_line_f16(x, by, 32, 15, &d, &m, q);
        store16(b->d, d);
        store16(b->m, m);
        memset(b->q, 0, sizeof b->q);
        for (int i = 0; i < 32; i++) {
            b->q[i % 16] |= (uint8_t)((q[i] & 15) << (i < 16 ? 0 : 4));
        }
    }
}

#endif
