/* responses.h -- what the parts of POST /v1/responses share: reading a request and the response object
 * (api_responses.c), its items and events (responses_out.c). */
#ifndef RG_SERVER_RESPONSES_H
#define RG_SERVER_RESPONSES_H

#include "base/utf8.h"
#include "server/call.h"

/* The response object; done: with its output.  e: why it failed, or NULL. */
void rg_response_write(rg_buf *b, const rg_call *c, const char *key, bool done, const rg_refusal *e);
/* "output": of a call that has ended. */
void rg_response_output(rg_buf *b, const rg_call *c);

/* Of the shape (rg_shape). */
void rg_response_start(rg_call *c, rg_buf *out);
void rg_response_delta(rg_call *c, rg_choice *ch, rg_buf *out);
void rg_response_stop(rg_call *c, rg_buf *out);
void rg_response_fail(rg_call *c, const rg_refusal *e, rg_buf *out);
void rg_response_event(rg_call *c, rg_buf *out, const char *type, bool done, const rg_refusal *e);

#endif
