/* json.h -- JSON in and out: what clients send is read within budgets, answers are written straight into a buffer.
 *
 * Reading is jansson's, after a pass that bounds depth and number of values; a key that stands twice is refused, since
 * nobody can say which was meant.  Writing has no tree: an answer is a few frames per token. */
#ifndef RG_SERVER_JSON_H
#define RG_SERVER_JSON_H

#include <jansson.h>

#include "base/buf.h"

enum { RG_BODY_DEPTH = 64, RG_BODY_VALUES = 1 << 21 };

/* NULL and *err (a fixed sentence) if it is not one JSON value, or passes a budget. */
json_t *rg_body_parse(const char *text, size_t n, rg_error *err);

/* v as compact text, to be rg_free'd; NULL: no memory.  Linking json.c makes jansson allocate from base/mem. */
char *rg_body_dump(const json_t *v);

/* ---- writing: commas come by themselves ---- */
void rg_out_open(rg_buf *b, const char *key, char bracket); /* '{' or '['; key NULL in arrays and at the top */
void rg_out_close(rg_buf *b, char bracket);                 /* '}' or ']' */
void rg_out_text(rg_buf *b, const char *key, const char *s); /* NULL: null */
void rg_out_string(rg_buf *b, const char *key, const char *s, size_t n); /* what is not UTF-8 becomes U+FFFD */
void rg_out_int(rg_buf *b, const char *key, int64_t v);
void rg_out_real(rg_buf *b, const char *key, double v);     /* not finite: null */
void rg_out_bool(rg_buf *b, const char *key, bool v);
void rg_out_null(rg_buf *b, const char *key);
void rg_out_value(rg_buf *b, const char *key, const json_t *v); /* NULL: null */
void rg_out_raw(rg_buf *b, const char *key, const char *json, size_t n);

/* One event of an SSE stream: open, write the document, close. */
void rg_event_open(rg_buf *b, const char *name); /* name NULL: data only */
void rg_event_close(rg_buf *b);

#endif
