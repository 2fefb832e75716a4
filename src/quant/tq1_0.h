/* tq1_0.h -- 256 values of -1, 0 and 1, five to a byte, under one scale: w = d (q - 1).
 *
 * A byte is the fraction 0.q0 q1 q2 q3 q4 in base 3, rounded up to 256ths: times 3^n, modulo 256, the next digit stands
 * in front. */
#ifndef RG_QUANT_TQ1_0_H
#define RG_QUANT_TQ1_0_H

#include "quant/tq2_0.h"

typedef struct block_tq1_0 {
    uint8_t q[48]; /* byte l < 32, digit n: value 32n + l; byte 32 + l, l < 16: value 160 + 16n + l */
    uint8_t h[4];  /* byte l, digit n < 4: value 240 + 4n + l */
    uint8_t d[2];  /* f16 */
} block_tq1_0;

/* Where value i is: its byte (of q and h as one), and its digit. */
static inline int tq1_0_place(int i, int *digit)
{
    if (i < 160)
        return *digit = i / 32, i % 32;
    if (i < 240)
        return *digit = (i - 160) / 16, 32 + i % 16;
    return *digit = (i - 240) / 4, 48 + i % 4;
}

static void tq1_0_ints(const void *block, rg_ints *out)
{
    static const uint8_t power[5] = { 1, 3, 9, 27, 81 };
    const block_tq1_0 *b = block;
    int digit;

    out->d = load16(b->d);
    for (int i = 0; i < 256; i++) {
        int at = tq1_0_place(i, &digit), byte = at < 48 ? b->q[at] : b->h[at - 48];
        out->q[i] = (uint8_t)((uint8_t)(byte * power[digit]) * 3 >> 8);
    }
}

static void tq1_0_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_tq1_0 *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 256) {
        tq1_0_ints(b, &ints);
        decode_ternary(&ints, y);
    }
}

static void tq1_0_encode(const float *x, int64_t n_blocks, void *blocks)
{
    static const uint8_t power[5] = { 81, 27, 9, 3, 1 };
    block_tq1_0 *b = blocks;
    uint8_t q[256];
    int digit;

    for (; n_blocks--; b++, x += 256) {
        int sum[52] = { 0 };

        store16(b->d, ternary_codes(x, q));
        for (int i = 0; i < 256; i++) {
            int at = tq1_0_place(i, &digit);
            sum[at] += q[i] * power[digit];
        }
        for (int i = 0; i < 52; i++)
            *(i < 48 ? &b->q[i] : &b->h[i - 48]) = (uint8_t)((sum[i] * 256 + 242) / 243);
    }
}

#endif
