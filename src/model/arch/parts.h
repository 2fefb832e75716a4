/* parts.h -- what several architectures share: conditions of weight tables, keys, and the two halves of a block; in
 * parts.c, and what belongs to multi-head latent attention (MLA) in mla.c. */
#ifndef RG_MODEL_ARCH_PARTS_H
#define RG_MODEL_ARCH_PARTS_H

#include "model/arch.h"

/* Conditions. */
bool when_untied(const rg_config *c, int layer);
bool when_attn_bias(const rg_config *c, int layer);
bool when_o_bias(const rg_config *c, int layer);
bool when_mlp_bias(const rg_config *c, int layer);
bool when_rope_factors(const rg_config *c, int layer);

/* A norm stored as w where 1 + w is meant. */
void load_plus_one(const rg_config *c, const float *src, float *dst, int64_t n);

/* Rows of key tables: how long a sequence may be, and grouped-query attention, with what is meant where a file says
 * nothing. */
#define KEYS_GQA(length, heads, kv_heads, dim)                                                                         \
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", length },                \
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", heads },                   \
    { offsetof(rg_config, n_kv_heads), KEY_INT, "num_key_value_heads", "attention.head_count_kv", kv_heads },          \
    { offsetof(rg_config, head_dim), KEY_INT, "head_dim", "attention.key_length", dim }

