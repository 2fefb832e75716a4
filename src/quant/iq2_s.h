/* iq2_s.h -- 256 values, each 8 a vector of a grid of 1,024 with signs of its own; runs of 16 with a 4-bit scale. */
#ifndef RG_QUANT_IQ2_S_H
#define RG_QUANT_IQ2_S_H

#include "quant/iq2.h"

typedef struct block_iq2_s {
    uint8_t d[2];      /* f16 */
    uint8_t q[32];     /* of each 8 values: the lower 8 bits of grid, */
    uint8_t signs[32]; /* a bit for each negative value, */
    uint8_t h[8];      /* and in pairs of bits the upper two of grid */
    uint8_t s[8];      /* nibbles: the scale of run 2i in the low one of byte i */
} block_iq2_s;

static void iq2_s_ints(const void *block, rg_ints *out)
{
    const block_iq2_s *b = block;

    out->table = iq2_table;
    out->f = rg_f16_to_f32(load16(b->d)) * 0.125f;
    for (int run = 0; run < 16; run++)
        out->s[run] = (int8_t)(2 * (b->s[run / 2] >> run % 2 * 4 & 15) + 1);
    for (int i = 0; i < 32; i++)
        iq2_codes(out->q + 8 * i, iq2_s_grid[b->q[i] | (b->h[i / 4] >> i % 4 * 2 & 3) << 8], b->signs[i]);
}

static void iq2_s_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_iq2_s *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 256) {
        iq2_s_ints(b, &ints);
        decode_table_two_level(&ints, 16, y);
    }
}

static void iq2_s_store(const vector_fit *f, block_iq2_s *b)
{
    store16(b->d, f->d);
    for (int i = 0; i < 32; i++) {
        b->q[i] = (uint8_t)f->entry[i];
        b->signs[i] = f->high[i];
        b->h[i / 4] |= (uint8_t)(f->entry[i] >> 8 << i % 4 * 2);
    }
    for (int run = 0; run < 16; run++)
        b->s[run / 2] |= (uint8_t)(f->scale[run] << run % 2 * 4);
}

ENCODE_VECTORS(iq2_s, iq2_s_grid, 1024, 8, 2, iq2_table, 3, 16, 15, SIGNS_FREE, 0.125f)

#endif
