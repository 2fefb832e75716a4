/* random_weights.h -- random values in place of a checkpoint's: what is timed of a shape does not depend on them.
 *
 * Matrices are drawn from a normal distribution of deviation 1 / sqrt(columns), so that activations keep their size
 * from layer to layer; embeddings of deviation 4, so that tokens stay different and choose different experts; vectors
 * lie around 1/2, as stored: rates of recurrences that are made from them decay. */
#ifndef RG_MODEL_RANDOM_WEIGHTS_H
#define RG_MODEL_RANDOM_WEIGHTS_H

#include "model/weights.h"

/* Fill in weight i, which is declared; the same values for the same i. */
bool rg_weights_random(rg_weight_set *s, int i, const rg_config *c, rg_error *err) RG_MUST_CHECK;

#endif
