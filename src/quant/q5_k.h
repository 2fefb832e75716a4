/* q5_k.h -- 256 values in 5 bits; runs of 32 with a 6-bit scale and a 6-bit minimum: w = (d s) q - (e t). */
#ifndef RG_QUANT_Q5_K_H
#define RG_QUANT_Q5_K_H

#include "quant/fit.h"
#include "quant/six_bit.h"

typedef struct block_q5_k {
    uint8_t d[2], e[2]; /* f16 */
    uint8_t st[12];
    uint8_t h[32];  /* bit j of byte l: the fifth bit of value 32j + l */
    uint8_t q[128]; /* the lower four, as in q4_k */
} block_q5_k;

static void q5_k_ints(const void *block, rg_ints *out)
{
    const block_q5_k *b = block;

    out->d = load16(b->d);
    out->e = load16(b->e);
    for (int j = 0; j < 8; j++) {
        int s, t;
        six_bit_load(b->st, j, &s, &t);
        out->s[j] = (int8_t)s;
        out->t[j] = (uint8_t)t;
    }
    for (int i = 0; i < 256; i++) {
        int low = b->q[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15, high = b->h[i % 32] >> i / 32 & 1;
        out->q[i] = (uint8_t)(low | high << 4);
    }
}

static void q5_k_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_q5_k *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 256) {
        q5_k_ints(b, &ints);
        decode_two_level(&ints, 32, y);
    }
}

/* by: how much each value weighs; NULL: as the fit has it. */
static void q5_k_weighted(const float *x, const float *by, int64_t n_blocks, void *blocks)
{
    block_q5_k *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, x += 256, by = by ? by + 256 : NULL) {
        fit_minimum_256(x, by, 32, 31, 63, &ints);
        memset(b, 0, sizeof *b);
        store16(b->d, ints.d);
        store16(b->e, ints.e);
        for (int j = 0; j < 8; j++)
            six_bit_store(b->st, j, ints.s[j], ints.t[j]);
        for (int i = 0; i < 256; i++) {
            b->q[i / 64 * 32 + i % 32] |= (uint8_t)((ints.q[i] & 15) << i % 64 / 32 * 4);
            b->h[i % 32] |= (uint8_t)(ints.q[i] >> 4 << i / 32);
        }
    }
}

static void q5_k_encode(const float *x, int64_t n_blocks, void *blocks)
{
    q5_k_weighted(x, NULL, n_blocks, blocks);
}

#endif
