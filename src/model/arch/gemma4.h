/* gemma4.h -- what models with the layers of Gemma 4 share: settings, keys, weights of a layer, and its block. */
#ifndef RG_MODEL_ARCH_GEMMA4_H
#define RG_MODEL_ARCH_GEMMA4_H

#include "model/arch/gemma.h"

typedef struct gemma4_settings {
    int global_head_dim, global_kv_heads; /* of the layers without a window; the config's are the window layers' */
    bool k_is_v;                          /* there v is made by the key projection */
    bool has_experts;                     /* beside the MLP of every layer */
    gemma_per_layer per_layer;
} gemma4_settings;

enum { /* of a layer */
    W_ROUTER_NORM = W_GEMMA_OWN, W_MLP_NORM, W_EXPERTS_NORM, W_POST_EXPERTS_NORM, W_SCALAR, W_GEMMA4_OWN,
};

/* What is meant where config.json does not say: the width of a layer's vector for each token, whether full layers make
 * v by the key projection, whether there are experts, the cap of logits. */
#define KEYS_GEMMA4(vector, k_eq_v, experts, cap)                                                                      \
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", 131072 },                \
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", 8 },                       \
    { offsetof(rg_config, n_kv_heads), KEY_INT, "num_key_value_heads", NULL, 4, .null = NULL_IS_ZERO },                \
    { offsetof(rg_config, head_dim), KEY_INT, "head_dim", "attention.key_length_swa", 256 },                           \
    { RG_OWN_AT(gemma4_settings, global_head_dim), KEY_INT, "global_head_dim", "attention.key_length", 512 },          \
    { RG_OWN_AT(gemma4_settings, global_kv_heads), KEY_INT, "num_global_key_value_heads", NULL, 0 },                   \
    { RG_OWN_AT(gemma4_settings, k_is_v), KEY_BOOL, "attention_k_eq_v", NULL, k_eq_v },                                \
    { RG_OWN_AT(gemma4_settings, has_experts), KEY_BOOL, "enable_moe_block", NULL, experts },                          \
    { RG_OWN_AT(gemma4_settings, per_layer.dim), KEY_INT, "hidden_size_per_layer_input",                               \
      "embedding_length_per_layer_input", vector },                                                                    \
    { RG_OWN_AT(gemma4_settings, per_layer.vocab), KEY_INT, "vocab_size_per_layer_input", NULL, 262144 },              \
    { offsetof(rg_config, ffn_dim), KEY_INT, "intermediate_size", NULL, 9216 },                                        \
    KEY_RMS_EPS(1e-6), KEY_TIED(1), KEY_ATTN_BIAS(0), KEY_WINDOW(512),                                                 \
    { offsetof(rg_config, logit_softcap), KEY_FLOAT, "final_logit_softcapping", "final_logit_softcapping", cap },      \
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_experts", "expert_count", 0 },                             \
    { offsetof(rg_config, routing.n_used), KEY_INT, "top_k_experts", "expert_used_count", 0 },                         \
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "moe_intermediate_size", "expert_feed_forward_length", 0 }

bool when_gemma4_experts(const rg_config *c, int layer);
bool when_gemma4_v(const rg_config *c, int layer);
bool when_gemma4_v_bias(const rg_config *c, int layer);
rg_size GEMMA4_HEAD, GEMMA4_Q, GEMMA4_KV;

#define WEIGHTS_GEMMA4_GATE_UP(role, first)                                                                            \
    { role, "experts.gate_up_proj", "ffn_gate_up_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS,                       \
      .stored = { N_EXPERTS, MOE_DIM_2, DIM }, .when = when_gemma4_experts, .first_row = first }

/* All of a layer but the factor on what leaves it. */
#define WEIGHTS_GEMMA4_LAYER                                                                                           \
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM } },                                                          \
    { W_Q_PROJ, "self_attn.q_proj", "attn_q", { GEMMA4_Q, DIM }, SPLIT_ROWS },                                         \
    { W_K_PROJ, "self_attn.k_proj", "attn_k", { GEMMA4_KV, DIM }, SPLIT_ROWS, .when = when_own_kv },                   \
    { W_V_PROJ, "self_attn.v_proj", "attn_v", { GEMMA4_KV, DIM }, SPLIT_ROWS, .when = when_gemma4_v },                 \
    { W_O_PROJ, "self_attn.o_proj", "attn_output", { DIM, GEMMA4_Q }, SPLIT_COLS },                                    \
    { W_Q_BIAS, "self_attn.q_proj.bias", "attn_q.bias", { GEMMA4_Q }, SPLIT_ROWS, .when = when_attn_bias },            \
    { W_K_BIAS, "self_attn.k_proj.bias", "attn_k.bias", { GEMMA4_KV }, SPLIT_ROWS, .when = when_own_kv_bias },         \
    { W_V_BIAS, "self_attn.v_proj.bias", "attn_v.bias", { GEMMA4_KV }, SPLIT_ROWS, .when = when_gemma4_v_bias },       \
    { W_O_BIAS, "self_attn.o_proj.bias", "attn_output.bias", { DIM }, .when = when_o_bias },                           \
    { W_Q_NORM, "self_attn.q_norm", "attn_q_norm", { GEMMA4_HEAD } },                                                  \
    { W_K_NORM, "self_attn.k_norm", "attn_k_norm", { GEMMA4_HEAD }, .when = when_own_kv },                             \
    { W_POST_ATTN_NORM, "post_attention_layernorm", "post_attention_norm", { DIM } },                                  \
    { W_FFN_NORM, "pre_feedforward_layernorm", "ffn_norm", { DIM } },                                                  \
    WEIGHTS_MLP,                                                                                                       \
    { W_POST_FFN_NORM, "post_feedforward_layernorm", "post_ffw_norm", { DIM } },                                       \
    { W_MLP_NORM, "post_feedforward_layernorm_1", "post_ffw_norm_1", { DIM }, .when = when_gemma4_experts },           \
    { W_EXPERTS_NORM, "pre_feedforward_layernorm_2", "pre_ffw_norm_2", { DIM }, .when = when_gemma4_experts },         \
    { W_POST_EXPERTS_NORM, "post_feedforward_layernorm_2", "post_ffw_norm_2", { DIM }, .when = when_gemma4_experts },  \
    { W_ROUTER_NORM, "router.scale", "ffn_gate_inp.scale", { DIM }, .when = when_gemma4_experts, .bare = true },       \
    { W_ROUTER, "router.proj", "ffn_gate_inp", { N_EXPERTS, DIM }, .when = when_gemma4_experts },                      \
    { W_EXPERT_SCALE, "router.per_expert_scale", "ffn_down_exps.scale", { N_EXPERTS },                                 \
      .when = when_gemma4_experts, .bare = true },                                                                     \
    WEIGHTS_GEMMA4_GATE_UP(W_GATE_EXPERTS, ROW_0), WEIGHTS_GEMMA4_GATE_UP(W_UP_EXPERTS, MOE_DIM),                      \
    { W_DOWN_EXPERTS, "experts.down_proj", "ffn_down_exps", { N_EXPERTS, DIM, MOE_DIM }, SPLIT_COLS,                   \
      .when = when_gemma4_experts }

/* As rg_arch.finish, and as rg_layer_kind.keep. */
bool finish_gemma4(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
void keep_gemma4(const rg_config *c, int layer, rg_keep *out);
/* z = norm(z) + the experts of x, normed before and behind. */
void gemma4_experts(rg_fwd *f, const rg_layer *l, rg_act *z, const rg_act *x);

#endif
