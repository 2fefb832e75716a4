/* q4_0.h -- 32 values in 4 bits under one scale: w = d (q - 8).
 *
 * The scale is the extreme value over -8, so that the extreme itself is code 0 and is met exactly. */
#ifndef RG_QUANT_Q4_0_H
#define RG_QUANT_Q4_0_H

#include "quant/fit.h"
#include "quant/lattice.h"

typedef struct block_q4_0 {
    uint8_t d[2];  /* f16 */
    uint8_t q[16]; /* low nibble: value i; high nibble: value 16 + i */
} block_q4_0;

static void q4_0_ints(const void *block, rg_ints *out)
{
    const block_q4_0 *b = block;

    out->d = load16(b->d);
    for (int i = 0; i < 16; i++) {
        out->q[i] = b->q[i] & 15;
        out->q[16 + i] = b->q[i] >> 4;
    }
}

static void q4_0_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_q4_0 *b = blocks;

    for (; n_blocks--; b++, y += 32) {
        float d = rg_f16_to_f32(load16(b->d));
        for (int i = 0; i < 16; i++) {
            y[i] = value_scale(d, b->q[i] & 15, 8);
            y[16 + i] = value_scale(d, b->q[i] >> 4, 8);
        }
    }
}

/* Codes for a scale, to nearest. */
static void q4_0_put(block_q4_0 *b, const float *x, uint16_t bits)
{
    const float d = rg_f16_to_f32(bits);

    memset(b->q, 0, sizeof b->q);
    store16(b->d, bits);
    for (int i = 0; i < 32; i++) {
        int q = d == 0.0f ? 8 : round_into(x[i] / d, -8, 7) + 8;
        b->q[i % 16] |= (uint8_t)((q & 15) << (i < 16 ? 0 : 4));
    }
}

/* Values that are multiples of one step already (lattice.h) become these, if nothing is lost by it. */
static void q4_0_onto_lattice(block_q4_0 *b, const float *x)
{
    const float d = rg_lattice_step(x, 32, 8);
    block_q4_0 other;
    float y[32], z[32];

    if (d == 0.0f)
        return;
    q4_0_put(&other, x, rg_f32_to_f16(d));
    q4_0_decode(b, 1, y);
    q4_0_decode(&other, 1, z);
    if (rg_lattice_loss(x, z, 32) < rg_lattice_loss(x, y, 32))
        *b = other;
}

/* Product and sum rounded one after the other, as the published quantizer does. */
static void q4_0_encode(const float *x, int64_t n_blocks, void *blocks)
{
    block_q4_0 *b = blocks;

    for (; n_blocks--; b++, x += 32) {
        float d = extreme(x, 32) / -8.0f, inverse = reciprocal(d);
        store16(b->d, rg_f32_to_f16(d));
        for (int i = 0; i < 16; i++) {
            int low = truncate_into((double)(x[i] * inverse + 8.5f), 0, 15);
            int high = truncate_into((double)(x[16 + i] * inverse + 8.5f), 0, 15);
            b->q[i] = (uint8_t)(low | high << 4);
        }
        q4_0_onto_lattice(b, x);
    }
}

/* The scale that loses least, each value weighing as `by` says. */
static void q4_0_weighted(const float *x, const float *by, int64_t n_blocks, void *blocks)
{
    block_q4_0 *b = blocks;

    for (; n_blocks--; b++, x += 32, by += 32) {
        q4_0_put(b, x, rg_f32_to_f16(fit_scale(x, by, 32, 8)));
        q4_0_onto_lattice(b, x);
    }
}

#endif
