/* json.h -- JSON from strangers, by jansson, within budgets.
 *
 * Depth and memory are bounded by base/json; duplicate keys are refused.  Python's extensions are accepted: Infinity
 * and NaN, and integers beyond 64 bits, which become reals. */
#ifndef RG_CKPT_JSON_H
#define RG_CKPT_JSON_H

#include <jansson.h>

#include "base/error.h"

enum { RG_JSON_DEPTH = 64 };

/* The document, or NULL and *err, whose text starts with name.  json_decref it. */
json_t *rg_json_parse(const char *name, const char *text, size_t n, rg_error *err);
/* The same with another budget: bytes for all of it, the text included (base/json.h). */
json_t *rg_json_parse_within(const char *name, const char *text, size_t n, size_t bytes, rg_error *err);

/* Infinity and NaN become strings of two reserved bytes.  True: v is one of them, *out its value. */
bool rg_json_not_finite(const json_t *v, double *out);

#endif
