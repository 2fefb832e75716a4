/* s4.h -- settings of S4 models, and how the stored parameters of a state space become its modes. */
#ifndef RG_MODEL_ARCH_S4_H
#define RG_MODEL_ARCH_S4_H

#include "model/arch/backs.h"
#include "model/arch/parts.h"

typedef struct s4_settings {
    int d_state, n_ssm, l_kernel;
    bool full, bilinear, prenorm; /* full: A is diagonal plus low rank */
} s4_settings;

enum {
    W_S4_A_REAL = W_OWN, W_S4_A_IMAG, W_S4_LOG_DT, W_S4_B, W_S4_P, W_S4_C, W_S4_D, W_S4_MODES,
    W_S4_GLU, W_S4_GLU_BIAS, W_S4_NORM, W_S4_NORM_BIAS, W_S4_HEAD_BIAS,
};

/* The modes of rg_state_space, from A, dt, C and, of the full form, B and P.  A stored C that was multiplied by
 * I - A^l_kernel, A discrete, is freed of that. */
rg_derive_fn s4_modes;
rg_derive_back_fn s4_modes_back;

#endif
