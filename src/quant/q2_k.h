/* q2_k.h -- 256 values in 2 bits; runs of 16 with a 4-bit scale and a 4-bit minimum: w = (d s) q - (e t). */
#ifndef RG_QUANT_Q2_K_H
#define RG_QUANT_Q2_K_H

#include "quant/fit.h"

typedef struct block_q2_k {
    uint8_t st[16];     /* low nibble s, high nibble t, of run i */
    uint8_t q[64];      /* half h, plane p, lane l: bits 2p of byte 32h + l are value 128h + 32p + l */
    uint8_t d[2], e[2]; /* f16 */
} block_q2_k;

static void q2_k_ints(const void *block, rg_ints *out)
{
    const block_q2_k *b = block;

    out->d = load16(b->d);
    out->e = load16(b->e);
    for (int run = 0; run < 16; run++) {
        out->s[run] = b->st[run] & 15;
        out->t[run] = b->st[run] >> 4;
    }
    for (int i = 0; i < 256; i++)
        out->q[i] = b->q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

static void q2_k_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_q2_k *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 256) {
        q2_k_ints(b, &ints);
        decode_two_level(&ints, 16, y);
    }
}

/* by: how much each value weighs; NULL: as the fit has it. */
static void q2_k_weighted(const float *x, const float *by, int64_t n_blocks, void *blocks)
{
    block_q2_k *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, x += 256, by = by ? by + 256 : NULL) {
        fit_minimum_256(x, by, 16, 3, 15, &ints);
        memset(b, 0, sizeof *b);
        store16(b->d, ints.d);
        store16(b->e, ints.e);
        for (int run = 0; run < 16; run++)
            b->st[run] = (uint8_t)(ints.s[run] | ints.t[run] << 4);
        for (int i = 0; i < 256; i++)
            b->q[i / 128 * 32 + i % 32] |= (uint8_t)(ints.q[i] << i % 128 / 32 * 2);
    }
}

static void q2_k_encode(const float *x, int64_t n_blocks, void *blocks)
{
    q2_k_weighted(x, NULL, n_blocks, blocks);
}

#endif
