/* iq2.h -- what iq2_xxs, iq2_xs and iq2_s share: magnitudes from a grid, signs, odd multiples of d / 8 as scales.
 *
 * d (s + 1/2) / 4 is (d / 8) (2 s + 1): a power of two changes no rounding. */
#ifndef RG_QUANT_IQ2_H
#define RG_QUANT_IQ2_H

#include "quant/fit_vectors.h"
#include "quant/iq2_grid.h"

static const float iq2_table[16] = { 8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43 };

/* Eight signs of which seven are stored: their number is even. */
static inline int even_signs(int seven)
{
    return seven | (__builtin_popcount((unsigned)seven) & 1) << 7;
}

/* Eight codes: a vector of the grid, and a bit for each negative value. */
static inline void iq2_codes(uint8_t q[8], uint16_t entry, int signs)
{
    for (int i = 0; i < 8; i++)
        q[i] = (uint8_t)((entry >> 2 * i & 3) | (signs >> i & 1) << 3);
}

#endif
