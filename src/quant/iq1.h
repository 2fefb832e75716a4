/* iq1.h -- what iq1_s and iq1_m share: values -1, 0, 1 from a grid, all of a group moved up or down by an eighth.
 *
 * d (2 s + 1) (v + 1/8) is (d / 8) (2 s + 1) (8 v + 1): a power of two changes no rounding. */
#ifndef RG_QUANT_IQ1_H
#define RG_QUANT_IQ1_H

#include "quant/fit_vectors.h"
#include "quant/iq1_grid.h"

static const float iq1_table[16] = { -7, 1, 9, 0, 0, 0, 0, 0, -9, -1, 7 };

#endif
