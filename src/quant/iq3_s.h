/* iq3_s.h -- 256 values, each 4 a vector of a grid of 512 with signs of its own; runs of 32 with a 4-bit scale:
 * w = d (2 s + 1) v. */
#ifndef RG_QUANT_IQ3_S_H
#define RG_QUANT_IQ3_S_H

#include "quant/iq3.h"

static const float iq3_s_table[16] = { 1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15 };

typedef struct block_iq3_s {
    uint8_t d[2];      /* f16 */
    uint8_t q[64];     /* of each 4 values: the lower 8 bits of grid; */
    uint8_t h[8];      /* bit i of byte r: the ninth of vector 8r + i */
    uint8_t signs[32]; /* a bit for each negative value */
    uint8_t s[4];      /* nibbles: the scale of run 2i in the low one of byte i */
} block_iq3_s;

static void iq3_s_load(const void *block, rg_vectors *v)
{
    const block_iq3_s *b = block;

    v->d = load16(b->d);
    for (int run = 0; run < 8; run++)
        v->scale[run] = b->s[run / 2] >> run % 2 * 4 & 15;
    for (int i = 0; i < 64; i++) {
        v->entry[i] = (uint16_t)(b->q[i] | (b->h[i / 8] >> i % 8 & 1) << 8);
        v->high[i] = b->signs[i / 2] >> i % 2 * 4 & 15;
    }
}

static void iq3_s_store(const rg_vectors *f, block_iq3_s *b)
{
    store16(b->d, f->d);
    for (int i = 0; i < 64; i++) {
        b->q[i] = (uint8_t)f->entry[i];
        b->h[i / 8] |= (uint8_t)(f->entry[i] >> 8 << i % 8);
        b->signs[i / 2] |= (uint8_t)(f->high[i] << i % 2 * 4);
    }
    for (int run = 0; run < 8; run++)
        b->s[run / 2] |= (uint8_t)(f->scale[run] << run % 2 * 4);
}

VECTORS(iq3_s, iq3_s_grid, 512, 4, 3, iq3_s_table, 8, 32, 15, SIGNS_FREE, 1.0f)

#endif
