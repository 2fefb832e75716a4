/* hybrid.h -- stacks of several kinds of layer, of which some attend: which layer is of which kind, as config.json and
 * GGUF say it. */
#ifndef RG_MODEL_ARCH_HYBRID_H
#define RG_MODEL_ARCH_HYBRID_H

#include "model/arch/parts.h"

/* Numbers of kinds: what stands in the place of attention, and attention.  An architecture that has two halves in a
 * layer adds HYBRID_EXPERTS where the second one is a mixture; others number further kinds from there on. */
enum { HYBRID_OTHER, HYBRID_ATTENTION, HYBRID_EXPERTS };

/* KEYS_GQA without GGUF's number of K/V heads, which it has for each layer (read_gguf_kv_heads). */
#define KEYS_HYBRID_GQA(length, heads, kv_heads, dim)                                                                  \
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", length },                \
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", heads },                   \
    { offsetof(rg_config, n_kv_heads), KEY_INT, "num_key_value_heads", NULL, kv_heads, .null = NULL_IS_ZERO },         \
    { offsetof(rg_config, head_dim), KEY_INT, "head_dim", "attention.key_length", dim }

/* A word of config.json's list of layers, and the kind it means. */
typedef struct kind_word {
    const char *word;
    int kind;
} kind_word;

/* config.json's list at `key`, with a word for every layer, into config.layer[].kind; words ends with { 0 }.  1: read;
 * 0: there is no list; -1: *err. */
int read_kinds(rg_config *c, const rg_checkpoint *ckpt, const char *key, const kind_word *words, rg_error *err);

/* GGUF's numbers of K/V heads, one for each layer (or one for all): kind HYBRID_OTHER where it is 0, else
 * HYBRID_ATTENTION and config.n_kv_heads. */
bool read_gguf_kv_heads(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
/* For put_gguf: those numbers, 0 for every layer that keeps no K/V. */
bool put_gguf_kv_heads(const rg_config *c, rg_ckpt_writer *w, rg_error *err);

/* True if any layer of the GGUF file has the tensor "blk.N.<name>". */
bool any_layer_has(const rg_config *c, const rg_checkpoint *ckpt, const char *name);
/* True if layer i has. */
bool layer_has(const rg_checkpoint *ckpt, int i, const char *name);

#endif
