/* bidirectional.h -- decoders whose rows see what comes after them: the embedders that were made of language models.
 *
 * A checkpoint says so by "is_causal": false, "use_bidirectional_attention": true (or "all") or "bidirectional": true
 * in config.json, by the name of its class (LlamaBidirectionalModel), or by GGUF's "attention.causal": false.  Any
 * decoder whose layers keep K/V alone can be read so; the others are refused by the key's name.  A GGUF file that ridge
 * wrote of a model without a head has the key "ridge.headless". */
#ifndef RG_MODEL_BIDIRECTIONAL_H
#define RG_MODEL_BIDIRECTIONAL_H

#include "model/config.h"

/* After the architecture's finish: if the checkpoint says that rows see each other, c->sees becomes RG_SEES_ALL, and a
 * window of w keys before a row |i - j| <= w, as transformers has it (of architectures with halves_window: w / 2). */
bool rg_bidirectional_read(rg_config *c, const rg_checkpoint *ckpt, rg_error *err) RG_MUST_CHECK;

#endif
