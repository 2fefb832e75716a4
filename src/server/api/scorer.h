/* scorer.h -- which of the server's models values the answers of a request: a reranker. */
#ifndef RG_SERVER_API_SCORER_H
#define RG_SERVER_API_SCORER_H

#include "server/call.h"

/* Find the model that c->f.scorer names, which stays open until rg_scorer_release.  False and *e: there is none, it is
 * not open, or it scores nothing; or it is not known what answers are to fit. */
bool rg_scorer_find(rg_call *c, rg_refusal *e);
void rg_scorer_release(rg_call *c); /* the call has closed its requests */
/* For the i-th prompt; NULL: answers are valued by their log-probabilities.  Valid as long as the call. */
const rg_scorer *rg_scorer_of(rg_call *c, int32_t i);

#endif
