/* parts.h -- what several architectures share: rows of key and weight tables, conditions, and parts of blocks.  What
 * belongs to multi-head latent attention is in mla.h, the block of Mamba in mamba.h. */
#ifndef RG_MODEL_ARCH_PARTS_H
#define RG_MODEL_ARCH_PARTS_H

#include "model/arch.h"
#include "model/nulls.h"

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
/* A rate below 0, stored as its logarithm: -exp(w). */
void load_minus_exp(const rg_config *c, const float *src, float *dst, int64_t n);

/* Rows of key tables: the context length, and grouped-query attention, each with its default where a file has no
 * key. */
#define KEYS_GQA(length, heads, kv_heads, dim)                                                                         \
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", length },                \
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", heads },                   \
    { offsetof(rg_config, n_kv_heads), KEY_INT, "num_key_value_heads", "attention.head_count_kv", kv_heads },          \
    { offsetof(rg_config, head_dim), KEY_INT, "head_dim", "attention.key_length", dim }
#define KEY_FFN(size)      { offsetof(rg_config, ffn_dim), KEY_INT, "intermediate_size", "feed_forward_length", size }
#define KEY_TIED(yes)      { offsetof(rg_config, tie_embeddings), KEY_BOOL, "tie_word_embeddings", NULL, yes }
#define KEY_ATTN_BIAS(yes) { offsetof(rg_config, attn_bias), KEY_BOOL, "attention_bias", NULL, yes }
#define KEY_RMS_EPS(eps)                                                                                               \
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "rms_norm_eps", "attention.layer_norm_rms_epsilon", eps }
#define KEY_LAYER_NORM_EPS(name, eps)                                                                                  \
    { offsetof(rg_config, norm_eps), KEY_FLOAT, name, "attention.layer_norm_epsilon", eps }
#define KEY_WINDOW(size)                                                                                               \
    { offsetof(rg_config, window), KEY_INT, "sliding_window", "attention.sliding_window", size }

/* Routed experts: the key of their number; their number, how many a row uses, the width of one. */
#define KEYS_EXPERTS(key, n, used, ffn)                                                                                \
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "moe_intermediate_size", "expert_feed_forward_length", ffn },         \
    { offsetof(rg_config, routing.n_experts), KEY_INT, key, "expert_count", n },                                       \
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", used }
/* Of DeepSeek-V3's routing, which finish_noaux completes. */
#define KEYS_NOAUX(shared, groups, groups_used, factor)                                                                \
    { offsetof(rg_config, n_shared_experts), KEY_INT, "n_shared_experts", "expert_shared_count", shared },             \
    { offsetof(rg_config, routing.n_groups), KEY_INT, "n_group", "expert_group_count", groups },                       \
    { offsetof(rg_config, routing.n_groups_used), KEY_INT, "topk_group", "expert_group_used_count", groups_used },     \
    { offsetof(rg_config, routing.scale), KEY_FLOAT, "routed_scaling_factor", "expert_weights_scale", factor },        \
    { offsetof(rg_config, routing.renormalize), KEY_BOOL, "norm_topk_prob", "expert_weights_norm", 1 }

