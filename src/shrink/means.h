/* means.h -- mean |x| of what a model's matrices read on calibration text: the importance of columns, by which
 * quantizers weigh errors. */
#ifndef RG_SHRINK_MEANS_H
#define RG_SHRINK_MEANS_H

#include "shrink/stage.h"

/* Write them by the weights' names, [columns] or of stacked matrices [matrices, columns], as one safetensors file.  The
 * stage stands before the first layer and has n_samples of ctx ids. */
bool rg_means_write(rg_stage *s, int n_samples, int ctx, const char *path, rg_error *err) RG_MUST_CHECK;

#endif
