/* iq1_m.h -- 256 values, each 8 a vector of a grid of 2,048 with a shift of its own; runs of 16 with a 3-bit scale. */
#ifndef RG_QUANT_IQ1_M_H
#define RG_QUANT_IQ1_M_H

#include "quant/iq1.h"

typedef struct block_iq1_m {
    uint8_t q[32];   /* of each 8 values: the lower 8 bits of grid; */
    uint8_t h[16];   /* nibbles: the upper 3 bits of it, and above them 1: moved down */
    uint8_t s[4][2]; /* 3 bits for each of 4 scales, and above them 4 bits of d, an f16 */
} block_iq1_m;

static void iq1_m_ints(const void *block, rg_ints *out)
{
    const block_iq1_m *b = block;
    int d = 0;

    out->table = iq1_table;
    for (int run = 0; run < 16; run++) {
        int s = load16(b->s[run / 4]);
        d |= s >> 12 << run / 4 * 4;
        out->s[run] = (int8_t)(2 * (s >> run % 4 * 3 & 7) + 1);
    }
    out->f = rg_f16_to_f32((uint16_t)d) * 0.125f;
    for (int i = 0; i < 32; i++) {
        int h = b->h[i / 2] >> i % 2 * 4;
        iq1_codes(out->q + 8 * i, iq1_grid[b->q[i] | (h & 7) << 8], h >> 3 & 1);
    }
}

static void iq1_m_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_iq1_m *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 256) {
        iq1_m_ints(b, &ints);
        decode_table_two_level(&ints, 16, y);
    }
}

static void iq1_m_store(const vector_fit *f, block_iq1_m *b)
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

ENCODE_VECTORS(iq1_m, iq1_grid, 2048, 8, 2, iq1_table, 3, 16, 7, SHIFT_VECTOR, 0.125f)

#endif
