/* gpt2.h -- GPT-2 (Radford et al. 2019) as its family shares it: keys, weights outside the layers, the embedding. */
#ifndef RG_MODEL_ARCH_GPT2_H
#define RG_MODEL_ARCH_GPT2_H

#include "model/arch/parts.h"

#define KEYS_GPT2                                                                                                      \
    { offsetof(rg_config, max_seq_len), KEY_INT, "n_positions", "context_length", 1024,                                \
      { "max_position_embeddings", "n_ctx" } },                                                                        \
    { offsetof(rg_config, n_heads), KEY_INT, "n_head", "attention.head_count", 12, { "num_attention_heads" } },        \
    { offsetof(rg_config, ffn_dim), KEY_INT, "n_inner", "feed_forward_length", 0, { "intermediate_size" } },           \
    KEY_LAYER_NORM_EPS("layer_norm_epsilon", 1e-5), KEY_TIED(1)

/* Checks the keys; activation: where "activation_function" is absent. */
bool finish_gpt2(rg_config *c, const rg_checkpoint *ckpt, rg_activation activation, rg_error *err);
void embed_gpt2(rg_fwd *f, const rg_layer *l, rg_act *x);

rg_size POSITIONS;
#define WEIGHTS_GPT2                                                                                                   \
    { W_EMBED_TOKENS, "transformer.wte", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },                                   \
    { W_EMBED_POSITIONS, "transformer.wpe", "position_embd", { POSITIONS, DIM }, .table = true },                      \
    WEIGHTS_LAYER_NORM(W_FINAL_NORM, "transformer.ln_f", "output_norm"),                                               \
    { W_LM_HEAD, "lm_head", "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied }

bool put_gguf_gpt2(const rg_config *c, rg_ckpt_writer *w, rg_error *err);

extern const char *const gpt2_harmless[];

#endif
