/* iq2_xs.h -- 256 values, each 8 a vector of a grid of 512; runs of 16 with a 4-bit scale. */
#ifndef RG_QUANT_IQ2_XS_H
#define RG_QUANT_IQ2_XS_H

#include "quant/iq2.h"

typedef struct block_iq2_xs {
    uint8_t d[2];     /* f16 */
    uint8_t q[32][2]; /* of each 8 values: 9 bits of grid, 7 of signs */
    uint8_t s[8];     /* nibbles: the scale of run 2i in the low one of byte i */
} block_iq2_xs;

static void iq2_xs_load(const void *block, rg_vectors *v)
{
    const block_iq2_xs *b = block;

    v->d = load16(b->d);
    for (int run = 0; run < 16; run++)
        v->scale[run] = b->s[run / 2] >> run % 2 * 4 & 15;
    for (int i = 0; i < 32; i++) {
        v->entry[i] = load16(b->q[i]) & 511;
        v->high[i] = even_signs(load16(b->q[i]) >> 9);
    }
}

static void iq2_xs_store(const rg_vectors *f, block_iq2_xs *b)
{
    store16(b->d, f->d);
    for (int i = 0; i < 32; i++)
        store16(b->q[i], (uint16_t)(f->entry[i] | (f->high[i] & 127) << 9));
    for (int run = 0; run < 16; run++)
        b->s[run / 2] |= (uint8_t)(f->scale[run] << run % 2 * 4);
}

VECTORS(iq2_xs, iq2_xs_grid, 512, 8, 2, iq2_table, 3, 16, 15, SIGNS_EVEN, 0.125f)

#endif
