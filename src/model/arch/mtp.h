/* mtp.h -- modules that predict further tokens (DeepSeek-V3 report, 2024, section 2.2), which a model's own checkpoint
 * brings: one layer of the model on fc [normed embedding; normed feature], a feature being what enters the model's
 * head.
 *
 * As a network that drafts, such a module is an architecture with the same kinds of layer.  One whose publishers have a
 * form of it names it in its rg_arch.mtp.  Modules of all others, which `ridge train --mtp` makes, are stored as
 * DeepSeek-V3's: rg_arch_module, with a layer of the kind that the model's last layer of attention is. */
#ifndef RG_MODEL_ARCH_MTP_H
#define RG_MODEL_ARCH_MTP_H

#include "model/arch/draft.h"

/* Beside an ordinary layer, whose number is that after the model's last: DeepSeek-V3, GLM-4.5. */
#define WEIGHTS_NEXTN                                                                                                  \
    { W_EMBED_TOKENS, "/model.layers.#.embed_tokens", "/blk.#.nextn.embed_tokens", { VOCAB, DIM }, SPLIT_ROWS,         \
      .optional = true },                                                                                              \
    { W_TOKEN_NORM, "/model.layers.#.enorm", "/blk.#.nextn.enorm", { DIM } },                                          \
    { W_FEATURE_NORM, "/model.layers.#.hnorm", "/blk.#.nextn.hnorm", { DIM } },                                        \
    { W_FC, "/model.layers.#.eh_proj", "/blk.#.nextn.eh_proj", { DIM, DIM_2 } },                                       \
    { W_FINAL_NORM, "/model.layers.#.shared_head.norm", "/blk.#.nextn.shared_head_norm", { DIM }, .optional = true,    \
      .made_new = true },                                                                                              \
    { W_LM_HEAD, "/model.layers.#.shared_head.head", "/blk.#.nextn.shared_head_head", { VOCAB, DIM }, SPLIT_ROWS,      \
      .optional = true }

/* With names of its own, and norms stored less one: Qwen3-Next, Qwen3.5. */
#define WEIGHTS_QWEN_MTP                                                                                               \
    { W_TOKEN_NORM, "/mtp.pre_fc_norm_embedding", NULL, { DIM }, .load = load_plus_one },                              \
    { W_FEATURE_NORM, "/mtp.pre_fc_norm_hidden", NULL, { DIM }, .load = load_plus_one },                               \
    { W_FC, "/mtp.fc", NULL, { DIM, DIM_2 } },                                                                         \
    { W_FINAL_NORM, "/mtp.norm", NULL, { DIM }, .load = load_plus_one }

/* Is the module there?  The first also takes the kind of layer; the second says which it is. */
bool finish_nextn_module(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
bool finish_qwen_mtp(rg_config *c, const rg_checkpoint *ckpt, int kind, rg_error *err);

void embed_mtp(rg_fwd *f, const rg_layer *l, rg_act *x);

/* Rows of a draft read what the layer made of the row before: without the norm of the module's head in the first form,
 * with it in the second. */
#define MTP_NEXTN                                                                                                      \
    .hf_prefix = "model.layers.", .embed = embed_mtp, .norm = norm_none, .head = part_normed_head,                     \
    .module_key = "num_nextn_predict_layers"
#define MTP_QWEN                                                                                                       \
    .hf_prefix = "mtp.layers.", .embed = embed_mtp, .head = part_head, .module_key = "mtp_num_hidden_layers"

#endif
