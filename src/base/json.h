/* json.h -- JSON by jansson, whose memory is base/mem's, so that a refused allocation is an error, and within a budget.
 *
 * jansson itself goes on when it is refused memory for a token, and then reads past the token's end.  Linking this file
 * makes it allocate from base/mem.  A document may take RG_JSON_TIMES its own size in memory, the text included, and
 * RG_JSON_SPARE bytes more.  What people write takes less; what is written to fill memory takes more: the three bytes
 * "{}," take 250. */
#ifndef RG_BASE_JSON_H
#define RG_BASE_JSON_H

#include <jansson.h>

#include "base/buf.h"

enum {
    RG_JSON_TIMES = 16,
    RG_JSON_SPARE = 16 << 20,
    RG_JSON_TIMES_BODY = 24,  /* for a request: many short messages and tools */
    RG_JSON_TIMES_WORDS = 48, /* for a tokenizer's file, which is a long list of very short texts */
};

/* In json_error_code's place: the document takes more than its budget. */
#define RG_JSON_OVER_BUDGET ((enum json_error_code)100)

/* As json_loadb.  NULL with json_error_out_of_memory in *why: an allocation was refused. */
json_t *rg_json_load(const char *text, size_t n, size_t flags, json_error_t *why);
/* The same with another budget: bytes for all of it, the text included. */
json_t *rg_json_load_within(const char *text, size_t n, size_t flags, size_t bytes, json_error_t *why);
size_t rg_json_budget(size_t n, size_t times); /* of n bytes of text */

/* ridge.h's rg_json is a json_t, named so that callers of ridge.h need no jansson. */
static inline const rg_json *rg_json_of(const json_t *v)
{
    return (const rg_json *)v;
}

static inline const json_t *rg_json_inside(const rg_json *v)
{
    return (const json_t *)v;
}

/* v as text, as json_dumps writes it, to be rg_free'd; NULL: no memory. */
char *rg_json_dump(const json_t *v, size_t flags);

#endif
