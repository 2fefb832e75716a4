/* mamba.h -- the settings of Mamba's block (Gu & Dao 2023), as config.json and GGUF have them.  An architecture that
 * has it begins its own settings (RG_OWN) with them. */
#ifndef RG_MODEL_ARCH_MAMBA_H
#define RG_MODEL_ARCH_MAMBA_H

#include "model/arch/parts.h"

typedef struct mamba_settings {
    int d_inner, d_state, d_conv, dt_rank;
    bool conv_bias, proj_bias;
} mamba_settings;

#endif