/* Rows of weight tables. */
#define WEIGHTS_DECODER                                                                                                \
    { W_EMBED_TOKENS, "model.embed_tokens", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },                                \
    { W_FINAL_NORM, "model.norm", "output_norm", { DIM } },                                                            \
    { W_LM_HEAD, "lm_head", "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied }

/* pairs: GGUF_PAIRS or GGUF_HALVES, how GGUF has the rows that are rotated. */
#define GGUF_PAIRS true
#define GGUF_HALVES false
#define WEIGHTS_GQA(pairs)                                                                                             \
    { W_Q_PROJ, "self_attn.q_proj", "attn_q", { Q_DIM, DIM }, SPLIT_ROWS, .paired = pairs },                           \
    { W_K_PROJ, "self_attn.k_proj", "attn_k", { KV_DIM, DIM }, SPLIT_ROWS, .paired = pairs },                          \
    { W_V_PROJ, "self_attn.v_proj", "attn_v", { KV_DIM, DIM }, SPLIT_ROWS },                                           \
    { W_Q_BIAS, "self_attn.q_proj.bias", "attn_q.bias", { Q_DIM }, SPLIT_ROWS, .when = when_attn_bias,                 \
      .paired = pairs },                                                                                               \
    { W_K_BIAS, "self_attn.k_proj.bias", "attn_k.bias", { KV_DIM }, SPLIT_ROWS, .when = when_attn_bias,                \
      .paired = pairs },                                                                                               \
    { W_V_BIAS, "self_attn.v_proj.bias", "attn_v.bias", { KV_DIM }, SPLIT_ROWS, .when = when_attn_bias },              \
    { W_O_PROJ, "self_attn.o_proj", "attn_output", { DIM, Q_DIM }, SPLIT_COLS },                                       \
    { W_O_BIAS, "self_attn.o_proj.bias", "attn_output.bias", { DIM }, .when = when_o_bias }

/* K/V of every position, or of c->window where the layer has one. */
void keep_kv(const rg_config *c, int layer, rg_keep *out);

/* Reads n_heads, n_kv_heads, head_dim and checks them; attn_scale = 1 / sqrt(head_dim) unless it is set. */
bool finish_heads(rg_config *c, rg_error *err);
/* GGUF's attention.value_length must be head_dim. */
bool require_value_length(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
/* Rope of the Llama family, and which optional tensors a GGUF file of it has (biases, untied head, rope factors). */
bool finish_llama(rg_config *c, const rg_checkpoint *ckpt, double theta_default, rg_error *err);
bool finish_routing(const rg_config *c, rg_error *err);
/* config.json's key must be one of NULL-ended names, or absent. */
bool require_choice(const rg_checkpoint *ckpt, const char *key, const char *const *names, rg_error *err);
bool require_false(const rg_checkpoint *ckpt, const char *key, rg_error *err);

/* For put_gguf.  "<architecture>.<suffix>" = value. */
bool put_gguf_int(const rg_config *c, rg_ckpt_writer *w, const char *suffix, int64_t value, rg_error *err);
bool put_gguf_float(const rg_config *c, rg_ckpt_writer *w, const char *suffix, double value, rg_error *err);
/* c->rope: its base and its scaling. */
bool put_gguf_rope(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
/* The whole put_gguf of the Llama family. */
bool put_gguf_llama(const rg_config *c, rg_ckpt_writer *w, rg_error *err);

/* The act before o_proj: q, k, v of h, normalised per head where the layer has W_Q_NORM, rotated, stored, attended. */
rg_act *part_attention(rg_fwd *f, const rg_layer *l, const rg_act *h);
/* down(act(gate h) * up h), given by out: added to it if add, else put there. */
void part_mlp(rg_fwd *f, const rg_layer *l, rg_act *out, const rg_act *h, bool add);

/* out += the routed experts of h, and the shared ones where the layer has them. */
void part_experts(rg_fwd *f, const rg_layer *l, rg_act *out, const rg_act *h);

/* ---- multi-head latent attention ---- */

#define KEYS_MLA(length, heads, rank, rope)                                                                            \
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", length },                \
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", heads },                   \
    { offsetof(rg_config, kv_lora_rank), KEY_INT, "kv_lora_rank", "attention.kv_lora_rank", rank },                    \
    { offsetof(rg_config, rope_dim), KEY_INT, "qk_rope_head_dim", "rope.dimension_count", rope }

/* From the norm before the attention to the linear after it; both halves of kv_b are made from it where that is what is
 * stored. */
bool when_q_rank(const rg_config *c, int layer);
bool when_no_q_rank(const rg_config *c, int layer);
bool when_q_a_bias(const rg_config *c, int layer);
void load_k_b(const rg_config *c, const float *src, float *dst, int64_t n);
void load_v_b(const rg_config *c, const float *src, float *dst, int64_t n);
#define WEIGHTS_MLA                                                                                                    \
    { W_Q_PROJ, "self_attn.q_proj", "attn_q", { MLA_Q_DIM, DIM }, SPLIT_ROWS, .when = when_no_q_rank },                \
    { W_Q_A_PROJ, "self_attn.q_a_proj", "attn_q_a", { Q_RANK, DIM }, .when = when_q_rank },                            \
    { W_Q_A_NORM, "self_attn.q_a_layernorm", "attn_q_a_norm", { Q_RANK }, .when = when_q_rank },                       \
    { W_Q_B_PROJ, "self_attn.q_b_proj", "attn_q_b", { MLA_Q_DIM, Q_RANK }, SPLIT_ROWS, .when = when_q_rank },          \
    { W_KV_A_PROJ, "self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", { KV_A_DIM, DIM } },                               \
    { W_KV_A_NORM, "self_attn.kv_a_layernorm", "attn_kv_a_norm", { KV_RANK } },                                        \
    { W_K_B_PROJ, "self_attn.kv_b_proj", "attn_k_b", { N_HEADS, KV_RANK, NOPE_DIM }, SPLIT_ROWS, .load = load_k_b,     \
      .stored = { MLA_KV_B_DIM, KV_RANK }, .gguf_else = "attn_kv_b" },                                                 \
    { W_V_B_PROJ, "self_attn.kv_b_proj", "attn_v_b", { N_HEADS, V_DIM, KV_RANK }, SPLIT_ROWS, .load = load_v_b,        \
      .stored = { MLA_KV_B_DIM, KV_RANK }, .gguf_else = "attn_kv_b" },                                                 \
    { W_O_PROJ, "self_attn.o_proj", "attn_output", { DIM, MLA_O_DIM }, SPLIT_COLS },                                   \
    { W_O_BIAS, "self_attn.o_proj.bias", "attn_output.bias", { DIM }, .when = when_o_bias },                           \
    { W_Q_A_BIAS, "self_attn.q_a_proj.bias", "attn_q_a.bias", { Q_RANK }, .when = when_q_a_bias },                     \
    { W_KV_A_BIAS, "self_attn.kv_a_proj_with_mqa.bias", "attn_kv_a_mqa.bias", { KV_A_DIM }, .when = when_attn_bias }

/* q_lora_rank (0: q is made at once; q_rank_default where config.json does not say), nope_dim, v_dim; checks them with
 * the rest. */
bool finish_mla(rg_config *c, const rg_checkpoint *ckpt, int q_rank_default, rg_error *err);
bool put_gguf_mla(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
/* The latent and the rotated key of every position. */
void keep_latent(const rg_config *c, int layer, rg_keep *out);
/* The act before o_proj, as part_attention. */
rg_act *part_mla(rg_fwd *f, const rg_layer *l, const rg_act *h);

#endif
