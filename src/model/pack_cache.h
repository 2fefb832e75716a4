/* pack_cache.h -- binding weights by way of a pack file, so that they are packed once and only read from then on.
 *
 * The file's name follows from the checkpoint's path, its key from the checkpoint's identity and from how this version
 * packs.  A file that is damaged or has another key is not used: it is said so, and the file is written anew. */
#ifndef RG_MODEL_PACK_CACHE_H
#define RG_MODEL_PACK_CACHE_H

#include "model/model.h"

/* As rg_weights_bind, for the model's weights, from the folder o->pack_cache, which is made if there is none.  A file
 * that cannot be written costs a warning and nothing else.
 *
 * With o->expert_bytes experts stay in the file, which then has to be written; without o->pack_cache it lies beside the
 * checkpoint. */
bool rg_pack_cache_bind(rg_model *m, const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err) RG_MUST_CHECK;

#endif
