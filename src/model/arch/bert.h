/* bert.h -- BERT's keys, weights and blocks, for those that have its tensors under other names. */
#ifndef RG_MODEL_ARCH_BERT_H
#define RG_MODEL_ARCH_BERT_H

#include "model/arch/encoder.h"

typedef struct bert_settings {
    encoder_settings base; /* first */
    int pad_id;
} bert_settings;

/* length: of the table of positions. */
#define KEYS_BERT(length, types)                                                                                       \
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", length },                \
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", 12 },                      \
    KEY_FFN(3072), KEY_LAYER_NORM_EPS("layer_norm_eps", 1e-12), KEY_TYPES(types)

/* rows: of the table of positions as Hugging Face has it, of which this model's first is first; GGUF's begins there. */
#define WEIGHTS_BERT_OUTER(root, rows, first)                                                                          \
    { W_EMBED_TOKENS, root "embeddings.word_embeddings", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },                   \
    { W_EMBED_POSITIONS, root "embeddings.position_embeddings", "position_embd", { MAX_POSITIONS, DIM },               \
      .table = true, .stored = { rows, DIM }, .first_row = first, .split_in_gguf = true },                             \
    { W_EMBED_TYPES, root "embeddings.token_type_embeddings", "token_types", { N_TYPES, DIM }, .table = true,          \
      .when = when_types },                                                                                            \
    { W_EMBED_NORM, root "embeddings.LayerNorm", "token_embd_norm", { DIM } },                                         \
    { W_EMBED_NORM_BIAS, root "embeddings.LayerNorm.bias", "token_embd_norm.bias", { DIM } }

/* The head of a classifier: dense, then out, by their names. */
#define WEIGHTS_BERT_HEAD(dense, out)                                                                                  \
    { W_SCORE_DENSE, dense, "cls", { DIM, DIM }, .when = when_labels },                                                \
    { W_SCORE_DENSE_BIAS, dense ".bias", "cls.bias", { DIM }, .when = when_labels },                                   \
    { W_SCORE_OUT, out, "cls.output", { N_LABELS, DIM }, .when = when_labels },                                        \
    { W_SCORE_OUT_BIAS, out ".bias", "cls.output.bias", { N_LABELS }, .when = when_labels }

rg_size MAX_POSITIONS;
extern const rg_weight_spec bert_layer_weights[];
extern const char *const bert_harmless[];

/* Everything but the length, of which finish says how many positions of the table come before the first. */
bool finish_bert(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);

#endif
