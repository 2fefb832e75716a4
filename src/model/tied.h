/* tied.h -- whether the head is the embedding: what the config says, and what the file holds. */
#ifndef RG_MODEL_TIED_H
#define RG_MODEL_TIED_H

#include "model/config.h"

/* Complete c->tie_embeddings by the tensors, where config.json says that the two are one, and in GGUF, which has no key
 * for it.  A head that differs from the embedding is used (c->head_differs is then true if config.json said otherwise);
 * a head that equals it is not kept a second time.  Reads both tensors up to the first difference; without tensors the
 * config decides.  False and *err: one cannot be read. */
bool rg_tied_settle(rg_config *c, const rg_checkpoint *ckpt, rg_error *err) RG_MUST_CHECK;
/* True if t is a head that equals the embedding, which is used in its place. */
bool rg_tied_has_copy(const rg_config *c, const rg_checkpoint *ckpt, const rg_tensor *t);

#endif
