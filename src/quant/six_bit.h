/* six_bit.h -- the twelve bytes that hold eight scales and eight minima of 6 bits, as q4_k and q5_k have them.
 *
 * Runs 0-3: the low six bits of byte j (scale) and 4 + j (minimum).  Runs 4-7: the nibbles of byte 4 + j, and above
 * them the top two bits of bytes j - 4 and j. */
#ifndef RG_QUANT_SIX_BIT_H
#define RG_QUANT_SIX_BIT_H

#include "quant/block.h"

static inline void six_bit_load(const uint8_t p[12], int j, int *s, int *t)
{
    if (j < 4) {
        *s = p[j] & 63;
        *t = p[j + 4] & 63;
    } else {
        *s = (p[j + 4] & 15) | p[j - 4] >> 6 << 4;
        *t = p[j + 4] >> 4 | p[j] >> 6 << 4;
    }
}

/* p starts as zeros. */
static inline void six_bit_store(uint8_t p[12], int j, int s, int t)
{
    if (j < 4) {
        p[j] |= (uint8_t)s;
        p[j + 4] |= (uint8_t)t;
    } else {
        p[j + 4] |= (uint8_t)((s & 15) | (t & 15) << 4);
        p[j - 4] |= (uint8_t)(s >> 4 << 6);
        p[j] |= (uint8_t)(t >> 4 << 6);
    }
}

#endif
