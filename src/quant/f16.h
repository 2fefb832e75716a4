/* f16.h -- IEEE half precision, little-endian; rounded to nearest even. */
#ifndef RG_QUANT_F16_H
#define RG_QUANT_F16_H

#include "quant/half.h"

HALF_FORMAT(f16)
#define f16_ints NULL

#endif
