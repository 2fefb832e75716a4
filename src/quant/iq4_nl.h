/* iq4_nl.h -- 32 codes of a table of unevenly spaced integers under one scale: w = d table[q]. */
#ifndef RG_QUANT_IQ4_NL_H
#define RG_QUANT_IQ4_NL_H

#include "quant/fit_table.h"

static const float iq4_table[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };

typedef struct block_iq4_nl {
    uint8_t d[2];  /* f16 */
    uint8_t q[16]; /* low nibble: value i; high nibble: value 16 + i */
} block_iq4_nl;

static void iq4_nl_ints(const void *block, rg_ints *out)
{
    const block_iq4_nl *b = block;

    out->table = iq4_table;
    out->d = load16(b->d);
    load_nibbles(b->q, out->q);
}

static void iq4_nl_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_iq4_nl *b = blocks;

    for (; n_blocks--; b++, y += 32) {
        float d = rg_f16_to_f32(load16(b->d));
        for (int i = 0; i < 16; i++) {
            y[i] = value_table(d, iq4_table[b->q[i] & 15]);
            y[16 + i] = value_table(d, iq4_table[b->q[i] >> 4]);
        }
    }
}

/* by: how much each value weighs; NULL: all alike. */
static void iq4_nl_weighted(const float *x, const float *by, int64_t n_blocks, void *blocks)
{
    static const float alike[32] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    block_iq4_nl *b = blocks;

    for (; n_blocks--; b++, x += 32, by = by ? by + 32 : NULL) {
        uint16_t d = rg_f32_to_f16(fit_table_scale(x, by ? by : alike, 32, iq4_table));
        float stored = rg_f16_to_f32(d);

        store16(b->d, d);
        for (int i = 0; i < 16; i++)
            b->q[i] =
                (uint8_t)(nearest_code(iq4_table, stored, x[i]) | nearest_code(iq4_table, stored, x[16 + i]) << 4);
    }
}

static void iq4_nl_encode(const float *x, int64_t n_blocks, void *blocks)
{
    iq4_nl_weighted(x, NULL, n_blocks, blocks);
}

#endif
