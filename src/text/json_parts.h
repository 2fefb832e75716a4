/* json_parts.h -- what the readers of a tokenizer.json's parts share: members of objects, patterns, and lists of steps.
 * A part is one object with a type, or a Sequence of such; a type's row in a table names its reader. */
#ifndef RG_TEXT_JSON_PARTS_H
#define RG_TEXT_JSON_PARTS_H

#include <jansson.h>

#include "ckpt/checkpoint.h"
#include "text/pretok.h"
#include "text/regex.h"

/* Members by type: false and *err if there and of another type; absent or null leaves *out alone. */
bool rg_json_bool(const json_t *v, const char *key, bool *out, rg_error *err);
bool rg_json_int(const json_t *v, const char *key, int64_t *out, rg_error *err);
bool rg_json_string(const json_t *v, const char *key, rg_string *out, rg_error *err);

/* The same of members that must be there; and of a string that is one character. */
bool rg_json_need_string(const json_t *v, const char *key, rg_string *out, rg_error *err);
bool rg_json_need_char(const json_t *v, const char *key, rg_string *out, rg_error *err);

/* "pattern": {"String": ...} or {"Regex": ...}. */
rg_regex *rg_json_pattern(const json_t *v, rg_error *err);

/* "prepend_scheme", or what old files have instead. */
bool rg_json_scheme(const json_t *v, rg_scheme *out, rg_error *err);

typedef bool rg_json_reader(void *to, const json_t *v, rg_error *err);

typedef struct rg_json_row {
    const char *type;
    rg_json_reader *read;
} rg_json_row;

typedef struct rg_json_part {
    const char *name, *members; /* "normalizer", and where a Sequence has its parts */
    const rg_json_row *rows;
    size_t n_rows;
} rg_json_part;

/* v: the part, or JSON null.  A type without a row is refused by name. */
bool rg_json_read_part(const rg_json_part *p, void *to, const json_t *v, rg_error *err);

#endif
