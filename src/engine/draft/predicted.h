/* predicted.h -- the text that a request expects its answer to be (rg_params.predicted), as a drafter: asked before all
 * others, about requests that have one. */
#ifndef RG_ENGINE_DRAFT_PREDICTED_H
#define RG_ENGINE_DRAFT_PREDICTED_H

#include "engine/draft/draft.h"

/* Closed with rg_drafter_close.  NULL and *err: no memory. */
rg_drafter *rg_draft_predicted_new(rg_error *err);

/* Where an answer [n] goes on in a predicted text [n_text]: the place behind the longest run of the answer's last ids
 * that stands there; of several, the one nearest to the answer's own length.  An answer without ids: 0.  n_text: it is
 * not known. */
int32_t rg_predicted_find(const int32_t *text, int32_t n_text, const int32_t *answer, int32_t n);

#endif
