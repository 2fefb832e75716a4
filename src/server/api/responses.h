/* responses.h -- what the parts of POST /v1/responses share: reading a request and the response object
 * (responses.c), its items and events (responses_out.c). */
#ifndef RG_SERVER_API_RESPONSES_H
#define RG_SERVER_API_RESPONSES_H

#include "base/clock.h"
#include "base/utf8.h"
#include "server/call.h"

/* The response object; done: with its output.  e: why it failed, or NULL. */
void rg_response_write(rg_buf *b, const rg_call *c, const char *key, bool done, const rg_refusal *e);
/* The list of items, of a call that has ended. */
void rg_response_output(rg_buf *b, const rg_call *c, const char *key);

/* ---- what is kept (responses_kept.c) ---- */
/* A kept text as JSON; NULL: there is none, or if rg_json_lost no memory for it. */
json_t *rg_kept_load(rg_served *s, const char *owner, const char *id);
/* False: no memory, for it or for a value before (rg_json_lost): nothing is stored that lacks something. */
bool rg_kept_store(rg_served *s, const char *owner, const char *id, const json_t *v);
/* Every item of a kept turn and of those before it, oldest first; NULL: one is gone.  last NULL: none. */
json_t *rg_kept_history(rg_served *s, const char *owner, const char *last);
/* Items as the API shows them: with ids, made of that of a call, and messages with lists of parts.  NULL: no memory. */
json_t *rg_items_complete(const json_t *input, const char *call);
const json_t *rg_items_find(const json_t *items, const char *id);
/* The items of a request and of what it goes on from; its own are in talk->items.  NULL and *e. */
json_t *rg_items_with_history(const json_t *body, rg_conversation *talk, rg_refusal *e);
/* Add items, a list in JSON, to a conversation.  False: it is gone, or no memory. */
bool rg_conversation_append(rg_served *s, const char *owner, const char *id, const rg_buf *items);
/* Keep the call as it is now, if it is to be kept; rg_json_lost, if there was no memory for it. */
void rg_response_keep(rg_call *c, bool done, const rg_refusal *e);

/* The functions of the endpoint's shape (rg_shape). */
void rg_response_start(rg_call *c, rg_buf *out);
void rg_response_delta(rg_call *c, rg_choice *ch, rg_buf *out);
void rg_response_stop(rg_call *c, rg_buf *out);
void rg_response_fail(rg_call *c, const rg_refusal *e, rg_buf *out);
void rg_response_event(rg_call *c, rg_buf *out, const char *type, bool done, const rg_refusal *e);

/* ---- in the background (background.c) ---- */
/* As rg_call_start, but the client is answered at once.  The call's exchange is another one afterwards. */
bool rg_background_start(rg_call *c, rg_refusal *e);
/* True while a response is made by a call in the background. */
bool rg_background_runs(rg_served *s, const char *id);
/* Answer with this response; if it is still being made, end it. */
void rg_background_cancel(rg_served *s, rg_exchange *x, const char *id, json_t *response);

#endif
