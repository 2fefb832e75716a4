/* q3_k.h -- 256 values in 3 bits; runs of 16 with a signed 6-bit scale: w = (d s) (q - 4). */
#ifndef RG_QUANT_Q3_K_H
#define RG_QUANT_Q3_K_H

#include "quant/fit.h"

typedef struct block_q3_k {
    uint8_t h[32]; /* bit p of byte l: the third bit of value 32p + l */
    uint8_t q[64]; /* the lower two, as in q2_k */
    uint8_t s[12]; /* s + 32: low four bits in nibbles of bytes 0-7, high two in pairs of bits of bytes 8-11 */
    uint8_t d[2];  /* f16 */
} block_q3_k;

static void q3_k_ints(const void *block, rg_ints *out)
{
    const block_q3_k *b = block;

    out->d = load16(b->d);
    for (int run = 0; run < 16; run++) {
        int low = b->s[run % 8] >> run / 8 * 4 & 15, high = b->s[8 + run % 4] >> run / 4 * 2 & 3;
        out->s[run] = (int8_t)((low | high << 4) - 32);
    }
    for (int i = 0; i < 256; i++) {
        int low = b->q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3, high = b->h[i % 32] >> i / 32 & 1;
        out->q[i] = (uint8_t)(low | high << 2);
    }
}

static void q3_k_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_q3_k *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 256) {
        q3_k_ints(b, &ints);
        decode_signed_two_level(&ints, 4, y);
    }
}

/* by: how much each value weighs; NULL: as the fit has it. */
static void q3_k_weighted(const float *x, const float *by, int64_t n_blocks, void *blocks)
{
    block_q3_k *b = blocks;
    int8_t s[16], q[256];

    for (; n_blocks--; b++, x += 256, by = by ? by + 256 : NULL) {
        memset(b, 0, sizeof *b);
        store16(b->d, fit_signed_256(x, by, 4, 32, s, q));
        for (int run = 0; run < 16; run++) {
            int code = s[run] + 32;
            b->s[run % 8] |= (uint8_t)((code & 15) << run / 8 * 4);
            b->s[8 + run % 4] |= (uint8_t)((code >> 4) << run / 4 * 2);
        }
        for (int i = 0; i < 256; i++) {
            int code = q[i] + 4;
            b->q[i / 128 * 32 + i % 32] |= (uint8_t)((code & 3) << i % 128 / 32 * 2);
            b->h[i % 32] |= (uint8_t)((code >> 2) << i / 32);
        }
    }
}

static void q3_k_encode(const float *x, int64_t n_blocks, void *blocks)
{
    q3_k_weighted(x, NULL, n_blocks, blocks);
}

#endif
