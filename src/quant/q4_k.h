/* q4_k.h -- 256 values in 4 bits; runs of 32 with a 6-bit scale and a 6-bit minimum: w = (d s) q - (e t). */
#ifndef RG_QUANT_Q4_K_H
#define RG_QUANT_Q4_K_H

#include "quant/fit.h"
#include "quant/six_bit.h"

typedef struct block_q4_k {
    uint8_t d[2], e[2]; /* f16 */
    uint8_t st[12];
    uint8_t q[128]; /* byte 32g + l: value 64g + l in the low nibble, 64g + 32 + l in the high one */
} block_q4_k;

static void q4_k_ints(const void *block, rg_ints *out)
{
    const block_q4_k *b = block;

    out->d = load16(b->d);
    out->e = load16(b->e);
    for (int j = 0; j < 8; j++) {
        int s, t;
        six_bit_load(b->st, j, &s, &t);
        out->s[j] = (int8_t)s;
        out->t[j] = (uint8_t)t;
    }
    for (int i = 0; i < 256; i++)
        out->q[i] = b->q[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15;
}

static void q4_k_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_q4_k *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 256) {
        q4_k_ints(b, &ints);
        decode_two_level(&ints, 32, y);
    }
}

/* by: how much each value weighs; NULL: as the fit has it. */
static void q4_k_weighted(const float *x, const float *by, int64_t n_blocks, void *blocks)
{
    block_q4_k *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, x += 256, by = by ? by + 256 : NULL) {
        fit_minimum_256(x, by, 32, 15, 63, &ints);
        memset(b, 0, sizeof *b);
        store16(b->d, ints.d);
        store16(b->e, ints.e);
        for (int j = 0; j < 8; j++)
            six_bit_store(b->st, j, ints.s[j], ints.t[j]);
        for (int i = 0; i < 256; i++)
            b->q[i / 64 * 32 + i % 32] |= (uint8_t)(ints.q[i] << i % 64 / 32 * 4);
    }
}

static void q4_k_encode(const float *x, int64_t n_blocks, void *blocks)
{
    q4_k_weighted(x, NULL, n_blocks, blocks);
}

#endif
