/* iq3.h -- what iq3_xxs and iq3_s share: four magnitudes from a grid, a sign for each. */
#ifndef RG_QUANT_IQ3_H
#define RG_QUANT_IQ3_H

#include "quant/iq2.h"
#include "quant/iq3_grid.h"

#endif
