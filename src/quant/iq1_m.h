/* iq1_m.h -- 256 values, each 8 a vector of a grid of 2,048 with a shift of its own; runs of 16 with a 3-bit scale. */
#ifndef RG_QUANT_IQ1_M_H
#define RG_QUANT_IQ1_M_H

#include "quant/iq1.h"

typedef struct block_iq1_m {
    uint8_t q[32];   /* of each 8 values: the lower 8 bits of grid; */
    uint8_t h[16];   /* nibbles: the upper 3 bits of it, and above them 1: moved down */
    uint8_t s[4][2]; /* 3 bits for each of 4 scales, and above them 4 bits of d, an f16 */
} block_iq1_m;

static void iq1_m_load(const void *block, rg_vectors *v)
{
    const block_iq1_m *b = block;
    int d = 0;

    for (int run = 0; run < 16; run++) {
        int s = load16(b->s[run / 4]);
        d |= s >> 12 << run / 4 * 4;
        v->scale[run] = s >> run % 4 * 3 & 7;
    }
    v->d = (uint16_t)d;
    for (int i = 0; i < 32; i++) {
        int h = b->h[i / 2] >> i % 2 * 4;
        v->entry[i] = (uint16_t)(b->q[i] | (h & 7) << 8);
        v->high[i] = h >> 3 & 1;
    }
}

static void iq1_m_store(const rg_vectors *f, block_iq1_m *b)
{
    for (int i = 0; i < 32; i++) {
        b->q[i] = (uint8_t)f->entry[i];
        b->h[i / 2] |= (uint8_t)((f->entry[i] >> 8 | f->high[i] << 3) << i % 2 * 4);
    }
    for (int k = 0; k < 4; k++) {
        int s = (f->d >> 4 * k & 15) << 12;
        for (int i = 0; i < 4; i++)
            s |= f->scale[4 * k + i] << 3 * i;
        store16(b->s[k], (uint16_t)s);
    }
}

VECTORS(iq1_m, iq1_grid, 2048, 8, 2, iq1_table, 3, 16, 7, SHIFT_VECTOR, 0.125f)

#endif