/* Rows of weight tables. */
#define WEIGHTS_DECODER                                                                                                \
    { W_EMBED_TOKENS, "model.embed_tokens", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },                                \
    { W_FINAL_NORM, "model.norm", "output_norm", { DIM } },                                                            \
    { W_LM_HEAD, "lm_head", "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied }

#define WEIGHT_ROPE_FREQS { W_ROPE_FREQS, NULL, "rope_freqs", { ROPE_PAIRS }, .when = when_rope_factors }

/* pairs: GGUF_PAIRS or GGUF_HALVES, how GGUF has the rows that are rotated. */
#define GGUF_PAIRS true
#define GGUF_HALVES false
#define WEIGHTS_GQA(pairs)                                                                                             \
    { W_Q_PROJ, "self_attn.q_proj", "attn_q", { Q_DIM, DIM }, SPLIT_ROWS, .paired = pairs },                           \
    { W_K_PROJ, "self_attn.k_proj", "attn_k", { KV_DIM, DIM }, SPLIT_ROWS, .when = when_own_kv, .paired = pairs },     \
    { W_V_PROJ, "self_attn.v_proj", "attn_v", { KV_DIM, DIM }, SPLIT_ROWS, .when = when_own_kv },                      \
    { W_Q_BIAS, "self_attn.q_proj.bias", "attn_q.bias", { Q_DIM }, SPLIT_ROWS, .when = when_attn_bias,                 \
      .paired = pairs },                                                                                               \
    { W_K_BIAS, "self_attn.k_proj.bias", "attn_k.bias", { KV_DIM }, SPLIT_ROWS, .when = when_own_kv_bias,              \
      .paired = pairs },                                                                                               \
    { W_V_BIAS, "self_attn.v_proj.bias", "attn_v.bias", { KV_DIM }, SPLIT_ROWS, .when = when_own_kv_bias },            \
    { W_O_PROJ, "self_attn.o_proj", "attn_output", { DIM, Q_DIM }, SPLIT_COLS },                                       \
    { W_O_BIAS, "self_attn.o_proj.bias", "attn_output.bias", { DIM }, .when = when_o_bias }
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

/* K/V of every position, or of the layer's window; none where it reads another layer's. */
void keep_kv(const rg_config *c, int layer, rg_keep *out);

/* Reads n_heads, n_kv_heads, head_dim and checks them; attn_scale = 1 / sqrt(head_dim) unless it is set. */
bool finish_heads(rg_config *c, rg_error *err);
/* GGUF's attention.value_length must be head_dim. */
bool require_value_length(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
/* config.json's "layer_types" or GGUF's list "attention.sliding_window_pattern", where it is given, else every
 * period-th layer global (0: none is): a window and the rope number `local` for those of "sliding_attention", no window
 * and rope 0 for "full_attention". */
bool finish_windows(rg_config *c, const rg_checkpoint *ckpt, int period, int local, rg_error *err);
/* The period of the layers without a window, as finish_windows takes it; -1: they are not periodic. */
int period_of_windows(const rg_config *c);
/* One rope for all layers, of head_dim columns or the part of them that the checkpoint says; pairs: how GGUF has the
 * rows that are rotated (GGUF_PAIRS or GGUF_HALVES). */
bool finish_rope(rg_config *c, const rg_checkpoint *ckpt, double theta_default, bool pairs, rg_error *err);
/* The same with other defaults. */
typedef struct rope_defaults {
    double theta, part;               /* part: of head_dim, where config.json has no partial_rotary_factor */
    const char *theta_key, *part_key; /* older names of these numbers in config.json; NULL: none */
    bool pairs;
} rope_defaults;
bool finish_rope_as(rg_config *c, const rg_checkpoint *ckpt, const rope_defaults *d, rg_error *err);
/* For GGUF: find out which optional tensors there are: biases, an untied head, rope factors. */
void finish_optional(rg_config *c, const rg_checkpoint *ckpt);
bool finish_routing(const rg_config *c, rg_error *err);
/* The routing of DeepSeek-V3: by the sigmoid of the score and a bias, in the groups whose best two are best. */
bool finish_noaux(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
/* GGUF counts layers that only predict further tokens; they are left out of n_layers. */
bool finish_nextn(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
/* GGUF's expert_gating_func, if it is there, must be that of c->routing.score. */
bool require_gating(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
/* config.json's key must be one of NULL-ended names, or absent. */
bool require_choice(const rg_checkpoint *ckpt, const char *key, const char *const *names, rg_error *err);
/* c->act by the name at config.json's key, or by `fallback` where it is absent; GGUF: `fallback`. */
bool finish_act(rg_config *c, const rg_checkpoint *ckpt, const char *key, rg_activation fallback, rg_error *err);
bool require_silu(const rg_checkpoint *ckpt, rg_error *err); /* of "hidden_act" */
bool require_false(const rg_checkpoint *ckpt, const char *key, rg_error *err);
bool require_true(const rg_checkpoint *ckpt, const char *key, rg_error *err);
bool require_number(const rg_checkpoint *ckpt, const char *key, double want, rg_error *err);
bool require_numbers(const rg_checkpoint *ckpt, const char *key, int32_t want, rg_error *err); /* all of a list */

/* For put_gguf.  "<architecture>.<suffix>" = value. */
bool put_gguf_int(const rg_config *c, rg_ckpt_writer *w, const char *suffix, int64_t value, rg_error *err);
bool put_gguf_string(const rg_config *c, rg_ckpt_writer *w, const char *suffix, const char *value, rg_error *err);
bool put_gguf_float(const rg_config *c, rg_ckpt_writer *w, const char *suffix, double value, rg_error *err);
bool put_gguf_bool(const rg_config *c, rg_ckpt_writer *w, const char *suffix, bool value, rg_error *err);
bool put_gguf_gating(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
/* "attention.sliding_window_pattern": the list of layers that have a window. */
bool put_gguf_windows(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
/* c->ropes[0]: its base and its scaling; log_unit: what yarn_log_multiplier is of mscale_all_dim (0.1 without _by). */
bool put_gguf_rope(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
bool put_gguf_rope_by(const rg_config *c, rg_ckpt_writer *w, double log_unit, rg_error *err);
/* Says of a default rope that it has no scaling, where other engines ask. */
bool put_gguf_no_scaling(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
/* The whole put_gguf of a decoder with one rope: the length of values, and rope. */
bool put_gguf_decoder(const rg_config *c, rg_ckpt_writer *w, rg_error *err);

/* x += residual_scale * (w a + b): what a half of a layer adds. */
void part_add(rg_fwd *f, const rg_layer *l, rg_act *x, const rg_act *a, const rg_weight *w, const rg_weight *b);
/* The act before o_proj: q, k, v of h, normalised where the layer has W_Q_NORM and W_K_NORM, rotated, stored (k and v
 * of its own), attended. */
rg_act *part_attention(rg_fwd *f, const rg_layer *l, const rg_act *h);
/* y = the norm of x that the config asks for, by the weight of one role and, of LayerNorm, the bias of another; where
 * the layer has no weight, LayerNorm without one.  y may be x. */
void part_norm(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x, int weight, int bias);
/* out += (add) or = down(act(gate h) * up h), or down(act(up h)) where the layer has no gate. */
void part_mlp(rg_fwd *f, const rg_layer *l, rg_act *out, const rg_act *h, bool add);

/* out += the routed experts of h, chosen by the router's logits of it, and the shared ones where the layer has them;
 * or the first half of that alone, for routers that read something else; or the second, times the sigmoid of a row's
 * own value where there is W_SHARED_ROUTER. */
void part_experts(rg_fwd *f, const rg_layer *l, rg_act *out, const rg_act *h);
void part_routed(rg_fwd *f, const rg_layer *l, rg_act *out, const rg_act *h, const rg_act *logits);
void part_shared_experts(rg_fwd *f, const rg_layer *l, rg_act *out, const rg_act *h);

/* x += the MLP of its norm, or the experts where the layer has a router. */
void part_second_half(rg_fwd *f, const rg_layer *l, rg_act *x);

/* Blocks of decoders: attention, then the second half (an MLP, or experts where the layer has a router), both added to
 * x; with a norm in front of each half; */
void block_pre_norm(rg_fwd *f, const rg_layer *l, rg_act *x);
/* with one behind each, after it was added (BERT); */
void block_post_norm(rg_fwd *f, const rg_layer *l, rg_act *x);
/* both of x as it came, each by a norm of its own, or by one for both where there is no second; */
void block_parallel(rg_fwd *f, const rg_layer *l, rg_act *x);
/* with a norm behind each half, and none in front; */
void block_post_norms(rg_fwd *f, const rg_layer *l, rg_act *x);
/* with a norm in front of each and one behind it (Gemma 2 and 3). */
void block_both_norms(rg_fwd *f, const rg_layer *l, rg_act *x);

#endif
