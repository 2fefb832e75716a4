/* backs.h -- the derivatives of weights that are derived from others of their layer, for training. */
#ifndef RG_MODEL_ARCH_BACKS_H
#define RG_MODEL_ARCH_BACKS_H

#include "model/arch.h"

/* d_w[role] += the gradient of what `derive` made of w, by the role of each weight of the layer; d_w[role] NULL: it is
 * not wanted. */
typedef bool rg_derive_back_fn(const rg_config *c, int layer, const rg_weight *const w[], const float *d_dst,
                               float *const d_w[], rg_error *err);
/* NULL: there is none. */
rg_derive_back_fn *rg_derive_back_of(rg_derive_fn *derive);

#endif
