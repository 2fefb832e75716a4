/* json.h -- the values of JSON as nodes, and reading JSON that clients send (jansson, within budgets). */
#ifndef RG_GRAMMAR_JSON_H
#define RG_GRAMMAR_JSON_H

#include <jansson.h>

#include "grammar/form.h"

enum { RG_JSON_NESTING = 100, RG_JSON_PARTS = 110000 };

/* Any document, or NULL and a failure of f that starts with name.  json_decref it. */
json_t *rg_grammar_json(rg_form *f, const char *name, const char *text, size_t n);

/* Parts, each made once. */
typedef struct rg_json_parts {
    uint32_t value, object, array, string, number, integer, boolean, null, space, string_char;
} rg_json_parts;
bool rg_json_parts_make(rg_form *f, rg_json_parts *p);

/* One value: strings and keys in the one way that keys have, numbers as short as they can be. */
uint32_t rg_json_exactly(rg_form *f, const rg_json_parts *p, json_t *v);

/* Decimal numbers between bounds.  text: as JSON writes a number without an exponent; NULL: no bound. */
typedef struct rg_json_bound {
    const char *text;
    bool exclusive;
} rg_json_bound;
uint32_t rg_json_integer(rg_form *f, rg_json_bound min, rg_json_bound max);
uint32_t rg_json_number(rg_form *f, rg_json_bound min, rg_json_bound max);

/* "[", min to max of item, "]", the first ones being `prefix`; max may be RG_FOREVER. */
typedef struct rg_array_spec {
    const uint32_t *prefix;
    uint32_t n_prefix, item, min, max;
} rg_array_spec;
uint32_t rg_json_array(rg_form *f, const rg_json_parts *p, const rg_array_spec *spec);

bool rg_json_has_format(const char *format);
bool rg_json_formats_differ(const char *a, const char *b); /* no text has both */ /* it is known */
/* The inside of a string in a known format, quotes excluded. */
uint32_t rg_json_format(rg_form *f, const char *format);

#endif
