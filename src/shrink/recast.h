/* recast.h -- a model that keeps less of a text, made of one that keeps more, to be repaired by training: fewer K/V
 * heads (Ainslie et al. 2023), K/V that neighbouring layers share (Brandon et al. 2024), windows of attention. */
#ifndef RG_SHRINK_RECAST_H
#define RG_SHRINK_RECAST_H

#include "model/config.h"

/* What changes; 0: nothing. */
typedef struct rg_recast_options {
    int n_kv_heads; /* of each layer: each is the mean of a group of those there are */
    int share;      /* so many layers side by side read the K/V of the first of them */
    int window;     /* positions that rows see, their own among them */
    int full_every; /* with a window: the last of every so many layers still sees all */
} rg_recast_options;

/* Write it as a Hugging Face directory of its family.  *bytes: of all tensors.  False and *err: the numbers do not fit
 * the model, its family has no such form, or a weight is stored in a form that cannot be cut. */
bool rg_recast(const rg_checkpoint *from, const rg_config *c, const rg_recast_options *o, const char *to,
               uint64_t *bytes, rg_error *err) RG_MUST_CHECK;

#endif
