/* fla.h -- linear attention with decay and an output gate as flash-linear-attention stores it (RetNet, GLA): settings,
 * keys, weights, and the block around it.
 *
 * An architecture that has it begins its own settings (RG_OWN) with fla_settings, and its own roles with W_FLA_END. */
#ifndef RG_MODEL_ARCH_FLA_H
#define RG_MODEL_ARCH_FLA_H

#include "model/arch/parts.h"

typedef struct fla_settings {
    double expand_k, expand_v, hidden_ratio;
    int k_dim, v_dim; /* of a head */
    bool gated, fused, affine;
} fla_settings;

enum { W_FLA_GATE = W_OWN, W_FLA_NORM, W_FLA_END };

/* Columns of k and v, which as many heads share as n_heads / n_kv_heads; of v of all heads. */
rg_size FLA_Q, FLA_K, FLA_V, FLA_O, FLA_HEAD_V;

#define KEYS_FLA(heads, expand_key, expand_value, ratio)                                                               \
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", NULL, 1048576 },                           \
    { offsetof(rg_config, n_heads), KEY_INT, "num_heads", NULL, heads },                                               \
    { offsetof(rg_config, n_kv_heads), KEY_INT, "num_kv_heads", NULL, 0 },                                             \
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "norm_eps", NULL, 1e-6 },                                              \
    { offsetof(rg_config, ffn_dim), KEY_INT, "intermediate_size", NULL, 0 },                                           \
    KEY_TIED(0),                                                                                                       \
    { RG_OWN_AT(fla_settings, expand_k), KEY_DOUBLE, "expand_k", NULL, expand_key },                                   \
    { RG_OWN_AT(fla_settings, expand_v), KEY_DOUBLE, "expand_v", NULL, expand_value },                                 \
    { RG_OWN_AT(fla_settings, hidden_ratio), KEY_DOUBLE, "hidden_ratio", NULL, ratio },                                \
    { RG_OWN_AT(fla_settings, gated), KEY_BOOL, "use_output_gate", NULL, 1 },                                          \
    { RG_OWN_AT(fla_settings, fused), KEY_BOOL, "fuse_norm", NULL, 1 },                                                \
    { RG_OWN_AT(fla_settings, affine), KEY_BOOL, "elementwise_affine", NULL, 1 }

#define WEIGHTS_FLA_OUTER                                                                                              \
    { W_EMBED_TOKENS, "model.embeddings", NULL, { VOCAB, DIM }, SPLIT_ROWS },                                          \
    { W_FINAL_NORM, "model.norm", NULL, { DIM } },                                                                     \
    { W_LM_HEAD, "lm_head", NULL, { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied }
bool when_fla_gate(const rg_config *c, int layer);
bool when_fla_fused(const rg_config *c, int layer);     /* its norm has the gate in its name */
bool when_fla_not_fused(const rg_config *c, int layer);
#define WEIGHTS_FLA                                                                                                    \
    { W_ATTN_NORM, "attn_norm", NULL, { DIM } },                                                                       \
    { W_Q_PROJ, "attn.q_proj", NULL, { FLA_Q, DIM }, SPLIT_ROWS },                                                     \
    { W_K_PROJ, "attn.k_proj", NULL, { FLA_K, DIM }, SPLIT_ROWS },                                                     \
    { W_V_PROJ, "attn.v_proj", NULL, { FLA_V, DIM }, SPLIT_ROWS },                                                     \
    { W_FLA_GATE, "attn.g_proj", NULL, { FLA_O, DIM }, SPLIT_ROWS, .when = when_fla_gate },                            \
    { W_FLA_NORM, "attn.g_norm_swish_gate", NULL, { FLA_HEAD_V }, .when = when_fla_fused },                            \
    { W_FLA_NORM, "attn.g_norm", NULL, { FLA_HEAD_V }, .when = when_fla_not_fused },                                   \
    { W_O_PROJ, "attn.o_proj", NULL, { DIM, FLA_O }, SPLIT_COLS },                                                     \
    { W_FFN_NORM, "mlp_norm", NULL, { DIM } },                                                                         \
    WEIGHTS_MLP

/* Sizes of heads and of the MLP; refuses what the block does not have. */
bool finish_fla(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
extern const char *const fla_harmless[];

/* The state; with a decay for each element of k, if so. */
void keep_fla(const rg_config *c, rg_keep *out, bool decay_per_element);
/* Linear attention, [rows, n_heads * v_dim]: S = decay S + k v^T, y = q S / sqrt(k_dim).  decay [rows, kv heads *
 * k_dim], or NULL, and fixed: one number for each head. */
rg_act *fla_attention(rg_fwd *f, const rg_layer *l, const qkv *p, const rg_act *decay, const rg_weight *fixed);
/* y = norm(y) of each head, times silu(g_proj h) where there is a gate. */
void fla_norm_and_gate(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *h);

#endif
