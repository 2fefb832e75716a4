/* fp4.h -- the sixteen values of e2m1, doubled so that they are integers, as MXFP4 and NVFP4 share them. */
#ifndef RG_QUANT_FP4_H
#define RG_QUANT_FP4_H

#include "quant/fit_table.h"

static const float fp4_doubled[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

#endif
