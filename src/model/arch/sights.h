/* sights.h -- keys of config.json by which the layers of a decoder say which keys their rows see, and whose K/V they
 * read: windows and patterns of attention by layer, and K/V that layers share (cross-layer attention, Brandon et al.
 * 2024).
 *
 * "attention_patterns" holds, by a name that "layer_types" may use, { "terms": [...], "positions": ... }.  A row at i
 * reads its own key, and a key at j < i that one of the terms for its head admits:
 *
 *     { "type": "window", "size": W, "dilation": d }    j = i - n d, n = 0 .. W - 1; d is 1 if it is missing
 *     { "type": "stride", "stride": l }                 (i - j) mod l = 0
 *     { "type": "block", "size": l }                    floor(j / l) = floor(i / l)
 *     { "type": "summary", "size": l, "columns": c }    j mod l >= l - c
 *     { "type": "first", "count": k }                   j < k
 *     { "type": "global", "positions": [...] }          j or i is in the list
 *     { "type": "full" }                                every j
 *
 * "heads", a list of query heads, limits a term to these.  "positions" is "absolute" (also if missing), or, of one
 * "first" and one "window" without dilation, "cache": positions are then places in a cache of the first keys and the
 * window (StreamingLLM, Xiao et al. 2023). */
#ifndef RG_MODEL_ARCH_SIGHTS_H
#define RG_MODEL_ARCH_SIGHTS_H

#include "model/arch/parts.h"

/* A layer's own settings: its positions are places in a cache of the first keys and the newest.  To keys before place
 * `first` no row is further away than one at place `last`.  first 0: positions are places in the text. */
typedef struct cache_places {
    int first, last;
} cache_places;

/* "layer_types": "full_attention", "sliding_attention" (of "sliding_window" keys), or the name of an entry of
 * "attention_patterns".  Without it every layer sees all.  in_cache: the kind of layers whose positions are places in a
 * cache. */
bool finish_sights(rg_config *c, const rg_checkpoint *ckpt, int in_cache, rg_error *err);
/* Rotate q and k by their places in such a layer's cache, and attend. */
rg_act *attention_in_cache(rg_fwd *f, const rg_layer *l, const qkv *p);

/* c->layer[].kv_layer: by "kv_source_layers", a list of layers; or, with "use_cla", the first of every
 * "cla_share_factor" layers has K/V that the others of them read. */
bool finish_kv_layers(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);

/* For put_gguf: GGUF has keys for neither. */
bool require_plain_sights(const rg_config *c, rg_error *err);

#endif
