/* nemotron_h.h -- what Nemotron-H and its mixtures of experts share: layers of one part each, which is Mamba-2's mixer,
 * attention without positions, or an MLP or experts. */
#ifndef RG_MODEL_ARCH_NEMOTRON_H_H
#define RG_MODEL_ARCH_NEMOTRON_H_H

#include "model/arch/ssd.h"

/* Kinds of layer, besides HYBRID_OTHER (Mamba-2) and HYBRID_ATTENTION. */
enum { NEMOTRON_MLP = HYBRID_EXPERTS, NEMOTRON_EXPERTS, NEMOTRON_KINDS };

#define KEYS_NEMOTRON_H                                                                                                \
    KEYS_HYBRID_GQA(4096, 32, 8, 0), KEY_TIED(0), KEY_ATTN_BIAS(0),                                                    \
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", 1e-5,        \
      { "rms_norm_eps" } },                                                                                            \
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },                                                  \
    KEY_SSD_HEADS("mamba_num_heads", 128), KEY_SSD_STATE("ssm_state_size", 128), KEY_SSD_GROUPS("n_groups", 8),        \
    KEY_SSD_CONV("conv_kernel", 4), KEY_SSD_CONV_BIAS("use_conv_bias"), KEY_SSD_BIAS("use_bias")
/* Keys that say nothing: the width does not follow from `expand`, and nothing is rotated. */
#define NEMOTRON_H_HARMLESS                                                                                            \
    SSD_HARMLESS, "expand", "rms_norm_eps", "norm_eps", "rope_theta", "rope_scaling", "rope_parameters.",              \
    "partial_rotary_factor", "num_nextn_predict_layers", "mtp_layers_block_type", "mtp_hybrid_override_pattern"

#define WEIGHTS_NEMOTRON_H                                                                                             \
    WEIGHTS_OUTER("backbone.embeddings", "backbone.norm_f", "lm_head")
#define WEIGHT_NEMOTRON_H_NORM { W_ATTN_NORM, "norm", "attn_norm", { DIM } }

/* True if config.json has layers of experts. */
bool nemotron_h_has_experts(const rg_checkpoint *ckpt);
/* Kinds of layer, widths of MLPs, heads, and the mixer. */
bool finish_nemotron_h(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
bool put_gguf_nemotron_h(const rg_config *c, rg_ckpt_writer *w, rg_error *err);

/* Weights of the kinds of layer that both have. */
extern const rg_weight_spec nemotron_h_mamba[], nemotron_h_attention[], nemotron_h_mlp[];

#endif
