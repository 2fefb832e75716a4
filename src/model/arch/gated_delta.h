/* gated_delta.h -- the stack of Qwen3-Next (2025) and Qwen3.5 (2026) as they share it: gated DeltaNet (Yang et al.
 * 2024) in most layers, in every n-th attention whose output has a gate; after each an MLP or experts.
 *
 * An architecture that has it begins its own settings (RG_OWN) with gated_delta_settings. */
#ifndef RG_MODEL_ARCH_GATED_DELTA_H
#define RG_MODEL_ARCH_GATED_DELTA_H

#include "model/arch/hybrid.h"

typedef struct gated_delta_settings {
    int k_heads, v_heads, k_dim, v_dim, taps;
    int interval;     /* every so many-th layer attends; 0: the list of config.json is not that regular */
    bool interleaved; /* value head h reads key head h % k_heads; else h / (v_heads / k_heads) */
} gated_delta_settings;

enum {
    W_QKV = W_OWN, W_Z, W_BETA, W_ALPHA, W_BETA_ALPHA, W_TAPS, W_DT_BIAS, W_RATE, W_HEAD_NORM, W_DELTA_OUT,
    W_ATTN_GATE, W_ATTN_GATE_BIAS,
};

rg_size DELTA_QKV, DELTA_QKVZ, DELTA_V, DELTA_V_HEADS, DELTA_V_HEADS_2, DELTA_V_DIM, DELTA_TAPS, Q_DIM_2;

#define KEYS_GATED_DELTA(heads, kv_heads, length)                                                      \
    KEYS_GQA(length, heads, kv_heads, 256), KEY_RMS_EPS(1e-6), KEY_TIED(0), KEY_ATTN_BIAS(0),            \
    { RG_OWN_AT(gated_delta_settings, taps), KEY_INT, "linear_conv_kernel_dim", "ssm.conv_kernel", 4 },                \
    { RG_OWN_AT(gated_delta_settings, k_dim), KEY_INT, "linear_key_head_dim", "ssm.state_size", 128 },                 \
    { RG_OWN_AT(gated_delta_settings, k_heads), KEY_INT, "linear_num_key_heads", "ssm.group_count", 16 },              \
    { RG_OWN_AT(gated_delta_settings, v_heads), KEY_INT, "linear_num_value_heads", "ssm.time_step_rank", 32 },         \
    { RG_OWN_AT(gated_delta_settings, v_dim), KEY_INT, "linear_value_head_dim", NULL, 128 },                           \
    { RG_OWN_AT(gated_delta_settings, interval), KEY_INT, "full_attention_interval", "full_attention_interval", 4 }
/* The experts, of which one is shared and has a gate; `used` of `n`. */
#define KEYS_GATED_DELTA_EXPERTS(n, used)                                                                              \
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "moe_intermediate_size", "expert_feed_forward_length", 512 },         \
    { offsetof(rg_config, shared_ffn_dim), KEY_INT, "shared_expert_intermediate_size",                                 \
      "expert_shared_feed_forward_length", 512 },                                                                      \
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_experts", "expert_count", n },                             \
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", used }

/* Norms are stored less one in a Hugging Face directory. */
#define WEIGHTS_GATED_DELTA_OUTER                                                                                      \
    { W_EMBED_TOKENS, "model.embed_tokens", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },                                \
    { W_FINAL_NORM, "model.norm", "output_norm", { DIM }, .load = load_plus_one },                                     \
    { W_LM_HEAD, "lm_head", "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied }
#define WEIGHTS_GATED_DELTA_NORMS                                                                                      \
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM }, .load = load_plus_one },                                   \
    { W_FFN_NORM, "post_attention_layernorm", "post_attention_norm", { DIM }, .load = load_plus_one }
