/* iq3_xxs.h -- 256 values, each 4 a vector of a grid of 256; runs of 32 with a 4-bit scale: w = d (s + 1/2) / 2 v. */
#ifndef RG_QUANT_IQ3_XXS_H
#define RG_QUANT_IQ3_XXS_H

#include "quant/iq3.h"

static const float iq3_xxs_table[16] = { 4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62 };

typedef struct block_iq3_xxs {
    uint8_t d[2];        /* f16 */
    uint8_t q[64];       /* grid of each 4 values */
    uint8_t signs[8][4]; /* of each run, 7 bits for each 8 values, and above them the scale */
} block_iq3_xxs;

static void iq3_xxs_load(const void *block, rg_vectors *v)
{
    const block_iq3_xxs *b = block;

    v->d = load16(b->d);
    for (int run = 0; run < 8; run++) {
        uint32_t signs = load32(b->signs[run]);
        v->scale[run] = (int)(signs >> 28);
        for (int i = 0; i < 8; i++) {
            v->entry[8 * run + i] = b->q[8 * run + i];
            v->high[8 * run + i] = even_signs(signs >> i / 2 * 7 & 127) >> i % 2 * 4 & 15;
        }
    }
}

static void iq3_xxs_store(const rg_vectors *f, block_iq3_xxs *b)
{
    store16(b->d, f->d);
    for (int run = 0; run < 8; run++) {
        uint32_t signs = (uint32_t)f->scale[run] << 28;
        for (int i = 0; i < 8; i++) {
            b->q[8 * run + i] = (uint8_t)f->entry[8 * run + i];
            signs |= (uint32_t)((f->high[8 * run + i] << i % 2 * 4) & 127) << i / 2 * 7;
        }
        store32(b->signs[run], signs);
    }
}

VECTORS(iq3_xxs, iq3_xxs_grid, 256, 4, 3, iq3_xxs_table, 8, 32, 15, SIGNS_EVEN, 0.25f)

#endif
