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

static void iq2_s_load(const void *block, rg_vectors *v)
{
    const block_iq2_s *b = block;

    v->d = load16(b->d);
    for (int run = 0; run < 16; run++)
        v->scale[run] = b->s[run / 2] >> run % 2 * 4 & 15;
    for (int i = 0; i < 32; i++) {
        v->entry[i] = (uint16_t)(b->q[i] | (b->h[i / 4] >> i % 4 * 2 & 3) << 8);
        v->high[i] = b->signs[i];
    }
}

static void iq2_s_store(const rg_vectors *f, block_iq2_s *b)
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

VECTORS(iq2_s, iq2_s_grid, 1024, 8, 2, iq2_table, 3, 16, 15, SIGNS_FREE, 0.125f)

#endif
