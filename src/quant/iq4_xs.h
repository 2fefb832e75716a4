/* iq4_xs.h -- 256 codes of iq4_nl's table; runs of 32 with a 6-bit scale: w = (d (s - 32)) table[q]. */
#ifndef RG_QUANT_IQ4_XS_H
#define RG_QUANT_IQ4_XS_H

#include "quant/iq4_nl.h"

typedef struct block_iq4_xs {
    uint8_t d[2];     /* f16 */
    uint8_t high[2];  /* bits 2j: the upper two of scale j */
    uint8_t low[4];   /* nibbles: the lower four, scale 2i in the low one of byte i */
    uint8_t q[8][16]; /* of each run: low nibble: value i; high nibble: value 16 + i */
} block_iq4_xs;

static void iq4_xs_ints(const void *block, rg_ints *out)
{
    const block_iq4_xs *b = block;

    out->table = iq4_table;
    out->f = rg_f16_to_f32(load16(b->d));
    for (int run = 0; run < 8; run++) {
        int low = b->low[run / 2] >> run % 2 * 4 & 15, high = load16(b->high) >> 2 * run & 3;
        out->s[run] = (int8_t)((low | high << 4) - 32);
        load_nibbles(b->q[run], out->q + 32 * run);
    }
}

static void iq4_xs_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_iq4_xs *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 256) {
        iq4_xs_ints(b, &ints);
        decode_table_two_level(&ints, 32, y);
    }
}

static void iq4_xs_encode(const float *x, int64_t n_blocks, void *blocks)
{
    block_iq4_xs *b = blocks;

    for (; n_blocks--; b++, x += 256) {
        float scales[8], most, inverse, d;
        uint16_t high = 0;

        for (int run = 0; run < 8; run++)
            scales[run] = fit_table_scale(x + 32 * run, 32, iq4_table);
        most = extreme(scales, 8);
        memset(b, 0, sizeof *b);
        store16(b->d, rg_f32_to_f16(most / -32.0f));
        d = rg_f16_to_f32(load16(b->d));
        inverse = reciprocal(d);
        for (int run = 0; run < 8; run++) {
            int s = round_into(scales[run] * inverse, -32, 31), code = s + 32;
            float scale = d * (float)s;

            high |= (uint16_t)(code >> 4 << 2 * run);
            b->low[run / 2] |= (uint8_t)((code & 15) << run % 2 * 4);
            for (int i = 0; i < 16; i++)
                b->q[run][i] = (uint8_t)(nearest_code(iq4_table, scale, x[32 * run + i]) |
                                         nearest_code(iq4_table, scale, x[32 * run + 16 + i]) << 4);
        }
        store16(b->high, high);
    }
}

#endif
