/* inputs.h -- what matrices of a layer read over the calibration text, added up as methods need it.  Included by the
 * files of this floor only. */
#ifndef RG_SHRINK_INPUTS_H
#define RG_SHRINK_INPUTS_H

#include "shrink/shrink.h"

/* Run all samples through the layer that the stage has entered, and fill l->inputs; needs: RG_NEED_... */
bool rg_inputs_collect(rg_layer_work *l, unsigned needs, rg_error *err) RG_MUST_CHECK;
void rg_inputs_free(rg_layer_work *l);
/* What a matrix of a weight read; NULL: nothing was seen of it. */
rg_input *rg_input_of(const rg_layer_work *l, const rg_weight *w, int64_t mat);

#endif
