/* rwkv7.h -- the taps of token shift, which follow from the mixing weights, and their derivative. */
#ifndef RG_MODEL_ARCH_RWKV7_H
#define RG_MODEL_ARCH_RWKV7_H

#include "model/arch/backs.h"

rg_derive_fn derive_mix;
rg_derive_back_fn derive_mix_back;

#endif
