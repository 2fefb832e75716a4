/* init.h -- the weights of a new model.
 *
 * Matrices and tables are normal with one deviation, what adds to the stream of a model with layers (o_proj,
 * down_proj and their like) divided by sqrt(2 layers) (GPT-2's rule); vectors of norms are 1, biases 0, and
 * parameters of recurrences as their papers begin.  Tensor number i in the alphabetical order of names has seed +
 * i: values of splitmix64 by Box and Muller, the first n of them radii and the next n angles. */
#ifndef RG_TRAIN_INIT_H
#define RG_TRAIN_INIT_H

#include "train/masters.h"

bool rg_masters_init(rg_masters *m, double deviation, uint64_t seed, rg_error *err) RG_MUST_CHECK;
/* Values from another checkpoint's tensors of the same names; how many of the masters it has must be all. */
bool rg_masters_init_from(rg_masters *m, const rg_checkpoint *from, rg_error *err) RG_MUST_CHECK;

#endif
