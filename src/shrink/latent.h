/* latent.h -- K and V of all heads as one latent of low rank for each position (TransMLA, Meng et al. 2025), to be
 * repaired by training.
 *
 * For each frequency of the rotation the K heads are turned into each other, so that what varies most stands in the
 * first of them: a turn between heads commutes with the rotation, and queries are turned likewise.  The first ones stay
 * rotated, one key for all query heads.  The rest of K is not rotated any more, and becomes a latent together with V,
 * by principal components of what both are on calibration text, K weighing as much as V.  With all K heads rotated and
 * a rank of all of V, nothing is lost. */
#ifndef RG_SHRINK_LATENT_H
#define RG_SHRINK_LATENT_H

#include "shrink/stage.h"

typedef struct rg_latent_options {
    int rank;       /* numbers of the latent */
    int rope_heads; /* turned K heads that stay rotated */
} rg_latent_options;

/* Write the model of the stage, which stands before the first layer with n_samples of ctx ids, as a Hugging Face
 * directory.  *bytes: of all tensors.  False and *err: it is not plain Llama, or the numbers do not fit it. */
bool rg_latent(const rg_checkpoint *from, rg_stage *s, int n_samples, int ctx, const rg_latent_options *o,
               const char *to, uint64_t *bytes, rg_error *err) RG_MUST_CHECK;

#endif
