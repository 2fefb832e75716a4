/* scoring.h -- how a reader values answers: by a function, by an engine that scores pairs of texts, or by a grammar. */
#ifndef RG_API_SCORING_H
#define RG_API_SCORING_H

#include "engine/request.h"

typedef struct rg_scoring rg_scoring;

/* For requests that value as many answers at once.  NULL and *err: no such scorer. */
rg_scoring *rg_scoring_new(const rg_scorer *scorer, const rg_params *params, rg_error *err);
void rg_scoring_free(rg_scoring *s); /* NULL is fine */

/* The request waits for values (rg_work.to_value): give them.  wait false: only if the scorer has them by now; false:
 * it has not. */
bool rg_scoring_serve(rg_scoring *s, rg_request *r, bool wait);

#endif
