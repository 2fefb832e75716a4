/* ssd.h -- Mamba-2's mixer (Dao & Gu 2024: state space duality) as architectures share it: settings, weights, and the
 * part of a block.
 *
 * An architecture that has it begins its own settings (RG_OWN) with ssd_settings, and its own roles with W_SSD_END. */
#ifndef RG_MODEL_ARCH_SSD_H
#define RG_MODEL_ARCH_SSD_H

#include "model/arch/hybrid.h"

/* What in_proj makes, in this order. */
enum { SSD_Z, SSD_X, SSD_B, SSD_C, SSD_DT, SSD_PARTS };

typedef struct ssd_settings {
    int n_heads, head_dim; /* states, and columns of each */
    int d_state, n_groups; /* rows of a state; groups of heads that share B and C, and that are normed together */
    int d_conv;
    bool conv_bias, in_bias, out_bias;
    bool norm;             /* y is normed */
    bool norm_before_gate; /* norm(y) * silu(z), else norm(y * silu(z)) */
    float dt_min, dt_max;  /* bounds of dt; dt_max 0: none */
    float times[SSD_PARTS]; /* factors of what in_proj makes */
} ssd_settings;

enum {
    W_SSD_IN = W_OWN, W_SSD_IN_BIAS, W_SSD_CONV, W_SSD_CONV_BIAS, W_SSD_DT_BIAS, W_SSD_RATE, W_SSD_SKIP, W_SSD_NORM,
    W_SSD_OUT, W_SSD_OUT_BIAS, W_SSD_END
};

rg_size SSD_IN, SSD_INNER, SSD_CHANNELS, SSD_TAPS, SSD_HEADS, SSD_GROUPS, SSD_GROUP_DIM;
bool when_ssd_conv_bias(const rg_config *c, int layer);
bool when_ssd_in_bias(const rg_config *c, int layer);
bool when_ssd_out_bias(const rg_config *c, int layer);
bool when_ssd_norm(const rg_config *c, int layer);

/* Rows of key tables; GGUF calls the number of heads the rank of dt. */
#define KEY_SSD_HEADS(key, n)  { RG_OWN_AT(ssd_settings, n_heads), KEY_INT, key, "ssm.time_step_rank", n }
#define KEY_SSD_STATE(key, n)  { RG_OWN_AT(ssd_settings, d_state), KEY_INT, key, "ssm.state_size", n }
#define KEY_SSD_GROUPS(key, n) { RG_OWN_AT(ssd_settings, n_groups), KEY_INT, key, "ssm.group_count", n }
#define KEY_SSD_CONV(key, n)   { RG_OWN_AT(ssd_settings, d_conv), KEY_INT, key, "ssm.conv_kernel", n }
#define KEY_SSD_CONV_BIAS(key) { RG_OWN_AT(ssd_settings, conv_bias), KEY_BOOL, key, NULL, 1 }
#define KEY_SSD_BIAS(key)      { RG_OWN_AT(ssd_settings, in_bias), KEY_BOOL, key, NULL, 0 }

/* config.json's keys of the inner width, which is n_heads * head_dim; NULL: it has none. */
typedef struct ssd_width {
    const char *head_dim;  /* a number, or "auto" */
    int head_dim_fallback; /* 0: what follows from the width */
    const char *inner;     /* the width itself */
    const char *expand;    /* the width as a multiple of dim, where `inner` is not given; 2 unless it is */
} ssd_width;

/* Widths, bounds of dt, biases (out_bias as in_bias), and a norm after the gate; then what is out of range is
 * refused. */
bool finish_ssd(rg_config *c, const rg_checkpoint *ckpt, const ssd_width *width, rg_error *err);
/* GGUF's keys that the table lacks; refuses settings that GGUF has no key for. */
bool put_gguf_ssd(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
/* Keys of config.json about training and about ways to compute. */
#define SSD_HARMLESS                                                                                                   \
    "chunk_size", "mamba_chunk_size", "rescale_prenorm_residual", "residual_in_fp32", "time_step_floor",               \
    "time_step_max", "time_step_min", "use_mamba_kernels", "num_logits_to_keep", "mamba_ssm_cache_dtype"

/* part: what stands in front of the names in a Hugging Face directory, "mixer.". */
#define WEIGHTS_SSD(part)                                                                                              \
    { W_SSD_IN, part "in_proj", "ssm_in", { SSD_IN, DIM }, SPLIT_ROWS },                                               \
    { W_SSD_OUT, part "out_proj", "ssm_out", { DIM, SSD_INNER }, SPLIT_COLS },                                         \
    WEIGHTS_SSD_INSIDE(part)
/* The same without in_proj and out_proj. */
#define WEIGHTS_SSD_INSIDE(part)                                                                                       \
    { W_SSD_IN_BIAS, part "in_proj.bias", NULL, { SSD_IN }, SPLIT_ROWS, .when = when_ssd_in_bias },                    \
    { W_SSD_CONV, part "conv1d", "ssm_conv1d", { SSD_CHANNELS, SSD_TAPS }, SPLIT_ROWS, .table = true },                \
    { W_SSD_CONV_BIAS, part "conv1d.bias", "ssm_conv1d.bias", { SSD_CHANNELS }, SPLIT_ROWS,                            \
      .when = when_ssd_conv_bias },                                                                                    \
    { W_SSD_DT_BIAS, part "dt_bias", "ssm_dt.bias", { SSD_HEADS }, SPLIT_ROWS },                                       \
    { W_SSD_RATE, part "A_log", "ssm_a", { SSD_HEADS }, SPLIT_ROWS, .load = load_minus_exp, .bare = true,              \
      .gguf_shape = { SSD_HEADS, ONE } },                                                                              \
    { W_SSD_SKIP, part "D", "ssm_d", { SSD_HEADS }, SPLIT_ROWS, .bare = true, .gguf_shape = { SSD_HEADS, ONE } },      \
    { W_SSD_NORM, part "norm", "ssm_norm", { SSD_INNER }, SPLIT_ROWS, .when = when_ssd_norm,                           \
      .load_gguf = load_flat, .stored = { SSD_GROUPS, SSD_GROUP_DIM }, .gguf_shape = { SSD_GROUPS, SSD_GROUP_DIM } },  \
    { W_SSD_OUT_BIAS, part "out_proj.bias", NULL, { DIM }, .when = when_ssd_out_bias }

/* What it keeps, in this order: the last inputs of the convolution, and the states. */
enum { SSD_TAIL, SSD_STATE, SSD_BUFFERS };
void keep_ssd(const rg_config *c, int layer, rg_keep *out);
/* Before out_proj, [rows, n_heads * head_dim], of the normed input h. */
rg_act *mamba2(rg_fwd *f, const rg_layer *l, const rg_act *h);

#endif
