/* iq2_xs.h -- 256 values, each 8 a vector of a grid of 512; runs of 16 with a 4-bit scale. */
#ifndef RG_QUANT_IQ2_XS_H
#define RG_QUANT_IQ2_XS_H

#include "quant/iq2.h"

typedef struct block_iq2_xs {
    uint8_t d[2];     /* f16 */
    uint8_t q[32][2]; /* of each 8 values: 9 bits of grid, 7 of signs */
    uint8_t s[8];     /* nibbles: the scale of run 2i in the low one of byte i */
} block_iq2_xs;

static void iq2_xs_ints(const void *block, rg_ints *out)
{
    const block_iq2_xs *b = block;

    out->table = iq2_table;
    out->f = rg_f16_to_f32(load16(b->d)) * 0.125f;
    for (int run = 0; run < 16; run++)
        out->s[run] = (int8_t)(2 * (b->s[run / 2] >> run % 2 * 4 & 15) + 1);
    for (int i = 0; i < 32; i++)
        iq2_codes(out->q + 8 * i, iq2_xs_grid[load16(b->q[i]) & 511], even_signs(load16(b->q[i]) >> 9));
}

static void iq2_xs_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_iq2_xs *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 256) {
        iq2_xs_ints(b, &ints);
        decode_table_two_level(&ints, 16, y);
    }
}

static void iq2_xs_store(const vector_fit *f, block_iq2_xs *b)
{
    store16(b->d, f->d);
    for (int i = 0; i < 32; i++)
        store16(b->q[i], (uint16_t)(f->entry[i] | (f->high[i] & 127) << 9));
    for (int run = 0; run < 16; run++)
        b->s[run / 2] |= (uint8_t)(f->scale[run] << run % 2 * 4);
}

ENCODE_VECTORS(iq2_xs, iq2_xs_grid, 512, 8, 2, iq2_table, 3, 16, 15, SIGNS_EVEN, 0.125f)

#endif