/* Heads of q and of the gate take turns in one tensor. */
#define WEIGHTS_GATED_ATTENTION                                                                                        \
    { W_Q_PROJ, "self_attn.q_proj", "attn_q", { Q_DIM, DIM }, SPLIT_ROWS, .stored = { Q_DIM_2, DIM },                  \
      .first_row = ROW_0, .row_step = 2, .row_run = HEAD_DIM },                                                        \
    { W_ATTN_GATE, "self_attn.q_proj", "attn_q", { Q_DIM, DIM }, SPLIT_ROWS, .stored = { Q_DIM_2, DIM },               \
      .first_row = HEAD_DIM, .row_step = 2, .row_run = HEAD_DIM },                                                     \
    { W_Q_BIAS, "self_attn.q_proj.bias", "attn_q.bias", { Q_DIM }, SPLIT_ROWS, .stored = { Q_DIM_2 },                  \
      .when = when_attn_bias, .first_row = ROW_0, .row_step = 2, .row_run = HEAD_DIM },                                \
    { W_ATTN_GATE_BIAS, "self_attn.q_proj.bias", "attn_q.bias", { Q_DIM }, SPLIT_ROWS, .stored = { Q_DIM_2 },          \
      .when = when_attn_bias, .first_row = HEAD_DIM, .row_step = 2, .row_run = HEAD_DIM },                             \
    { W_K_PROJ, "self_attn.k_proj", "attn_k", { KV_DIM, DIM }, SPLIT_ROWS },                                           \
    { W_V_PROJ, "self_attn.v_proj", "attn_v", { KV_DIM, DIM }, SPLIT_ROWS },                                           \
    { W_K_BIAS, "self_attn.k_proj.bias", "attn_k.bias", { KV_DIM }, SPLIT_ROWS, .when = when_attn_bias },              \
    { W_V_BIAS, "self_attn.v_proj.bias", "attn_v.bias", { KV_DIM }, SPLIT_ROWS, .when = when_attn_bias },              \
    { W_O_PROJ, "self_attn.o_proj", "attn_output", { DIM, Q_DIM }, SPLIT_COLS },                                       \
    { W_O_BIAS, "self_attn.o_proj.bias", "attn_output.bias", { DIM }, .when = when_attn_bias },                        \
    { W_Q_NORM, "self_attn.q_norm", "attn_q_norm", { HEAD_DIM }, .load = load_plus_one },                              \
    { W_K_NORM, "self_attn.k_norm", "attn_k_norm", { HEAD_DIM }, .load = load_plus_one }
/* Qwen3.5's, whose value heads GGUF has in another order: those of one key head k_heads apart.  We take GGUF's. */
#define WEIGHTS_INTERLEAVED_DELTA                                                                                      \
    { W_QKV, "linear_attn.in_proj_qkv", "attn_qkv", { DELTA_QKV, DIM }, SPLIT_ROWS, .load = load_interleaved_qkv },    \
    { W_Z, "linear_attn.in_proj_z", "attn_gate", { DELTA_V, DIM }, SPLIT_ROWS, .load = load_interleaved },             \
    { W_BETA, "linear_attn.in_proj_b", "ssm_beta", { DELTA_V_HEADS, DIM }, SPLIT_ROWS, .load = load_interleaved },     \
    { W_ALPHA, "linear_attn.in_proj_a", "ssm_alpha", { DELTA_V_HEADS, DIM }, SPLIT_ROWS, .load = load_interleaved },   \
    { W_TAPS, "linear_attn.conv1d", "ssm_conv1d", { DELTA_QKV, DELTA_TAPS }, SPLIT_ROWS, .table = true,                \
      .load = load_interleaved_qkv },                                                                                  \
    { W_DT_BIAS, "linear_attn.dt_bias", "ssm_dt.bias", { DELTA_V_HEADS }, SPLIT_ROWS, .load = load_interleaved },      \
    { W_RATE, "linear_attn.A_log", "ssm_a", { DELTA_V_HEADS }, SPLIT_ROWS, .load = load_interleaved_rate,              \
      .bare = true },                                                                                                  \
    { W_HEAD_NORM, "linear_attn.norm", "ssm_norm", { DELTA_V_DIM } },                                                  \
    { W_DELTA_OUT, "linear_attn.out_proj", "ssm_out", { DIM, DELTA_V }, SPLIT_COLS, .load = load_interleaved_columns }

#define WEIGHTS_GATED_DELTA_SHARED                                                                                     \
    WEIGHTS_SHARED("mlp.shared_expert"),                                                                               \
    { W_SHARED_ROUTER, "mlp.shared_expert_gate", "ffn_gate_inp_shexp", { ONE, DIM }, .when = when_shared }

/* From a Hugging Face directory's order of value heads to the interleaved one: of the rows of a matrix (or values of a
 * vector) that belong to value heads; the same behind the rows of q and k; of -exp(values); of a matrix's columns. */
rg_load_fn load_interleaved, load_interleaved_qkv, load_interleaved_rate, load_interleaved_columns;

/* Kinds of layer (HYBRID_ATTENTION every interval-th, or as layer_types says), heads, rope, and the sizes of the delta
 * rule; interleaved: the order of value heads. */
bool finish_gated_delta(rg_config *c, const rg_checkpoint *ckpt, bool interleaved, rg_error *err);
/* The experts, chosen by a softmax whose chosen part sums to one. */
bool finish_gated_delta_experts(rg_config *c, rg_error *err);
bool put_gguf_gated_delta(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
/* "rope.dimension_sections", which GGUF wants of Qwen3.5 although text has one position for all of them. */
bool put_gguf_sections(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
extern const char *const gated_delta_harmless[];

/* What a layer of gated DeltaNet keeps: the last inputs of the convolution, and the states. */
enum { DELTA_TAIL, DELTA_STATE, DELTA_BUFFERS };
void keep_gated_delta(const rg_config *c, int layer, rg_keep *out);
/* Gated DeltaNet before out_proj, [rows, value heads * v_dim]: q, k and v of h, behind a short convolution, by the
 * delta rule with a decay for each head; normed by head, times silu(z). */
rg_act *gated_delta(rg_fwd *f, const rg_layer *l, const rg_act *h);

#endif
