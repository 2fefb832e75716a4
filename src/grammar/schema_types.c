/* schema_types.c -- see schema.h: what a list of schemas says of values of each type. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/matcher.h"
#include "grammar/schema.h"

#define EACH(t, i, key, v)                           \
    for (uint32_t i = 0; i < (t)->n; i++)            \
        for (json_t *v = json_object_get((t)->term[i].schema, key); v; v = NULL)

/* ---- types and values -------------------------------------------------------------------------------------------- */

static uint32_t type_named(rg_schemas *s, const json_t *v)
{
    static const struct {
        const char *name;
        uint32_t types;
    } types[] = {
        { "null", RG_TYPE_NULL },     { "boolean", RG_TYPE_BOOLEAN }, { "integer", RG_TYPE_INTEGER },
        { "string", RG_TYPE_STRING }, { "array", RG_TYPE_ARRAY },     { "object", RG_TYPE_OBJECT },
        { "number", RG_TYPE_INTEGER | RG_TYPE_REAL },
    };

    for (size_t i = 0; i < RG_LEN(types) && json_is_string(v); i++)
        if (!strcmp(types[i].name, json_string_value(v)))
            return types[i].types;
    rg_schema_bad(s, "'type' is none of null, boolean, integer, number, string, array, object, nor a list of these");
    return 0;
}

uint32_t rg_schema_types(rg_schemas *s, const rg_terms *t)
{
    uint32_t types = RG_TYPE_ANY;

    EACH(t, i, "type", v) {
        uint32_t some = 0;
        json_t *one;
        size_t k;

        if (!json_is_array(v))
            some = type_named(s, v);
        json_array_foreach(v, k, one)
            some |= type_named(s, one);
        types &= some;
    }
    return types;
}

uint32_t rg_schema_type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL: return RG_TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return RG_TYPE_BOOLEAN;
    case JSON_INTEGER: return RG_TYPE_INTEGER;
    case JSON_REAL: return floor(json_real_value(v)) == json_real_value(v) ? RG_TYPE_INTEGER : RG_TYPE_REAL;
    case JSON_STRING: return RG_TYPE_STRING;
    case JSON_ARRAY: return RG_TYPE_ARRAY;
    case JSON_OBJECT: return RG_TYPE_OBJECT;
    }
    return 0;
}

