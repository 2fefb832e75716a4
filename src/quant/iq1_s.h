/* iq1_s.h -- 256 values, each 8 a vector of a grid of 2,048; runs of 32 with a 3-bit scale and a shift. */
#ifndef RG_QUANT_IQ1_S_H
#define RG_QUANT_IQ1_S_H

#include "quant/iq1.h"

typedef struct block_iq1_s {
    uint8_t d[2];    /* f16 */
    uint8_t q[32];   /* of each 8 values: the lower 8 bits of grid */
    uint8_t h[8][2]; /* of each run: 3 bits for each 8 values, the upper ones of grid; 3 of scale; 1: moved down */
} block_iq1_s;

static void iq1_s_load(const void *block, rg_vectors *v)
{
    const block_iq1_s *b = block;

    v->d = load16(b->d);
    for (int run = 0; run < 8; run++) {
        int h = load16(b->h[run]);
        v->scale[run] = h >> 12 & 7;
        for (int i = 4 * run; i < 4 * run + 4; i++) {
            v->entry[i] = (uint16_t)(b->q[i] | (h >> 3 * (i % 4) & 7) << 8);
            v->high[i] = (uint8_t)(h >> 15);
        }
    }
}

static void iq1_s_store(const rg_vectors *f, block_iq1_s *b)
{
    store16(b->d, f->d);
    for (int run = 0; run < 8; run++) {
        int h = f->scale[run] << 12 | f->high[4 * run] << 15;
        for (int i = 0; i < 4; i++) {
            b->q[4 * run + i] = (uint8_t)f->entry[4 * run + i];
            h |= f->entry[4 * run + i] >> 8 << 3 * i;
        }
        store16(b->h[run], (uint16_t)h);
    }
}

VECTORS(iq1_s, iq1_grid, 2048, 8, 2, iq1_table, 3, 32, 7, SHIFT_RUN, 0.125f)

#endif
