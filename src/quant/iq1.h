/* iq1.h -- what iq1_s and iq1_m share: values -1, 0, 1 from a grid, all of a group moved up or down by an eighth.
 *
 * d (2 s + 1) (v + 1/8) is (d / 8) (2 s + 1) (8 v + 1): a power of two changes no rounding. */
#ifndef RG_QUANT_IQ1_H
#define RG_QUANT_IQ1_H

#include "quant/fit_vectors.h"
#include "quant/iq1_grid.h"

static const float iq1_table[16] = { -7, 1, 9, 0, 0, 0, 0, 0, -9, -1, 7 };

/* Eight codes: a vector of the grid, moved up, or down. */
static inline void iq1_codes(uint8_t q[8], uint16_t entry, bool down)
{
    for (int i = 0; i < 8; i++)
        q[i] = (uint8_t)((entry >> 2 * i & 3) | (down ? 8 : 0));
}

#endif
