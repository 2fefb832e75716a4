/* json.h -- JSON in and out: what clients send is read within budgets, answers are written straight into a buffer.
 *
 * Reading is jansson's, within limits (base/json.h); a key that appears twice is refused, since its meaning is not
 * clear.  Writing is base/json_write's: an answer is a few frames per token. */
#ifndef RG_SERVER_JSON_H
#define RG_SERVER_JSON_H

#include <jansson.h>

#include "base/json_write.h"

enum { RG_BODY_DEPTH = 64, RG_BODY_VALUES = 1 << 21 };

/* NULL and *err (a fixed sentence) if it is not one JSON value, or passes a budget. */
json_t *rg_body_parse(const char *text, size_t n, rg_error *err);

/* The string that is a member of the object in text, and not of one within it, into to as UTF-8, without parsing the
 * rest; the last of several.  False: there is none, or it is too long. */
bool rg_json_member(const char *text, size_t n, const char *key, char *to, size_t room);

/* v as compact text, to be rg_free'd; NULL: no memory.  Linking json.c makes jansson allocate from base/mem. */
char *rg_body_dump(const json_t *v);

/* A time in seconds since 1970, as RFC 3339 writes it. */
void rg_out_time(rg_buf *b, const char *key, int64_t s);

#endif
