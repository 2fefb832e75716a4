/* rtn.h -- rounding a model that is in memory, for studies: nothing is written. */
#ifndef RG_SHRINK_RTN_H
#define RG_SHRINK_RTN_H

#include "model/model.h"
#include "shrink/codes.h"

/* Round the matrices of all layers (not routers) to the nearest codes, in f32 from then on; c has been initialised.
 * *bits: of all weights, each scale counted as 16 bits and each zero point as a code. */
bool rg_round_model(rg_model *m, const rg_coding *c, double *bits, rg_error *err) RG_MUST_CHECK;
/* Bits of all weights as they are stored. */
double rg_stored_bits(const rg_model *m);

#endif
