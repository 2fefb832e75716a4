/* q6_k.h -- 256 values in 6 bits; runs of 16 with a signed 8-bit scale: w = (d s) (q - 32). */
#ifndef RG_QUANT_Q6_K_H
#define RG_QUANT_Q6_K_H

#include "quant/fit.h"

typedef struct block_q6_k {
    uint8_t
        q[128];    /* byte 64h + 32p + l: the lower four bits of values 128h + 32p + l (low) and 64 further on (high) */
    uint8_t h[64]; /* bits 2p of byte 32h + l: the upper two of value 128h + 32p + l */
    int8_t s[16];
    uint8_t d[2]; /* f16 */
} block_q6_k;

static void q6_k_ints(const void *block, rg_ints *out)
{
    const block_q6_k *b = block;

    out->d = load16(b->d);
    memcpy(out->s, b->s, sizeof b->s);
    for (int i = 0; i < 256; i++) {
        int low = b->q[i / 128 * 64 + i % 64] >> i % 128 / 64 * 4 & 15;
        int high = b->h[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
        out->q[i] = (uint8_t)(low | high << 4);
    }
}

static void q6_k_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_q6_k *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 256) {
        q6_k_ints(b, &ints);
        decode_signed_two_level(&ints, 32, y);
    }
}

/* by: how much each value weighs; NULL: as the fit has it. */
static void q6_k_weighted(const float *x, const float *by, int64_t n_blocks, void *blocks)
{
    block_q6_k *b = blocks;
    int8_t q[256];

    for (; n_blocks--; b++, x += 256, by = by ? by + 256 : NULL) {
        memset(b, 0, sizeof *b);
        store16(b->d, fit_signed_256(x, by, 32, 128, b->s, q));
        for (int i = 0; i < 256; i++) {
            int code = q[i] + 32;
            b->q[i / 128 * 64 + i % 64] |= (uint8_t)((code & 15) << i % 128 / 64 * 4);
            b->h[i / 128 * 32 + i % 32] |= (uint8_t)(code >> 4 << i % 128 / 32 * 2);
        }
    }
}

static void q6_k_encode(const float *x, int64_t n_blocks, void *blocks)
{
    q6_k_weighted(x, NULL, n_blocks, blocks);
}

#endif
