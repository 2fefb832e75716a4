/* iq3.h -- what iq3_xxs and iq3_s share: four magnitudes from a grid, a sign for each. */
#ifndef RG_QUANT_IQ3_H
#define RG_QUANT_IQ3_H

#include "quant/iq2.h"
#include "quant/iq3_grid.h"

/* Four codes: a vector of the grid, and a bit for each negative value. */
static inline void iq3_codes(uint8_t q[4], uint16_t entry, int signs)
{
    for (int i = 0; i < 4; i++)
        q[i] = (uint8_t)((entry >> 3 * i & 7) | (signs >> i & 1) << 3);
}

#endif
