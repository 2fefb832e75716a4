/* mamba.h -- Mamba's block (Gu & Dao 2023) as architectures share it: settings, weights, and the part of a block.
 *
 * An architecture that has it begins its own settings (RG_OWN) with mamba_settings, and its own roles with
 * W_MAMBA_END. */
#ifndef RG_MODEL_ARCH_MAMBA_H
#define RG_MODEL_ARCH_MAMBA_H

#include "model/arch/parts.h"

typedef struct mamba_settings {
    int d_inner, d_state, d_conv, dt_rank;
    bool conv_bias, proj_bias;
} mamba_settings;

enum {
    W_IN_PROJ = W_OWN, W_IN_BIAS, W_CONV, W_CONV_BIAS, W_X_PROJ, W_DT_PROJ, W_DT_BIAS, W_A, W_D, W_OUT_PROJ, W_OUT_BIAS,
    W_DT_NORM, W_B_NORM, W_C_NORM, /* of what x_proj gives; a layer has all three or none */
    W_MAMBA_END
};

rg_size D_INNER, D_INNER_2, D_STATE, D_CONV, DT_RANK, X_PROJ_DIM;

/* Reads the width and the rank of dt, which config.json has under these keys, finds the optional tensors of a GGUF
 * file, and checks the sizes. */
bool finish_mamba(rg_config *c, const rg_checkpoint *ckpt, const char *expand, const char *rank, rg_error *err);

bool when_conv_bias(const rg_config *c, int layer);
bool when_proj_bias(const rg_config *c, int layer);
/* A as the seam wants it, from GGUF's form and from Hugging Face's logarithm. */
void load_a(const rg_config *c, const float *src, float *dst, int64_t n);
void load_a_log(const rg_config *c, const float *src, float *dst, int64_t n);

/* part: what stands in front of the names in a Hugging Face directory, "mixer.". */
#define WEIGHTS_MAMBA(part)                                                                                            \
    { W_IN_PROJ, part "in_proj", "ssm_in", { D_INNER_2, DIM }, SPLIT_ROWS },                                           \
    { W_IN_BIAS, part "in_proj.bias", NULL, { D_INNER_2 }, SPLIT_ROWS, .when = when_proj_bias },                       \
    { W_CONV, part "conv1d", "ssm_conv1d", { D_INNER, D_CONV }, SPLIT_ROWS, .table = true },                           \
    { W_CONV_BIAS, part "conv1d.bias", "ssm_conv1d.bias", { D_INNER }, SPLIT_ROWS, .when = when_conv_bias },           \
    { W_X_PROJ, part "x_proj", "ssm_x", { X_PROJ_DIM, D_INNER }, SPLIT_COLS },                                         \
    { W_DT_PROJ, part "dt_proj", "ssm_dt", { D_INNER, DT_RANK }, SPLIT_ROWS },                                         \
    { W_DT_BIAS, part "dt_proj.bias", "ssm_dt.bias", { D_INNER }, SPLIT_ROWS },                                        \
    { W_A, part "A_log", "ssm_a", { D_STATE, D_INNER }, SPLIT_COLS, .load = load_a_log, .load_gguf = load_a,           \
      .stored = { D_INNER, D_STATE }, .table = true, .to_gguf = load_minus_exp, .bare = true },                        \
    { W_D, part "D", "ssm_d", { D_INNER }, SPLIT_ROWS, .bare = true },                                                 \
    { W_OUT_PROJ, part "out_proj", "ssm_out", { DIM, D_INNER }, SPLIT_COLS },                                          \
    { W_OUT_BIAS, part "out_proj.bias", NULL, { DIM }, .when = when_proj_bias }

/* Its buffers, in this order: the last inputs of the convolution, and the state of the scan. */
enum { MAMBA_TAIL, MAMBA_STATE, MAMBA_BUFFERS };
void mamba_keep(const rg_config *c, rg_keep *out);
/* Before out_proj, [rows, d_inner], of the normed input h. */
rg_act *mamba1(rg_fwd *f, const rg_layer *l, const rg_act *h);

#endif
