/* narrow.h -- F16 matrices that lose nothing as BF16.
 *
 * Most F16 checkpoints were converted from bf16: then bf16 holds every value exactly, subnormal ones too, and the
 * matrix can be multiplied as one of BF16 is.  Panels of both take the same bytes: one is changed in place. */
#ifndef RG_OPS_CPU_NARROW_H
#define RG_OPS_CPU_NARROW_H

#include "ops/cpu/pack.h"

/* True if p is packed as F16 (not in the wide layout) and bf16 holds each of its values exactly.  Reads up to the first
 * panel with a value that it does not hold. */
bool rg_packed_fits_bf16(const rg_packed *p);
/* Change p, which fits, to what packing the same values from BF16 gives, to the bit. */
void rg_packed_to_bf16(rg_packed *p);

#endif
