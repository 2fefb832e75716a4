/* qwen.h -- what the Qwen family shares: which layers have a window, and which have experts. */
#ifndef RG_MODEL_ARCH_QWEN_H
#define RG_MODEL_ARCH_QWEN_H

#include "model/arch/parts.h"

/* Windows where use_sliding_window is true: as layer_types says, else of the layers from max_window_layers on (`first`
 * where config.json does not say).  GGUF files have none. */
bool finish_qwen_windows(rg_config *c, const rg_checkpoint *ckpt, int first, rg_error *err);
/* Which layers have experts: every decoder_sparse_step-th, but for those that mlp_only_layers names; GGUF: all. */
bool read_sparse_layers(const rg_config *c, const rg_checkpoint *ckpt, bool sparse[], rg_error *err);
/* As put_gguf_decoder; refuses windows. */
bool put_gguf_qwen(const rg_config *c, rg_ckpt_writer *w, rg_error *err);

#endif
