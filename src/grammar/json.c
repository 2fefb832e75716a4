/* json.c -- see json.h: documents, values and arrays. */
#include "grammar/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/mem.h"
#include "grammar/chars.h"
#include "grammar/object.h"
#include "grammar/source.h"

enum { INDENT = 20 }; /* blanks after a line end, at most */

json_t *rg_grammar_json(rg_form *f, const char *name, const char *text, size_t n)
{
    rg_json_limits limits = { .bytes = rg_json_budget(n, RG_JSON_TIMES),
                              .depth = RG_JSON_NESTING,
                              .values = RG_JSON_PARTS };
    size_t flags = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY;
    json_error_t why = { 0 };
    rg_error err;
    json_t *v;

    if (f->failed)
        return NULL;
    v = rg_json_load_within(text, n, flags, &limits, &why);
    if (!v && json_error_code(&why) == json_error_numeric_overflow) /* an integer beyond 64 bits: numbers are rounded */
        v = rg_json_load_within(text, n, flags | JSON_DECODE_INT_AS_REAL, &limits, &why);
    if (!v) {
        rg_json_fail(name, n, &why, RG_E_LIMIT, &err);
        rg_form_fail(f, err.code, "%s", err.text);
    }
    return v;
}

/* ---- exact values ------------------------------------------------------------------------------------------------ */

static uint32_t exact_real(rg_form *f, double v)
{
    char text[64], whole[72];

    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    if (floor(v) != v || fabs(v) >= 1e15)
        return rg_form_str(f, text);
    snprintf(text, sizeof text, "%lld", (long long)v);
    snprintf(whole, sizeof whole, "%s.0", text);
    return RG_ALT(f, rg_form_str(f, text), rg_form_str(f, whole));
}

static uint32_t exact_array(rg_form *f, const rg_json_parts *p, const json_t *v)
{
    rg_list l = { 0 };
    size_t n = json_array_size(v);
    uint32_t made;

    for (size_t i = 0; i < n; i++)
        rg_list_add(f, &l, rg_json_exactly(f, p, json_array_get(v, i)));
    made = rg_json_array(f, p, &(rg_array_spec){ l.id, l.n, RG_NEVER, l.n, l.n });
    rg_list_fini(&l);
    return made;
}

static uint32_t exact_object(rg_form *f, const rg_json_parts *p, json_t *v)
{
    uint32_t n = (uint32_t)json_object_size(v), i = 0, made = RG_NEVER;
    rg_object_prop *prop = rg_array(n, sizeof *prop);
    const char *key;
    json_t *value;

    if (!prop)
        rg_form_fail(f, RG_E_MEMORY, "out of memory for %u properties", n);
    if (!f->failed) {
        json_object_foreach(v, key, value)
            prop[i++] = (rg_object_prop){ key, strlen(key), rg_json_exactly(f, p, value), true };
        made = rg_object_new(f, &(rg_object_spec){ .prop = prop, .n_props = n, .max = RG_FOREVER, .space = p->space });
    }
    rg_free(prop);
    return made;
}

/* As deep as a document may be nested. */
uint32_t rg_json_exactly(rg_form *f, const rg_json_parts *p, json_t *v)
{
    char text[32];

    switch (json_typeof(v)) {
    case JSON_NULL: return rg_form_str(f, "null");
    case JSON_TRUE: return rg_form_str(f, "true");
    case JSON_FALSE: return rg_form_str(f, "false");
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
        return rg_form_str(f, text);
    case JSON_REAL: return exact_real(f, json_real_value(v));
    case JSON_STRING: return rg_object_text(f, json_string_value(v), json_string_length(v));
    case JSON_ARRAY: return exact_array(f, p, v);
    case JSON_OBJECT: return exact_object(f, p, v);
    }
    return RG_NEVER;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

uint32_t rg_json_array(rg_form *f, const rg_json_parts *p, const rg_array_spec *spec)
{
    uint32_t comma = RG_SEQ(f, rg_form_str(f, ","), p->space), rest = RG_EMPTY, n = spec->n_prefix;

    if (spec->min > spec->max)
        return RG_NEVER;
    /* after all of the prefix, then after one less of it, and so on */
    if (n < spec->max) {
        uint32_t min = spec->min > n ? spec->min - n : 0, max = spec->max == RG_FOREVER ? RG_FOREVER : spec->max - n;
        if (n) {
            rest = rg_form_rep(f, RG_SEQ(f, comma, spec->item, p->space), min, max);
        } else {
            rest = rg_form_rep(f, RG_SEQ(f, comma, spec->item, p->space), min ? min - 1 : 0,
                               max == RG_FOREVER ? max : max - 1);
            rest = RG_SEQ(f, spec->item, p->space, rest);
            rest = min ? rest : rg_form_opt(f, rest);
        }
    }
    for (uint32_t i = n; i-- > 0;) {
        if (i >= spec->max) {
            rest = RG_EMPTY;
            continue;
        }
        rest = RG_SEQ(f, i ? comma : RG_EMPTY, spec->prefix[i], p->space, rest);
        if (i >= spec->min)
            rest = rg_form_opt(f, rest);
    }
    return RG_SEQ(f, rg_form_str(f, "["), p->space, rest, rg_form_str(f, "]"));
}

/* What may stand between the parts: nothing, a blank, or a line end and an indent.  A model that likes blanks would
 * otherwise write nothing else. */
static uint32_t space(rg_form *f)
{
    rg_set blank = { 0 };

    rg_set_add(&blank, ' ', ' ');
    rg_set_add(&blank, '\t', '\t');
    return RG_ALT(f, RG_EMPTY, rg_form_str(f, " "),
                  RG_SEQ(f, rg_form_opt(f, rg_form_str(f, "\r")), rg_form_str(f, "\n"),
                         rg_form_rep(f, rg_form_set(f, &blank), 0, INDENT)));
}

bool rg_json_parts_make(rg_form *f, rg_json_parts *p)
{
    uint32_t quote = rg_form_str(f, "\"");

    p->space = space(f);
    p->string_char = rg_chars_string_char(f);
    p->string = RG_SEQ(f, quote, rg_form_rep(f, p->string_char, 0, RG_FOREVER), quote);
    p->null = rg_form_str(f, "null");
    p->boolean = RG_ALT(f, rg_form_str(f, "true"), rg_form_str(f, "false"));
    p->integer = rg_json_integer(f, (rg_json_bound){ 0 }, (rg_json_bound){ 0 });
    p->number = rg_json_number(f, (rg_json_bound){ 0 }, (rg_json_bound){ 0 });
    p->value = rg_form_ref(f, "value", 5);
    p->array = rg_json_array(f, p, &(rg_array_spec){ NULL, 0, p->value, 0, RG_FOREVER });
    p->object = rg_object_new(f, &(rg_object_spec){ .max = RG_FOREVER,
                                                    .other = &(rg_object_other){ p->string, p->value },
                                                    .n_others = 1,
                                                    .space = p->space });
    rg_form_bind(f, p->value, RG_ALT(f, p->object, p->array, p->string, p->number, p->boolean, p->null));
    return !f->failed;
}

uint32_t rg_any_json(rg_form *f)
{
    rg_json_parts p;

    return rg_json_parts_make(f, &p) ? p.object : RG_NEVER;
}
