/* iq2.h -- what iq2_xxs, iq2_xs and iq2_s share: magnitudes from a grid, signs, odd multiples of d / 8 as scales.
 *
 * d (s + 1/2) / 4 is (d / 8) (2 s + 1): a power of two changes no rounding. */
#ifndef RG_QUANT_IQ2_H
#define RG_QUANT_IQ2_H

#include "quant/fit_vectors.h"
#include "quant/iq2_grid.h"

static const float iq2_table[16] = { 8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43 };

/* Eight signs from the seven that are stored: the number of negative ones is even. */
static inline uint8_t even_signs(uint32_t seven)
{
    return (uint8_t)(seven | ((uint32_t)__builtin_popcount(seven) & 1) << 7);
}

#endif
