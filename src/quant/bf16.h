/* bf16.h -- bfloat16, the upper half of a single, little-endian; rounded to nearest even. */
#ifndef RG_QUANT_BF16_H
#define RG_QUANT_BF16_H

#include "quant/half.h"

HALF_FORMAT(bf16)
#define bf16_ints NULL

#endif
