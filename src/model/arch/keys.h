/* keys.h -- rows of key tables that families share, and what follows from the keys: heads, windows, ropes, routing. */
#ifndef RG_MODEL_ARCH_KEYS_H
#define RG_MODEL_ARCH_KEYS_H

#include "model/arch.h"
#include "model/nulls.h"

/* Rows of key tables: the context length, and grouped-query attention, each with its default where a file has no
 * key. */
#define KEYS_GQA(length, heads, kv_heads, dim)                                                                         \
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", length },                \
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", heads },                   \
    { offsetof(rg_config, n_kv_heads), KEY_INT, "num_key_value_heads", "attention.head_count_kv", kv_heads,            \
      .null = NULL_IS_ZERO },                                                                                          \
    { offsetof(rg_config, head_dim), KEY_INT, "head_dim", "attention.key_length", dim }
#define KEY_FFN(size)      { offsetof(rg_config, ffn_dim), KEY_INT, "intermediate_size", "feed_forward_length", size }
#define KEY_TIED(yes)      { offsetof(rg_config, tie_embeddings), KEY_BOOL, "tie_word_embeddings", NULL, yes }
#define KEY_ATTN_BIAS(yes) { offsetof(rg_config, attn_bias), KEY_BOOL, "attention_bias", NULL, yes }
#define KEY_RMS_EPS(eps)                                                                                               \
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "rms_norm_eps", "attention.layer_norm_rms_epsilon", eps }
#define KEY_LAYER_NORM_EPS(name, eps)                                                                                  \
    { offsetof(rg_config, norm_eps), KEY_FLOAT, name, "attention.layer_norm_epsilon", eps }
#define KEY_WINDOW(size)                                                                                               \
    { offsetof(rg_config, window), KEY_INT, "sliding_window", "attention.sliding_window", size, .null = NULL_IS_ZERO }
/* The same where a GGUF file without the key means that there is none. */
#define KEY_WINDOW_OR_NONE(size)                                                                                       \
    { offsetof(rg_config, window), KEY_INT, "sliding_window", "attention.sliding_window", size, .null = NULL_IS_ZERO,  \
      .zero_in_gguf = true }

/* Routed experts: the key of their number; their number, how many a row uses, the width of one. */
#define KEYS_EXPERTS(key, n, used, ffn)                                                                                \
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "moe_intermediate_size", "expert_feed_forward_length", ffn },         \
    { offsetof(rg_config, routing.n_experts), KEY_INT, key, "expert_count", n },                                       \
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", used }
/* Rows of DeepSeek-V3's routing, which finish_noaux completes. */
#define KEYS_NOAUX(shared, groups, groups_used, factor)                                                                \
    { offsetof(rg_config, n_shared_experts), KEY_INT, "n_shared_experts", "expert_shared_count", shared },             \
    { offsetof(rg_config, routing.n_groups), KEY_INT, "n_group", "expert_group_count", groups },                       \
    { offsetof(rg_config, routing.n_groups_used), KEY_INT, "topk_group", "expert_group_used_count", groups_used },     \
    { offsetof(rg_config, routing.scale), KEY_FLOAT, "routed_scaling_factor", "expert_weights_scale", factor },        \
    { offsetof(rg_config, routing.renormalize), KEY_BOOL, "norm_topk_prob", "expert_weights_norm", 1 }

/* Reads n_heads, n_kv_heads, head_dim and checks them; attn_scale = 1 / sqrt(head_dim) unless it is set. */
bool finish_heads(rg_config *c, rg_error *err);
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
/* c->act by the name at config.json's key, or by `fallback` where it is absent; GGUF: `fallback`. */
bool finish_act(rg_config *c, const rg_checkpoint *ckpt, const char *key, rg_activation fallback, rg_error *err);

#endif
