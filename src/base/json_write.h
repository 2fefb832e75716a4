/* json_write.h -- the one writer of JSON: straight into a buffer, without a tree; it writes the commas. */
#ifndef RG_BASE_JSON_WRITE_H
#define RG_BASE_JSON_WRITE_H

#include <jansson.h>

#include "base/buf.h"

void rg_out_open(rg_buf *b, const char *key, char bracket); /* '{' or '['; key NULL in arrays and at the top */
void rg_out_close(rg_buf *b, char bracket);                 /* '}' or ']' */
void rg_out_text(rg_buf *b, const char *key, const char *s); /* NULL: null */
void rg_out_string(rg_buf *b, const char *key, const char *s, size_t n); /* what is not UTF-8 becomes U+FFFD */
void rg_out_int(rg_buf *b, const char *key, int64_t v);
void rg_out_u64(rg_buf *b, const char *key, uint64_t v);
void rg_out_real(rg_buf *b, const char *key, double v);     /* not finite: null */
void rg_out_bool(rg_buf *b, const char *key, bool v);
void rg_out_null(rg_buf *b, const char *key);
void rg_out_value(rg_buf *b, const char *key, const json_t *v); /* NULL: null */
void rg_out_raw(rg_buf *b, const char *key, const char *json, size_t n);

#endif
