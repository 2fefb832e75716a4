/* weight_rows.h -- rows of weight tables that families share, as macros, with the conditions and the load functions
 * that stand in them. */
#ifndef RG_MODEL_ARCH_WEIGHT_ROWS_H
#define RG_MODEL_ARCH_WEIGHT_ROWS_H

#include "model/arch.h"

/* Conditions. */
bool when_untied(const rg_config *c, int layer);
bool when_attn_bias(const rg_config *c, int layer);
bool when_own_kv(const rg_config *c, int layer); /* the layer keeps K/V, reading no other's */
bool when_own_kv_bias(const rg_config *c, int layer);
bool when_o_bias(const rg_config *c, int layer);
bool when_mlp_bias(const rg_config *c, int layer);
bool when_rope_factors(const rg_config *c, int layer);
bool when_shared(const rg_config *c, int layer); /* experts */

/* A norm stored as w where 1 + w is meant. */
void load_plus_one(const rg_config *c, const float *src, float *dst, int64_t n);
/* A vector stored under another shape (spec.stored). */
void load_flat(const rg_config *c, const float *src, float *dst, int64_t n);
/* -w. */
void load_negated(const rg_config *c, const float *src, float *dst, int64_t n);
/* A rate below 0, stored as its logarithm: -exp(w). */
void load_minus_exp(const rg_config *c, const float *src, float *dst, int64_t n);

