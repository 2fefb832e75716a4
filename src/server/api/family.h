/* family.h -- a family of APIs: what its endpoints have in common on the wire.  How an error looks, how a stream is
 * framed, and where settings of a request stand are data; what an answer says is its endpoint's shape (call.h). */
#ifndef RG_SERVER_API_FAMILY_H
#define RG_SERVER_API_FAMILY_H

#include <jansson.h>

#include "base/json_write.h"
#include "server/http/http.h"
#include "server/refusal.h"

typedef struct rg_family {
    const char *below;    /* paths that begin so are the family's even where no endpoint answers; NULL: none are */
    const char *settings; /* a member of the body, an object, whose members count as the body's own; NULL: none does */
    /* The members of the document that is an error; `type` is what OpenAI and Anthropic call errors of this status. */
    void (*error)(rg_buf *b, const rg_exchange *x, const rg_refusal *e, const char *type);
    bool anthropic_types;
    const char *error_schema;   /* of such a document, in /openapi.json */
    const char *stream_type;    /* of the answer's content */
    const char *before, *after; /* each document of a stream */
    const char *ping;           /* what a stream without news gets; "": nothing */
    const char *error_event;    /* the name of the event that is an error; NULL: it has none */
} rg_family;

extern const rg_family rg_openai, rg_anthropic, rg_ollama, rg_native;

/* The family of the exchange's endpoint or, where there is none, of its path. */
const rg_family *rg_exchange_family(const rg_exchange *x);

/* A document of a stream: open, write it, close.  name NULL: the event has none. */
void rg_event_open(rg_buf *b, const rg_family *f, const char *name);
void rg_event_close(rg_buf *b, const rg_family *f);

/* Make the members of f->settings the body's own, unless it has them.  False and *e. */
bool rg_settings_lift(const rg_family *f, json_t *body, rg_refusal *e);

#endif
