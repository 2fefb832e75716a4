/* gemma.h -- what the Gemma family shares: keys, weights, and the scale of its attention; and of those from 3n on their
 * values, K/V that later layers share, and embeddings that every layer has of its own. */
#ifndef RG_MODEL_ARCH_GEMMA_H
#define RG_MODEL_ARCH_GEMMA_H

#include "model/arch/parts.h"

#define KEYS_GEMMA(attn_cap, logit_cap)                                                                                \
    KEY_FFN(9216), KEY_RMS_EPS(1e-6), KEY_TIED(1), KEY_ATTN_BIAS(0), KEY_WINDOW(4096),                                 \
    { offsetof(rg_config, attn_softcap), KEY_FLOAT, "attn_logit_softcapping", "attn_logit_softcapping", attn_cap,      \
      .null = NULL_IS_ZERO },                                                                                          \
    { offsetof(rg_config, logit_softcap), KEY_FLOAT, "final_logit_softcapping", "final_logit_softcapping",             \
      logit_cap, .null = NULL_IS_ZERO },                                                                               \
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

/* From 3n on.  Every layer gets a vector of its own for each token: a row of a table of embeddings, and a projection of
 * the token's embedding, normed, both added and divided by sqrt(2). */
typedef struct gemma_per_layer {
    int dim;   /* of one layer's vector; 0: there are none */
    int vocab; /* tokens that have a row; the others take the first */
} gemma_per_layer;

enum {
    W_EMBED_PER_LAYER = W_OWN, W_PER_LAYER_PROJ, W_PER_LAYER_NORM,           /* outside the layers */
    W_LAYER_GATE = W_OWN, W_LAYER_PROJ, W_LAYER_NORM, W_GEMMA_OWN,           /* in them */
};

/* cond: when there are such vectors; sizes: of the table's rows, of all layers' vectors together, and of one. */
#define WEIGHTS_PER_LAYER(cond, rows, all, one)                                                                        \
    { W_EMBED_PER_LAYER, "model.embed_tokens_per_layer", "per_layer_token_embd", { rows, all }, .when = cond },        \
    { W_PER_LAYER_PROJ, "model.per_layer_model_projection", "per_layer_model_proj", { all, DIM }, SPLIT_ROWS,          \
      .when = cond },                                                                                                  \
    { W_PER_LAYER_NORM, "model.per_layer_projection_norm", "per_layer_proj_norm", { one }, .when = cond }
#define WEIGHTS_OF_PER_LAYER(cond, one)                                                                                \
    { W_LAYER_GATE, "per_layer_input_gate", "inp_gate", { one, DIM }, .when = cond },                                  \
    { W_LAYER_PROJ, "per_layer_projection", "proj", { DIM, one }, .when = cond },                                      \
    { W_LAYER_NORM, "post_per_layer_input_norm", "post_norm", { DIM }, .when = cond }

/* For the embed hook: all layers' vectors, in an activation that lives to the step's end, of the embedding x. */
void embed_per_layer(rg_fwd *f, const rg_layer *l, const rg_act *x, const gemma_per_layer *p);
/* What a layer makes of x and its vector, normed. */
rg_act *per_layer_part(rg_fwd *f, const rg_layer *l, const rg_act *x, const gemma_per_layer *p);

/* The last n layers read the K/V of the last layer before them that sees as much as they do: all, or a window. */
bool finish_shared_kv(rg_config *c, int n, rg_error *err);

/* Ends of names of tensors that are in published files and unused: of layers that share K/V. */
extern const char *const gemma_ignored[];

/* RMSNorm of each head of v without weights; v is the key projection where the layer has no W_V_PROJ. */
void norm_values(rg_fwd *f, const rg_layer *l, qkv *p);

/* Everything but windows and rope: heads, activation, scale of the embedding and of the attention. */
bool finish_gemma(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);

#endif