/* Rows of weight tables. */
/* Outside the layers, by their names in a Hugging Face directory. */
#define WEIGHTS_OUTER(embed, norm, head)                                                                               \
    { W_EMBED_TOKENS, embed, "token_embd", { VOCAB, DIM }, SPLIT_ROWS },                                               \
    { W_FINAL_NORM, norm, "output_norm", { DIM } },                                                                    \
    { W_LM_HEAD, head, "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied }
#define WEIGHTS_DECODER WEIGHTS_OUTER("model.embed_tokens", "model.norm", "lm_head")

#define WEIGHT_ROPE_FREQS { W_ROPE_FREQS, NULL, "rope_freqs", { ROPE_PAIRS }, .when = when_rope_factors }
/* Tables of these alone. */
extern const rg_weight_spec decoder_weights[], decoder_weights_and_freqs[];

/* pairs: GGUF_PAIRS or GGUF_HALVES, how GGUF has the rows that are rotated. */
#define GGUF_PAIRS true
#define GGUF_HALVES false
#define WEIGHTS_GQA(pairs)                                                                                             \
    WEIGHTS_GQA_OF(pairs, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
/* The same by their names in a Hugging Face directory. */
#define WEIGHTS_GQA_OF(pairs, q, k, v, o)                                                                              \
    { W_Q_PROJ, q, "attn_q", { Q_DIM, DIM }, SPLIT_ROWS, .paired = pairs },                                            \
    { W_K_PROJ, k, "attn_k", { KV_DIM, DIM }, SPLIT_ROWS, .when = when_own_kv, .paired = pairs },                      \
    { W_V_PROJ, v, "attn_v", { KV_DIM, DIM }, SPLIT_ROWS, .when = when_own_kv },                                       \
    { W_Q_BIAS, q ".bias", "attn_q.bias", { Q_DIM }, SPLIT_ROWS, .when = when_attn_bias, .paired = pairs },            \
    { W_K_BIAS, k ".bias", "attn_k.bias", { KV_DIM }, SPLIT_ROWS, .when = when_own_kv_bias, .paired = pairs },         \
    { W_V_BIAS, v ".bias", "attn_v.bias", { KV_DIM }, SPLIT_ROWS, .when = when_own_kv_bias },                          \
    WEIGHTS_O(o)
/* part: the name of the module that holds them; gate, up and down: names within it. */
/* q, k and v in one tensor, `name`: in Hugging Face's for each K/V head its query heads, its key and its value, in
 * GGUF's all of q, then k, then v. */
void load_q_of_groups(const rg_config *c, const float *src, float *dst, int64_t n);
void load_k_of_groups(const rg_config *c, const float *src, float *dst, int64_t n);
void load_v_of_groups(const rg_config *c, const float *src, float *dst, int64_t n);
void groups_to_gguf(const rg_config *c, const float *src, float *dst, int64_t n);
#define OF_GROUPS(first, part, ...)                                                                                    \
    SPLIT_ROWS, .stored = { __VA_ARGS__ }, .first_row = first, .load = load_##part##_of_groups,                        \
                .to_gguf = groups_to_gguf
#define WEIGHTS_QKV_GROUPS(name)                                                                                       \
    { W_Q_PROJ, name, "attn_qkv", { Q_DIM, DIM }, OF_GROUPS(ROW_0, q, QKV_DIM, DIM) },                                 \
    { W_K_PROJ, name, "attn_qkv", { KV_DIM, DIM }, OF_GROUPS(ROW_OF_K, k, QKV_DIM, DIM) },                             \
    { W_V_PROJ, name, "attn_qkv", { KV_DIM, DIM }, OF_GROUPS(ROW_OF_V, v, QKV_DIM, DIM) },                             \
    { W_Q_BIAS, name ".bias", "attn_qkv.bias", { Q_DIM }, OF_GROUPS(ROW_0, q, QKV_DIM), .when = when_attn_bias },      \
    { W_K_BIAS, name ".bias", "attn_qkv.bias", { KV_DIM }, OF_GROUPS(ROW_OF_K, k, QKV_DIM), .when = when_attn_bias },  \
    { W_V_BIAS, name ".bias", "attn_qkv.bias", { KV_DIM }, OF_GROUPS(ROW_OF_V, v, QKV_DIM), .when = when_attn_bias }
/* What follows the attention, and an MLP without a gate, by their names in a Hugging Face directory. */
#define WEIGHTS_O(name)                                                                                                \
    { W_O_PROJ, name, "attn_output", { DIM, Q_DIM }, SPLIT_COLS },                                                     \
    { W_O_BIAS, name ".bias", "attn_output.bias", { DIM }, .when = when_o_bias }
#define WEIGHTS_UP_DOWN(up, down)                                                                                      \
    { W_UP_PROJ, up, "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS },                                                         \
    { W_UP_BIAS, up ".bias", "ffn_up.bias", { FFN_DIM }, SPLIT_ROWS, .when = when_mlp_bias },                          \
    { W_DOWN_PROJ, down, "ffn_down", { DIM, FFN_DIM }, SPLIT_COLS },                                                   \
    { W_DOWN_BIAS, down ".bias", "ffn_down.bias", { DIM }, .when = when_mlp_bias }
/* A LayerNorm, by its role and names. */
#define WEIGHTS_LAYER_NORM(role, name, gguf)                                                                           \
    { role, name, gguf, { DIM } }, { role##_BIAS, name ".bias", gguf ".bias", { DIM } }
#define WEIGHTS_MLP_OF(part, gate, up, down)                                                                           \
    { W_GATE_PROJ, part "." gate, "ffn_gate", { FFN_DIM, DIM }, SPLIT_ROWS },                                          \
    { W_UP_PROJ, part "." up, "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS },                                                \
    { W_DOWN_PROJ, part "." down, "ffn_down", { DIM, FFN_DIM }, SPLIT_COLS }
#define WEIGHTS_MLP WEIGHTS_MLP_OF("mlp", "gate_proj", "up_proj", "down_proj")
#define WEIGHTS_MLP_BIASES                                                                                             \
    { W_GATE_BIAS, "mlp.gate_proj.bias", "ffn_gate.bias", { FFN_DIM }, SPLIT_ROWS, .when = when_mlp_bias },            \
    { W_UP_BIAS, "mlp.up_proj.bias", "ffn_up.bias", { FFN_DIM }, SPLIT_ROWS, .when = when_mlp_bias },                  \
    { W_DOWN_BIAS, "mlp.down_proj.bias", "ffn_down.bias", { DIM }, .when = when_mlp_bias }
/* The router and its experts: `part` is the name of the module that holds them, router a name within it; gate, up and
 * down are names within an expert. */
#define WEIGHTS_EXPERTS_OF(part, router, gate, up, down)                                                               \
    { W_ROUTER, part "." router, "ffn_gate_inp", { N_EXPERTS, DIM } },                                                 \
    { W_GATE_EXPERTS, part ".experts.*." gate, "ffn_gate_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS },             \
    { W_UP_EXPERTS, part ".experts.*." up, "ffn_up_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS },                   \
    { W_DOWN_EXPERTS, part ".experts.*." down, "ffn_down_exps", { N_EXPERTS, DIM, MOE_DIM }, SPLIT_COLS }
#define WEIGHTS_EXPERTS(part, gate, up, down) WEIGHTS_EXPERTS_OF(part, "gate", gate, up, down)
/* The same where Hugging Face has a tensor for all experts: `gate_up` holds, for each of them, gate above up. */
#define WEIGHTS_STACKED_EXPERTS(router, gate_up, down)                                                                 \
    { W_ROUTER, router, "ffn_gate_inp", { N_EXPERTS, DIM } },                                                          \
    { W_GATE_EXPERTS, gate_up, "ffn_gate_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS,                               \
      .stored = { N_EXPERTS, MOE_DIM_2, DIM }, .first_row = ROW_0, .split_in_gguf = true },                            \
    { W_UP_EXPERTS, gate_up, "ffn_up_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS,                                   \
      .stored = { N_EXPERTS, MOE_DIM_2, DIM }, .first_row = MOE_DIM, .split_in_gguf = true },                          \
    { W_DOWN_EXPERTS, down, "ffn_down_exps", { N_EXPERTS, DIM, MOE_DIM }, SPLIT_COLS }
/* What is added to scores for the choice alone; hf: its whole name within the layer. */
#define WEIGHT_CHOICE_BIAS(hf) { W_CHOICE_BIAS, hf, "exp_probs_b.bias", { N_EXPERTS } }
/* Shared experts, which every row has, in the module `part`; of width SHARED_DIM. */
#define WEIGHTS_SHARED(part)                                                                                           \
    { W_SHARED_GATE, part ".gate_proj", "ffn_gate_shexp", { SHARED_DIM, DIM }, SPLIT_ROWS, .when = when_shared },      \
    { W_SHARED_UP, part ".up_proj", "ffn_up_shexp", { SHARED_DIM, DIM }, SPLIT_ROWS, .when = when_shared },            \
    { W_SHARED_DOWN, part ".down_proj", "ffn_down_shexp", { DIM, SHARED_DIM }, SPLIT_COLS, .when = when_shared }
/* Norms in front of attention and MLP. */
#define WEIGHTS_PRE_NORMS                                                                                              \
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM } },                                                          \
    { W_FFN_NORM, "post_attention_layernorm", "ffn_norm", { DIM } }
/* Biases of these norms, and of the final one. */
#define WEIGHTS_PRE_NORM_BIASES                                                                                        \
    { W_ATTN_NORM_BIAS, "input_layernorm.bias", "attn_norm.bias", { DIM } },                                           \
    { W_FFN_NORM_BIAS, "post_attention_layernorm.bias", "ffn_norm.bias", { DIM } }
#define WEIGHT_FINAL_NORM_BIAS { W_FINAL_NORM_BIAS, "model.norm.bias", "output_norm.bias", { DIM } }
/* Norms behind attention and MLP. */
#define WEIGHTS_POST_NORMS                                                                                             \
    { W_POST_ATTN_NORM, "post_attention_layernorm", "post_attention_norm", { DIM } },                                  \
    { W_POST_FFN_NORM, "post_feedforward_layernorm", "post_ffw_norm", { DIM } }
/* RMSNorm of each head of q and k, or of their whole rows. */
#define WEIGHTS_QK_NORM(q_size, k_size)                                                                                \
    { W_Q_NORM, "self_attn.q_norm", "attn_q_norm", { q_size }, SPLIT_NONE },                                           \
    { W_K_NORM, "self_attn.k_norm", "attn_k_norm", { k_size }, SPLIT_NONE }

#endif
