/* encoder.h -- what encoders share: embeddings of positions and token types, blocks whose norms stand behind attention
 * and MLP, and heads that score a whole sequence.
 *
 * Every row sees every row, and there is no next id: what they give are hidden states, and the scores of a head. */
#ifndef RG_MODEL_ARCH_ENCODER_H
#define RG_MODEL_ARCH_ENCODER_H

#include "model/arch/parts.h"

/* The first members of an encoder's own settings. */
typedef struct encoder_settings {
    int n_types;    /* rows of the table of token types; 0: there is none */
} encoder_settings;

enum {
    W_EMBED_TYPES = W_OWN, W_EMBED_NORM, W_EMBED_NORM_BIAS,
    W_SCORE_DENSE, W_SCORE_DENSE_BIAS, W_SCORE_NORM, W_SCORE_NORM_BIAS, W_SCORE_OUT, W_SCORE_OUT_BIAS,
};

rg_size N_TYPES, N_LABELS;
bool when_types(const rg_config *c, int layer);
bool when_labels(const rg_config *c, int layer);

#define KEY_TYPES(n) { RG_OWN_AT(encoder_settings, n_types), KEY_INT, "type_vocab_size", NULL, n }

/* q, k and v in one tensor, one below the other. */
#define WEIGHTS_QKV(name)                                                                                              \
    { W_Q_PROJ, name, "attn_qkv", { Q_DIM, DIM }, SPLIT_ROWS, .stored = { QKV_DIM, DIM }, .first_row = ROW_0 },        \
    { W_K_PROJ, name, "attn_qkv", { KV_DIM, DIM }, SPLIT_ROWS, .stored = { QKV_DIM, DIM }, .first_row = ROW_OF_K },    \
    { W_V_PROJ, name, "attn_qkv", { KV_DIM, DIM }, SPLIT_ROWS, .stored = { QKV_DIM, DIM }, .first_row = ROW_OF_V },    \
    { W_Q_BIAS, name ".bias", "attn_qkv.bias", { Q_DIM }, SPLIT_ROWS, .stored = { QKV_DIM }, .first_row = ROW_0,       \
      .when = when_attn_bias },                                                                                        \
    { W_K_BIAS, name ".bias", "attn_qkv.bias", { KV_DIM }, SPLIT_ROWS, .stored = { QKV_DIM }, .first_row = ROW_OF_K,   \
      .when = when_attn_bias },                                                                                        \
    { W_V_BIAS, name ".bias", "attn_qkv.bias", { KV_DIM }, SPLIT_ROWS, .stored = { QKV_DIM }, .first_row = ROW_OF_V,   \
      .when = when_attn_bias }

/* Heads of attention, all of them alike, and how far rows see; the number of token types, and of labels.  The last is 0
 * unless the checkpoint is a classifier, and in a GGUF file that lacks a part of its head. */
bool finish_encoder(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
/* Token types, and that rows see what stands behind them. */
bool put_gguf_encoder(const rg_config *c, rg_ckpt_writer *w, rg_error *err);

/* The embed hook: tokens, positions and token types as far as there are tables, normed. */
void embed_encoder(rg_fwd *f, const rg_layer *l, rg_act *x);
/* The norm hook where the last block has normed its output. */
void norm_nothing(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x);
/* The score hook: a product by W_SCORE_OUT of act(dense(pooled)), normed where there is a norm. */
void score_by(rg_fwd *f, const rg_layer *l, rg_act *scores, const rg_act *pooled, rg_activation act);
void score_tanh(rg_fwd *f, const rg_layer *l, rg_act *scores, const rg_act *pooled);

#endif
