/* hints.h -- what a request says of how its answer is to come about: how many tokens reasoning may take, and which text
 * the answer will mostly be.  For call.c. */
#ifndef RG_SERVER_API_HINTS_H
#define RG_SERVER_API_HINTS_H

#include "server/call.h"

/* The budget of reasoning, by any of the fields that clients have for it, into c->hints.  False and *e. */
bool rg_thinking_read(rg_call *c, rg_refusal *e);
/* "prediction" of chat completions, likewise. */
bool rg_prediction_read(rg_call *c, rg_refusal *e);
void rg_hints_fini(rg_hints *h);

#endif
