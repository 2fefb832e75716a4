/* masked.h -- what a diffusion model learns: to fill in masks.
 *
 * Masked diffusion (LLaDA, Nie et al. 2025): of each text a share t, drawn uniformly from 0 to 1, is masked, each id
 * by itself; the loss is the cross-entropy of the masked ids times 1 / t, an upper bound of the text's nats.  Where a
 * model sees blocks of its text (SDAR; BD3-LM, Arriola et al. 2025), each block has its own t and sees the blocks
 * before as they are: a text is computed twice in one go, as it is and masked.  The first id of a text is never masked,
 * nor is what is not to be learnt: what counts is what counts of a model that continues texts.
 *
 * Shares and masks follow from a seed and the ids of the batch, so that a run that is resumed draws the same ones. */
#ifndef RG_TRAIN_MASKED_H
#define RG_TRAIN_MASKED_H

#include "train/objective.h"

typedef struct rg_masked rg_masked;

/* Of a model that fills in masks.  draws: of a loss without gradients the mean over so many draws is told.  NULL and
 * *err: it is no such model, or no memory. */
rg_masked *rg_masked_new(const rg_config *c, uint64_t seed, int draws, rg_error *err);
void rg_masked_free(rg_masked *m); /* NULL is fine */
rg_objective rg_masked_objective(rg_masked *m);

#endif
