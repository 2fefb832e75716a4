/* q5_0.h -- 32 values in 5 bits under one scale: w = d (q - 16).  */
#ifndef RG_QUANT_Q5_0_H
#define RG_QUANT_Q5_0_H

#include "quant/fit.h"
#include "quant/lattice.h"

typedef struct block_q5_0 {
    uint8_t d[2];  /* f16 */
    uint8_t h[4];  /* bit i: the fifth bit of value i */
    uint8_t q[16]; /* low nibble: value i; high nibble: value 16 + i */
} block_q5_0;

static inline int q5_0_code(const block_q5_0 *b, uint32_t h, int i)
{
    int low = i < 16 ? b->q[i] & 15 : b->q[i - 16] >> 4;

    return low | (int)(h >> i & 1) << 4;
}

static void q5_0_ints(const void *block, rg_ints *out)
{
    const block_q5_0 *b = block;
    uint32_t h = load32(b->h);

    out->d = load16(b->d);
    for (int i = 0; i < 32; i++)
        out->q[i] = (uint8_t)q5_0_code(b, h, i);
}

static void q5_0_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_q5_0 *b = blocks;

    for (; n_blocks--; b++, y += 32) {
        float d = rg_f16_to_f32(load16(b->d));
        uint32_t h = load32(b->h);
        for (int i = 0; i < 32; i++)
            y[i] = value_scale(d, q5_0_code(b, h, i), 16);
    }
}

/* Codes for a scale, to nearest. */
static void q5_0_put(block_q5_0 *b, const float *x, uint16_t bits)
{
    const float d = rg_f16_to_f32(bits);
    uint32_t h = 0;

    memset(b->q, 0, sizeof b->q);
    store16(b->d, bits);
    for (int i = 0; i < 32; i++) {
        int q = d == 0.0f ? 16 : round_into(x[i] / d, -16, 15) + 16;
        b->q[i % 16] |= (uint8_t)((q & 15) << (i < 16 ? 0 : 4));
        h |= (uint32_t)(q >> 4) << i;
    }
    store32(b->h, h);
}

/* As q4_0_onto_lattice. */
static void q5_0_onto_lattice(block_q5_0 *b, const float *x)
{
    const float d = rg_lattice_step(x, 32, 16);
    block_q5_0 other;
    float y[32], z[32];

    if (d == 0.0f)
        return;
    q5_0_put(&other, x, rg_f32_to_f16(d));
    q5_0_decode(b, 1, y);
    q5_0_decode(&other, 1, z);
    if (rg_lattice_loss(x, z, 32) < rg_lattice_loss(x, y, 32))
        *b = other;
}

static void q5_0_encode(const float *x, int64_t n_blocks, void *blocks)
{
    block_q5_0 *b = blocks;

    for (; n_blocks--; b++, x += 32) {
        float d = extreme(x, 32) / -16.0f, inverse = reciprocal(d);
        uint32_t h = 0;
        memset(b->q, 0, sizeof b->q);
        for (int i = 0; i < 32; i++) {
            int q = truncate_into((double)(x[i] * inverse + 16.5f), 0, 31);
            b->q[i % 16] |= (uint8_t)((q & 15) << (i < 16 ? 0 : 4));
            h |= (uint32_t)(q >> 4) << i;
        }
        store16(b->d, rg_f32_to_f16(d));
        store32(b->h, h);
        q5_0_onto_lattice(b, x);
    }
}

/* The scale that loses least, each value weighing as `by` says. */
static void q5_0_weighted(const float *x, const float *by, int64_t n_blocks, void *blocks)
{
    block_q5_0 *b = blocks;

    for (; n_blocks--; b++, x += 32, by += 32) {
        q5_0_put(b, x, rg_f32_to_f16(fit_scale(x, by, 32, 16)));
        q5_0_onto_lattice(b, x);
    }
}

#endif
