/* iq2_xxs.h -- 256 values, each 8 a vector of a grid of 256; runs of 32 with a 4-bit scale. */
#ifndef RG_QUANT_IQ2_XXS_H
#define RG_QUANT_IQ2_XXS_H

#include "quant/iq2.h"

typedef struct block_iq2_xxs {
    uint8_t d[2]; /* f16 */
    struct {
        uint8_t grid[4];  /* of each 8 values */
        uint8_t signs[4]; /* 7 bits for each 8 values, and above them the scale */
    } run[8];
} block_iq2_xxs;

static void iq2_xxs_load(const void *block, rg_vectors *v)
{
    const block_iq2_xxs *b = block;

    v->d = load16(b->d);
    for (int run = 0; run < 8; run++) {
        uint32_t signs = load32(b->run[run].signs);
        v->scale[run] = (int)(signs >> 28);
        for (int i = 0; i < 4; i++) {
            v->entry[4 * run + i] = b->run[run].grid[i];
            v->high[4 * run + i] = even_signs(signs >> 7 * i & 127);
        }
    }
}

/* The signs of eight values as seven; the eighth makes their number even. */
static void iq2_xxs_store(const rg_vectors *f, block_iq2_xxs *b)
{
    store16(b->d, f->d);
    for (int run = 0; run < 8; run++) {
        uint32_t signs = (uint32_t)f->scale[run] << 28;
        for (int i = 0; i < 4; i++) {
            b->run[run].grid[i] = (uint8_t)f->entry[4 * run + i];
            signs |= (uint32_t)(f->high[4 * run + i] & 127) << 7 * i;
        }
        store32(b->run[run].signs, signs);
    }
}

VECTORS(iq2_xxs, iq2_xxs_grid, 256, 8, 2, iq2_table, 3, 32, 15, SIGNS_EVEN, 0.125f)

#endif
