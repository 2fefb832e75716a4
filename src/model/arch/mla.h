/* mla.h -- multi-head latent attention (DeepSeek-V2, 2024) as architectures share it: settings, keys, weights, and the
 * part of a block.
 *
 * An architecture that has it begins its own settings (RG_OWN) with mla_settings, and its own roles with W_MLA_END. */
#ifndef RG_MODEL_ARCH_MLA_H
#define RG_MODEL_ARCH_MLA_H

#include "model/arch/parts.h"

typedef struct mla_settings {
    int q_lora_rank; /* 0: q is made at once */
    int kv_lora_rank, nope_dim, rope_dim, v_dim;
    int rope_heads; /* parts of equal size that rope_dim is, each rotated by the same table; 0: one */
    bool plain;     /* the latent has no norm */
} mla_settings;

enum {
    W_Q_A_PROJ = W_OWN, W_Q_A_BIAS, W_Q_A_NORM, W_Q_B_PROJ,
    W_KV_A_PROJ, W_KV_A_BIAS, W_KV_A_NORM, W_K_B_PROJ, W_V_B_PROJ,
    W_MLA_END
};

rg_size Q_RANK, KV_RANK, KV_A_DIM, NOPE_DIM, V_DIM, MLA_Q_DIM, MLA_KV_B_DIM, MLA_O_DIM;

/* q_rank: where config.json does not say; null: q is made at once.  GGUF says the sizes of heads otherwise. */
#define KEYS_MLA_HEADS(q_rank)                                                                                         \
    { RG_OWN_AT(mla_settings, q_lora_rank), KEY_INT, "q_lora_rank", "attention.q_lora_rank", q_rank,                   \
      .null = NULL_IS_ZERO, .zero_in_gguf = true, .most = INT32_MAX / 4 },                                             \
    { RG_OWN_AT(mla_settings, nope_dim), KEY_INT, "qk_nope_head_dim", NULL, 128, .least = 1, .most = INT32_MAX / 4 },  \
    { RG_OWN_AT(mla_settings, v_dim), KEY_INT, "v_head_dim", NULL, 128, .least = 1, .most = INT32_MAX / 4 }
#define KEYS_MLA(length, heads, q_rank, rank, rope)                                                                    \
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", length },                \
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", heads },                   \
    KEYS_MLA_HEADS(q_rank),                                                                                            \
    { RG_OWN_AT(mla_settings, kv_lora_rank), KEY_INT, "kv_lora_rank", "attention.kv_lora_rank", rank },                \
    { RG_OWN_AT(mla_settings, rope_dim), KEY_INT, "qk_rope_head_dim", "rope.dimension_count", rope }

/* From the norm before the attention to the linear after it.  Where the checkpoint stores kv_b, k_b and v_b are made
 * from it. */
bool when_q_rank(const rg_config *c, int layer);
bool when_no_q_rank(const rg_config *c, int layer);
bool when_latent_norm(const rg_config *c, int layer);
bool when_q_a_bias(const rg_config *c, int layer);
void load_k_b(const rg_config *c, const float *src, float *dst, int64_t n);
void load_v_b(const rg_config *c, const float *src, float *dst, int64_t n);
#define WEIGHTS_MLA                                                                                                    \
    { W_Q_PROJ, "self_attn.q_proj", "attn_q", { MLA_Q_DIM, DIM }, SPLIT_ROWS, .when = when_no_q_rank },                \
    { W_Q_A_PROJ, "self_attn.q_a_proj", "attn_q_a", { Q_RANK, DIM }, .when = when_q_rank },                            \
    { W_Q_A_NORM, "self_attn.q_a_layernorm", "attn_q_a_norm", { Q_RANK }, .when = when_q_rank },                       \
    { W_Q_B_PROJ, "self_attn.q_b_proj", "attn_q_b", { MLA_Q_DIM, Q_RANK }, SPLIT_ROWS, .when = when_q_rank },          \
    { W_KV_A_PROJ, "self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", { KV_A_DIM, DIM } },                               \
    { W_KV_A_NORM, "self_attn.kv_a_layernorm", "attn_kv_a_norm", { KV_RANK }, .when = when_latent_norm },              \
    { W_K_B_PROJ, "self_attn.kv_b_proj", "attn_k_b", { N_HEADS, KV_RANK, NOPE_DIM }, SPLIT_ROWS, .load = load_k_b,     \
      .stored = { MLA_KV_B_DIM, KV_RANK }, .gguf_else = "attn_kv_b" },                                                 \
    { W_V_B_PROJ, "self_attn.kv_b_proj", "attn_v_b", { N_HEADS, V_DIM, KV_RANK }, SPLIT_ROWS, .load = load_v_b,        \
      .stored = { MLA_KV_B_DIM, KV_RANK }, .gguf_else = "attn_kv_b" },                                                 \
    { W_O_PROJ, "self_attn.o_proj", "attn_output", { DIM, MLA_O_DIM }, SPLIT_COLS },                                   \
    { W_O_BIAS, "self_attn.o_proj.bias", "attn_output.bias", { DIM }, .when = when_o_bias },                           \
    { W_Q_A_BIAS, "self_attn.q_a_proj.bias", "attn_q_a.bias", { Q_RANK }, .when = when_q_a_bias },                     \
    { W_KV_A_BIAS, "self_attn.kv_a_proj_with_mqa.bias", "attn_kv_a_mqa.bias", { KV_A_DIM }, .when = when_attn_bias }

/* The sizes of heads where GGUF says them; checks them with the rest. */
bool finish_mla(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
/* The rope of the rotated part, and the scale of attention under YaRN (mscale_all_dim). */
bool finish_mla_rope(rg_config *c, const rg_checkpoint *ckpt, bool interleaved, rg_error *err);
bool put_gguf_mla(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
/* The latent and the rotated key of every position. */
void keep_latent(const rg_config *c, int layer, rg_keep *out);
/* Before o_proj, [rows, n_heads * v_dim]. */
rg_act *latent_attention(rg_fwd *f, const rg_layer *l, const rg_act *h);
/* Its halves: the query of low rank, normed (NULL: q is made at once); and the rest, over chosen keys (NULL: over
 * all). */
rg_act *latent_query(rg_fwd *f, const rg_layer *l, const rg_act *h);
rg_act *latent_attention_from(rg_fwd *f, const rg_layer *l, const rg_act *h, const rg_act *q_a, const rg_act *chosen);

#endif
