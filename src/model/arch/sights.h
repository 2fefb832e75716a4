/* sights.h -- keys of config.json by which the layers of a decoder say which keys their rows see, and whose K/V they
 * read: windows and patterns of attention by layer, and K/V that layers share (cross-layer attention, Brandon et al.
 * 2024). */
#ifndef RG_MODEL_ARCH_SIGHTS_H
#define RG_MODEL_ARCH_SIGHTS_H

#include "model/arch/parts.h"

/* "layer_types": "full_attention", "sliding_attention" (of "sliding_window" keys), or the name of an entry of
 * "attention_patterns".  Without it every layer sees all. */
bool finish_sights(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);

/* c->layer[].kv_layer: by "kv_source_layers", a list of layers; or, with "use_cla", the first of every
 * "cla_share_factor" layers has K/V that the others of them read. */
bool finish_kv_layers(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);

/* For put_gguf: GGUF has keys for neither. */
bool require_plain_sights(const rg_config *c, rg_error *err);

#endif