/* A keyword that counts: the largest (or smallest) that is asked for. */
static uint32_t count(rg_schemas *s, const rg_terms *t, const char *key, bool largest, uint32_t none)
{
    uint32_t out = none;
    bool any = false;

    EACH(t, i, key, v) {
        double d = json_is_number(v) ? json_number_value(v) : -1;
        uint32_t n;

        if (d < 0 || floor(d) != d) {
            rg_schema_bad(s, "'%s' is not a whole number of at least 0", key);
            return none;
        }
        if (largest && d > RG_REPEAT_MIN) {
            rg_form_fail(s->f, RG_E_LIMIT, "schema: '%s' of %.0f, of at most %d", key, d, RG_REPEAT_MIN);
            return none;
        }
        n = d >= RG_FOREVER ? RG_FOREVER - 1 : (uint32_t)d;
        out = !any ? n : largest == (n > out) ? n : out;
        any = true;
    }
    return out;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

typedef struct limit {
    bool is, exclusive;
    const json_t *value; /* a number */
} limit;

static void tighten(limit *l, const json_t *v, bool exclusive, bool lower)
{
    int order = l->is ? rg_schema_compare(v, l->value) : 0;

    if (!l->is || (lower ? order > 0 : order < 0) || (order == 0 && exclusive))
        *l = (limit){ true, exclusive, v };
}

static limit find_limit(rg_schemas *s, const rg_terms *t, bool lower)
{
    const char *key[] = { lower ? "minimum" : "maximum", lower ? "exclusiveMinimum" : "exclusiveMaximum" };
    limit l = { 0 };

    for (int k = 0; k < 2; k++) {
        EACH(t, i, key[k], v) {
            if (!json_is_number(v))
                rg_schema_bad(s, "'%s' is not a number", key[k]);
            else
                tighten(&l, v, k == 1, lower);
        }
    }
    return l;
}

/* The limit as a decimal text without an exponent: of integers exactly, and of reals where a double does not round. */
static rg_json_bound bound_text(rg_schemas *s, const limit *l, bool whole, char text[64])
{
    double most = whole ? 1e20 : 1e15, value = l->is ? json_number_value(l->value) : 0;

    if (!l->is)
        return (rg_json_bound){ 0 };
    if (json_is_integer(l->value)) {
        snprintf(text, 64, "%lld", (long long)json_integer_value(l->value));
    } else {
        for (int digits = 0; digits <= 17; digits++) {
            snprintf(text, 64, "%.*f", digits, fmod(value, 1e20));
            if (strtod(text, NULL) == value)
                break;
        }
    }
    if (fabs(value) >= most || strtod(text, NULL) != value)
        rg_schema_cannot(s, "a minimum or maximum of %.17g, which has too many digits", value);
    return (rg_json_bound){ text, l->exclusive };
}

static uint32_t number_node(rg_schemas *s, const rg_terms *t, bool whole)
{
    limit low = find_limit(s, t, true), high = find_limit(s, t, false);
    char low_text[64], high_text[64];
    rg_json_bound min, max;

    if (!low.is && !high.is)
        return whole ? s->parts.integer : s->parts.number;
    min = bound_text(s, &low, whole, low_text);
    max = bound_text(s, &high, whole, high_text);
    if (s->f->failed)
        return RG_NEVER;
    return whole ? rg_json_integer(s->f, min, max) : rg_json_number(s->f, min, max);
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

/* The one value of a keyword that is a text; different ones cannot be put together. */
static const json_t *only(rg_schemas *s, const rg_terms *t, const char *key)
{
    const json_t *one = NULL;

    EACH(t, i, key, v) {
        if (!json_is_string(v))
            rg_schema_bad(s, "'%s' is not a text", key);
        else if (one && !json_equal(one, v))
            rg_schema_cannot(s, "more than one '%s' for a value", key);
        one = v;
    }
    return one;
}

static uint32_t string_node(rg_schemas *s, const rg_terms *t)
{
    const json_t *pattern = only(s, t, "pattern"), *format = only(s, t, "format");
    uint32_t min = count(s, t, "minLength", true, 0), max = count(s, t, "maxLength", false, RG_FOREVER), inside;
    uint32_t quote = rg_form_str(s->f, "\"");

    if (min > max || s->f->failed)
        return RG_NEVER;
    if (pattern && format)
        rg_schema_cannot(s, "'pattern' together with 'format'");
    if ((pattern || format) && (min || max != RG_FOREVER))
        rg_schema_cannot(s, "'%s' together with 'minLength' or 'maxLength'", pattern ? "pattern" : "format");
    if (pattern) {
        inside = rg_pattern(s->f, json_string_value(pattern), json_string_length(pattern), RG_WRITE_JSON, false);
    } else if (format) {
        inside = rg_json_format(s->f, json_string_value(format));
        if (!inside)
            rg_schema_cannot(s, "the format '%.100s' is not supported", json_string_value(format));
    } else if (!min && max == RG_FOREVER) {
        return s->parts.string;
    } else {
        inside = rg_form_rep(s->f, s->parts.string_char, min, max);
    }
    return s->f->failed ? RG_NEVER : RG_SEQ(s->f, quote, inside, quote);
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* The node of item k, or of those past all prefixes. */
static uint32_t item_node(rg_schemas *s, const rg_terms *t, size_t k)
{
    rg_terms sub = { 0 };

    for (uint32_t i = 0; i < t->n; i++) {
        json_t *schema = t->term[i].schema, *v = json_array_get(json_object_get(schema, "prefixItems"), k);
        if (!v)
            v = json_object_get(schema, "items");
        if (json_is_array(v))
            rg_schema_cannot(s, "'items' that is a list: use 'prefixItems'");
        else if (v)
            rg_terms_add(s, &sub, v, 0);
    }
    return rg_schema_node(s, &sub);
}

static uint32_t array_node(rg_schemas *s, const rg_terms *t)
{
    rg_array_spec spec = { .min = count(s, t, "minItems", true, 0), .max = count(s, t, "maxItems", false, RG_FOREVER) };
    rg_list prefix = { 0 };
    size_t longest = 0;
    uint32_t made;

    EACH(t, i, "prefixItems", v) {
        if (!json_array_size(v))
            rg_schema_bad(s, "'prefixItems' is not a list of schemas");
        longest = json_array_size(v) > longest ? json_array_size(v) : longest;
    }
    for (size_t k = 0; k < longest && !s->f->failed; k++)
        rg_list_add(s->f, &prefix, item_node(s, t, k));
    spec.prefix = prefix.id;
    spec.n_prefix = prefix.n;
    spec.item = item_node(s, t, longest);
    made = rg_json_array(s->f, &s->parts, &spec);
    rg_list_fini(&prefix);
    return made;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

typedef struct names {
    rg_schemas *s;
    const rg_terms *t;
    rg_object_prop *prop;
    uint32_t n, room;
    rg_dict *known;
} names;

static rg_object_prop *add_name(names *n, const char *name, size_t length)
{
    int at = rg_dict_get(n->known, name, length);

    if (at >= 0)
        return &n->prop[at];
    if (n->n == n->room) {
        uint32_t room = n->room ? 2 * n->room : 16;
        rg_object_prop *p = rg_resize_array(n->prop, room, sizeof *p);
        if (!p) {
            rg_form_fail(n->s->f, RG_E_MEMORY, "schema: out of memory");
            return NULL;
        }
        n->prop = p;
        n->room = room;
    }
    n->prop[n->n] = (rg_object_prop){ .name = name, .n_name = length };
    if (!rg_dict_put(n->known, name, length, (int)n->n))
        rg_form_fail(n->s->f, RG_E_MEMORY, "schema: out of memory");
    return &n->prop[n->n++];
}

static void collect(names *n)
{
    const char *name;
    json_t *sub;
    size_t k;

    EACH(n->t, i, "properties", v) {
        if (!json_is_object(v))
            rg_schema_bad(n->s, "'properties' is not an object");
        json_object_foreach(v, name, sub)
            if (!n->s->f->failed)
                add_name(n, name, strlen(name));
    }
    EACH(n->t, i, "required", v) {
        if (!json_is_array(v))
            rg_schema_bad(n->s, "'required' is not a list of texts");
        json_array_foreach(v, k, sub) {
            rg_object_prop *p = NULL;
            if (!json_is_string(sub))
                rg_schema_bad(n->s, "'required' is not a list of texts");
            else if (!n->s->f->failed)
                p = add_name(n, json_string_value(sub), json_string_length(sub));
            if (p)
                p->required = true;
        }
    }
}

/* What the value of a key must be; name NULL: of a key that is not declared. */
static uint32_t value_node(rg_schemas *s, const rg_terms *t, const char *name)
{
    rg_terms sub = { 0 };

    for (uint32_t i = 0; i < t->n; i++) {
        json_t *schema = t->term[i].schema;
        json_t *v = name ? json_object_get(json_object_get(schema, "properties"), name) : NULL;
        if (!v)
            v = json_object_get(schema, "additionalProperties");
        if (v)
            rg_terms_add(s, &sub, v, 0);
    }
    for (uint32_t i = 0; i < sub.n; i++)
        if (json_is_false(sub.term[i].schema))
            return RG_NEVER;
    return rg_schema_node(s, &sub);
}

/* True if the pattern matches somewhere in the name, by the matcher itself. */
static bool matches(rg_schemas *s, const char *pattern, const char *name)
{
    rg_set every = { { ~0ULL, ~0ULL, ~0ULL, ~0ULL } };
    rg_stacks *stacks = rg_zalloc(sizeof *stacks);
    rg_heads heads[2] = { { .n = 1 } };
    rg_form f;
    bool ok = rg_form_init(&f, s->f->failed ? NULL : s->f->err) && stacks, found = false;

    if (ok) {
        f.root = rg_pattern(&f, pattern, strlen(pattern), RG_WRITE_UTF8, false);
        ok = rg_form_refine(&f, &every) && rg_stacks_init(stacks, 1 << 12);
        if (ok)
            heads[0].id[0] = rg_stacks_push(stacks, f.root, 0, RG_STACK_END);
        for (size_t i = 0; ok && name[i]; i++) {
            rg_step(&f, stacks, heads[i & 1].id, heads[i & 1].n, (uint8_t)name[i], &heads[~i & 1]);
            if (stacks->n > stacks->cap / 2)
                rg_stacks_compact(stacks, &heads[~i & 1]);
        }
        for (uint32_t i = 0, last = strlen(name) & 1; ok && i < heads[last].n; i++)
            found |= rg_stack_may_end(&f, stacks, heads[last].id[i], RG_STACK_END);
        rg_stacks_fini(stacks);
        s->f->failed |= f.failed;
    }
    rg_form_fini(&f);
    if (!ok)
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory for a pattern of properties");
    rg_free(stacks);
    return found;
}

/* patternProperties, where what is not declared has to match one pattern and what is declared does not. */
static void pattern_keys(names *n, rg_object_spec *spec)
{
    rg_schemas *s = n->s;
    const char *pattern = NULL, *key;
    json_t *schema, *found = NULL;
    rg_terms sub = { 0 };

    EACH(n->t, i, "patternProperties", v) {
        if (!json_is_object(v))
            rg_schema_bad(s, "'patternProperties' is not an object");
        json_object_foreach(v, key, schema) {
            if (found)
                rg_schema_cannot(s, "'patternProperties' of more than one pattern");
            found = schema;
            pattern = key;
            if (!json_is_false(json_object_get(n->t->term[i].schema, "additionalProperties")))
                rg_schema_cannot(s, "'patternProperties' without 'additionalProperties': false");
        }
    }
    if (!found || s->f->failed)
        return;
    for (uint32_t i = 0; i < n->t->n; i++) {
        json_t *one = n->t->term[i].schema;
        if (!json_object_get(one, "patternProperties") &&
            (json_object_get(one, "properties") || json_object_get(one, "additionalProperties")))
            rg_schema_cannot(s, "'patternProperties' together with another schema's properties");
    }
    for (uint32_t i = 0; i < n->n && !s->f->failed; i++)
        if (matches(s, pattern, n->prop[i].name))
            rg_schema_cannot(s, "'patternProperties' whose pattern matches the property '%.100s'", n->prop[i].name);
    rg_terms_add(s, &sub, found, 0);
    spec->other = json_is_false(found) ? RG_NEVER : rg_schema_node(s, &sub);
    spec->other_key = RG_SEQ(s->f, rg_form_str(s->f, "\""), rg_pattern(s->f, pattern, strlen(pattern), RG_WRITE_JSON,
            false),
                             rg_form_str(s->f, "\""));
}

static uint32_t object_node(rg_schemas *s, const rg_terms *t)
{
    names n = { .s = s, .t = t, .known = rg_dict_new(16) };
    rg_object_spec spec = { .min = count(s, t, "minProperties", true, 0), .max = count(s, t, "maxProperties", false,
            RG_FOREVER),
                            .other_key = RG_NEVER, .space = s->parts.space };
    uint32_t n_required = 0, made = RG_NEVER;

    if (!n.known)
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
    else
        collect(&n);
    for (uint32_t i = 0; i < n.n && !s->f->failed; i++) {
        n.prop[i].value = value_node(s, t, n.prop[i].name);
        n_required += n.prop[i].required;
    }
    spec.other = value_node(s, t, NULL);
    if (!s->f->failed)
        pattern_keys(&n, &spec);
    if (!n.n && spec.other != RG_NEVER && spec.other_key == RG_NEVER)
        spec.other_key = s->parts.string; /* no declared key that they could be confused with */
    spec.prop = n.prop;
    spec.n_props = n.n;
    if (spec.min <= n_required)
        spec.min = 0;
    if (spec.min > 1 && (spec.other != RG_NEVER || n.n > RG_OBJECT_ANY_ORDER))
        rg_schema_cannot(s, "'minProperties' of %u, of which only %u are required", spec.min, n_required);
    if (!s->f->failed)
        made = rg_object_new(s->f, &spec);
    rg_dict_free(n.known);
    rg_free(n.prop);
    return made;
}

/* ---- values that are listed -------------------------------------------------------------------------------------- */

static bool in_range(rg_schemas *s, const rg_terms *t, const json_t *v)
{
    limit low = find_limit(s, t, true), high = find_limit(s, t, false);
    int above = low.is ? rg_schema_compare(v, low.value) : 1, below = high.is ? rg_schema_compare(v, high.value) : -1;

    return above >= (low.is && low.exclusive) && below <= -(high.is && high.exclusive);
}

static bool has_any(const rg_terms *t, const char *const *keys)
{
    for (; *keys; keys++)
        EACH(t, i, *keys, v)
            return true;
    return false;
}

/* True if a listed value satisfies the other keywords.  Keywords that cannot be checked here are refused. */
static bool passes(rg_schemas *s, const rg_terms *t, const json_t *v)
{
    static const char *const of_strings[] = { "pattern", "format", NULL };
    static const char *const of_arrays[] = { "items", "prefixItems", "minItems", "maxItems", NULL };
    static const char *const of_objects[] = { "properties", "required", "additionalProperties", "patternProperties",
                                              "minProperties", "maxProperties", NULL };
    const char *const *keys = json_is_string(v) ? of_strings : json_is_array(v) ? of_arrays : of_objects;

    if (!(rg_schema_types(s, t) & rg_schema_type_of(v)))
        return false;
    EACH(t, i, "const", c)
        if (!rg_schema_equal(c, v))
            return false;
    EACH(t, i, "enum", list) {
        bool found = json_array_size(list) > 1000 && t->n == 1; /* the list that v is from */
        for (size_t k = 0; k < json_array_size(list) && !found; k++)
            found = rg_schema_equal(json_array_get(list, k), v);
        if (!found)
            return false;
    }
    if (json_is_number(v))
        return in_range(s, t, v);
    if ((json_is_string(v) || json_is_array(v) || json_is_object(v)) && has_any(t, keys))
        rg_schema_cannot(s, "'enum' or 'const' together with '%s' and the like", keys[0]);
    if (json_is_string(v)) {
        size_t n = 0, bytes = json_string_length(v);
        for (size_t i = 0; i < bytes; i++)
            n += (json_string_value(v)[i] & 0xC0) != 0x80;
        return n >= count(s, t, "minLength", true, 0) && n <= count(s, t, "maxLength", false, RG_FOREVER);
    }
    return true;
}

static uint32_t listed(rg_schemas *s, const rg_terms *t, const json_t *list)
{
    rg_list l = { 0 };
    json_t *v;
    size_t k;
    uint32_t made;

    json_array_foreach(list, k, v)
        if (!s->f->failed && passes(s, t, v))
            rg_list_add(s->f, &l, rg_json_exactly(s->f, &s->parts, v));
    made = rg_form_alt(s->f, l.id, l.n);
    rg_list_fini(&l);
    return made;
}

uint32_t rg_schema_plain(rg_schemas *s, const rg_terms *t)
{
    uint32_t types = rg_schema_types(s, t), made[6], n = 0;

    EACH(t, i, "const", v)
        return passes(s, t, v) ? rg_json_exactly(s->f, &s->parts, v) : RG_NEVER;
    EACH(t, i, "enum", v) {
        if (!json_is_array(v))
            rg_schema_bad(s, "'enum' is not a list of values");
        return listed(s, t, v);
    }
    if (types & RG_TYPE_OBJECT)
        made[n++] = object_node(s, t);
    if (types & RG_TYPE_ARRAY)
        made[n++] = array_node(s, t);
    if (types & RG_TYPE_STRING)
        made[n++] = string_node(s, t);
    if (types & RG_TYPE_INTEGER)
        made[n++] = number_node(s, t, !(types & RG_TYPE_REAL));
    if (types & RG_TYPE_BOOLEAN)
        made[n++] = s->parts.boolean;
    if (types & RG_TYPE_NULL)
        made[n++] = s->parts.null;
    return rg_form_alt(s->f, made, n);
}
