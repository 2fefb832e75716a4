/* gemma.h -- what the Gemma family shares: keys, weights, and the scale of its attention. */
#ifndef RG_MODEL_ARCH_GEMMA_H
#define RG_MODEL_ARCH_GEMMA_H

#include "model/arch/parts.h"

#define KEYS_GEMMA(attn_cap, logit_cap)                                                                                \
    KEY_FFN(9216), KEY_RMS_EPS(1e-6), KEY_TIED(1), KEY_ATTN_BIAS(0), KEY_WINDOW(4096),                                 \
    { offsetof(rg_config, attn_softcap), KEY_FLOAT, "attn_logit_softcapping", "attn_logit_softcapping", attn_cap },    \
    { offsetof(rg_config, logit_softcap), KEY_FLOAT, "final_logit_softcapping", "final_logit_softcapping",             \
      logit_cap },                                                                                                     \
    { offsetof(rg_config, attn_scale), KEY_DOUBLE, NULL, "attention.scale", 0 }

#define WEIGHTS_GEMMA                                                                                                  \
    { W_EMBED_TOKENS, "model.embed_tokens", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },                                \
    { W_FINAL_NORM, "model.norm", "output_norm", { DIM }, .load = load_plus_one },                                     \
    { W_LM_HEAD, "lm_head", "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied }

/* Norms around both halves; Hugging Face stores w where 1 + w is meant. */
#define WEIGHTS_GEMMA_LAYER                                                                                            \
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM }, .load = load_plus_one },                                   \
    WEIGHTS_GQA(GGUF_HALVES),                                                                                          \
    { W_POST_ATTN_NORM, "post_attention_layernorm", "post_attention_norm", { DIM }, .load = load_plus_one },           \
    { W_FFN_NORM, "pre_feedforward_layernorm", "ffn_norm", { DIM }, .load = load_plus_one },                           \
    WEIGHTS_MLP,                                                                                                       \
    { W_POST_FFN_NORM, "post_feedforward_layernorm", "post_ffw_norm", { DIM }, .load = load_plus_one }

/* Everything but windows and rope: heads, activation, scale of the embedding and of the attention. */
bool finish_gemma(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);

#endif
