/* json.h -- JSON by jansson within a budget of memory; a refused allocation is an error.
 *
 * jansson by itself continues after a refused allocation for a token, and then reads past the token's end.  Linking
 * this file makes it allocate from base/mem.  A document may take RG_JSON_TIMES its own size in memory, the text
 * included, and RG_JSON_SPARE bytes more.  Usual documents take less.  Documents made to fill memory take more: the
 * three bytes "{}," take 250. */
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

/* What a document may be at most. */
typedef struct rg_json_limits {
    size_t bytes;         /* of memory for all of it, the text included */
    size_t depth, values; /* checked before the text is parsed; 0: any */
} rg_json_limits;
size_t rg_json_budget(size_t n, size_t times); /* bytes for n bytes of text */

/* As json_loadb, within RG_JSON_TIMES.  NULL with json_error_out_of_memory in *why: an allocation was refused. */
json_t *rg_json_load(const char *text, size_t n, size_t flags, json_error_t *why);
/* The same with other limits. */
json_t *rg_json_load_within(const char *text, size_t n, size_t flags, const rg_json_limits *limits, json_error_t *why);
/* True if the document was refused for a limit.  why->text says which: "it is nested more than 64 deep". */
bool rg_json_over_limit(const json_error_t *why);

/* *err: name, and what is wrong.  over is the code of a limit.  Control characters, as jansson quotes the text, become
 * '?'. */
void rg_json_fail(const char *name, size_t n, const json_error_t *why, rg_code over, rg_error *err);

/* How many allocations for JSON values, and documents, of the calling thread were refused, ever.  A copy of an object
 * leaves out what found no memory and says nothing: who makes values from values compares this before and after. */
uint64_t rg_json_refused(void);

/* The same for a thread that does one thing after the other, so that its parts need not compare: rg_json_lost is true
 * if a value has found no memory since rg_json_watch, or rg_json_lose was called for a text that found none.
 * rg_json_watch returns what rg_json_watch_again takes to go on with the watch that it ended. */
uint64_t rg_json_watch(void);
void rg_json_watch_again(uint64_t watch);
bool rg_json_lost(void);
void rg_json_lose(void);

/* ridge.h's rg_json is a json_t, named so that callers of ridge.h need no jansson. */
static inline const rg_json *rg_json_of(const json_t *v)
{
    return (const rg_json *)v;
}

static inline const json_t *rg_json_inside(const rg_json *v)
{
    return (const json_t *)v;
}

/* True if v is a whole number within int64, with or without a fraction of zero (5, 5.0, 5e2); *n becomes the number. */
bool rg_json_whole(const json_t *v, int64_t *n);

/* v as text, as json_dumps writes it, to be rg_free'd; NULL: no memory, which counts as that of a value. */
char *rg_json_dump(const json_t *v, size_t flags);

#endif
