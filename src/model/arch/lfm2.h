/* lfm2.h -- what LFM2 and LFM2-MoE share: short gated convolutions among layers of attention. */
#ifndef RG_MODEL_ARCH_LFM2_H
#define RG_MODEL_ARCH_LFM2_H

#include "model/arch/hybrid.h"

/* The convolution's width, and whether it and the projections around it have biases. */
typedef struct lfm2_settings {
    int n_taps;
    bool conv_bias;
} lfm2_settings;

enum {
    W_CONV_IN = W_OWN, W_CONV_IN_BIAS, W_CONV_TAPS, W_CONV_TAPS_BIAS, W_CONV_OUT, W_CONV_OUT_BIAS
};

#define KEYS_LFM2                                                                                                      \
    KEYS_HYBRID_GQA(128000, 32, 8, 0),                                                                                 \
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "norm_eps", "attention.layer_norm_rms_epsilon", 1e-5 },                \
    { offsetof(rg_config, tie_embeddings), KEY_BOOL, "tie_embedding", NULL, 1, { "tie_word_embeddings" } },            \
    { RG_OWN_AT(lfm2_settings, n_taps), KEY_INT, "conv_L_cache", "shortconv.l_cache", 3 },                             \
    { RG_OWN_AT(lfm2_settings, conv_bias), KEY_BOOL, "conv_bias", NULL, 0 }

rg_size DIM_3, N_TAPS;
bool when_short_conv_bias(const rg_config *c, int layer);

#define WEIGHTS_LFM2                                                                                                   \
    { W_EMBED_TOKENS, "model.embed_tokens", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },                                \
    { W_FINAL_NORM, "model.embedding_norm", "token_embd_norm", { DIM } },                                              \
    { W_LM_HEAD, "lm_head", "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied }
#define WEIGHTS_LFM2_NORMS                                                                                             \
    { W_ATTN_NORM, "operator_norm", "attn_norm", { DIM } }, { W_FFN_NORM, "ffn_norm", "ffn_norm", { DIM } }
#define WEIGHTS_LFM2_CONV                                                                                              \
    { W_CONV_IN, "conv.in_proj", "shortconv.in_proj", { DIM_3, DIM }, SPLIT_ROWS },                                    \
    { W_CONV_IN_BIAS, "conv.in_proj.bias", NULL, { DIM_3 }, SPLIT_ROWS, .when = when_short_conv_bias },                \
    { W_CONV_TAPS, "conv.conv", "shortconv.conv", { DIM, N_TAPS }, SPLIT_ROWS, .table = true },                        \
    { W_CONV_TAPS_BIAS, "conv.conv.bias", NULL, { DIM }, SPLIT_ROWS, .when = when_short_conv_bias },                   \
    { W_CONV_OUT, "conv.out_proj", "shortconv.out_proj", { DIM, DIM }, SPLIT_COLS },                                   \
    { W_CONV_OUT_BIAS, "conv.out_proj.bias", NULL, { DIM }, .when = when_short_conv_bias }
#define WEIGHTS_LFM2_ATTENTION                                                                                         \
    { W_Q_PROJ, "self_attn.q_proj", "attn_q", { Q_DIM, DIM }, SPLIT_ROWS },                                            \
    { W_K_PROJ, "self_attn.k_proj", "attn_k", { KV_DIM, DIM }, SPLIT_ROWS },                                           \
    { W_V_PROJ, "self_attn.v_proj", "attn_v", { KV_DIM, DIM }, SPLIT_ROWS },                                           \
    { W_Q_NORM, "self_attn.q_layernorm", "attn_q_norm", { HEAD_DIM } },                                                \
    { W_K_NORM, "self_attn.k_layernorm", "attn_k_norm", { HEAD_DIM } },                                                \
    { W_O_PROJ, "self_attn.out_proj", "attn_output", { DIM, Q_DIM }, SPLIT_COLS }

/* Everything but the second halves of the layers: kinds HYBRID_OTHER (a convolution) and HYBRID_ATTENTION, sizes,
 * rope. */
bool finish_lfm2(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
bool put_gguf_lfm2(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
extern const char *const lfm2_harmless[];

void keep_short_conv(const rg_config *c, int layer, rg_keep *out);
/* Before out_proj, [rows, dim], of the normed input h. */
rg_act *short_conv(rg_fwd *f, const rg_layer *l, const rg_act *h);

#endif
