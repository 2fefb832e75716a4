/* schema_types.c -- see schema.h: what a list of schemas says of values of each type. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/matcher.h"
#include "grammar/schema.h"

#define EACH RG_EACH

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
        if (json_is_true(rg_schema_get(t->term[i].schema, "nullable")) && !(t->term[i].done & RG_DONE_NULLABLE))
            some |= RG_TYPE_NULL;
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

uint32_t rg_schema_count(rg_schemas *s, const rg_terms *t, const char *key, bool largest, uint32_t none)
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

/* Draft 4 has true or false in exclusiveMinimum: whether the minimum itself is excluded. */
static limit find_limit(rg_schemas *s, const rg_terms *t, bool lower)
{
    const char *key[] = { lower ? "minimum" : "maximum", lower ? "exclusiveMinimum" : "exclusiveMaximum" };
    limit l = { 0 };

    for (int k = 0; k < 2; k++) {
        EACH(t, i, key[k], v) {
            if (k == 1 && json_is_boolean(v))
                continue;
            if (!json_is_number(v))
                rg_schema_bad(s, "'%s' is not a number", key[k]);
            else
                tighten(&l, v, k == 1 || json_is_true(rg_schema_get(t->term[i].schema, key[1])), lower);
        }
    }
    return l;
}

void rg_schema_bounds(rg_schemas *s, const rg_terms *t, double *low, double *high)
{
    limit least = find_limit(s, t, true), most = find_limit(s, t, false);

    *low = least.is ? json_number_value(least.value) : -(double)INFINITY;
    *high = most.is ? json_number_value(most.value) : (double)INFINITY;
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

uint32_t rg_schema_number(rg_schemas *s, rg_form *f, const rg_terms *t, bool whole, bool short_)
{
    static char least[] = "-999999999999999", most[] = "999999999999999";
    limit low = find_limit(s, t, true), high = find_limit(s, t, false);
    char low_text[64], high_text[64];
    rg_json_bound min, max;

    if (!low.is && !high.is && !short_)
        return whole ? rg_json_integer(f, (rg_json_bound){ 0 }, (rg_json_bound){ 0 })
                     : rg_json_number(f, (rg_json_bound){ 0 }, (rg_json_bound){ 0 });
    min = bound_text(s, &low, whole, low_text);
    max = bound_text(s, &high, whole, high_text);
    if (s->f->failed)
        return RG_NEVER;
    if (short_ && !min.text)
        min.text = least;
    if (short_ && !max.text)
        max.text = most;
    return whole ? rg_json_integer(f, min, max) : rg_json_number(f, min, max);
}

static uint32_t number_node(rg_schemas *s, const rg_terms *t, bool whole)
{
    bool bounded = find_limit(s, t, true).is || find_limit(s, t, false).is;

    if (rg_schema_has_multiple(t))
        return rg_schema_multiples(s, t, whole);
    if (s->one_way && !whole)
        return rg_schema_short_number(s, t);
    return bounded ? rg_schema_number(s, s->f, t, whole, false) : whole ? s->parts.integer : s->parts.number;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

/* The schemas of the first items: "prefixItems", or of older drafts a list in "items". */
static json_t *prefix_of(const json_t *schema)
{
    json_t *v = rg_schema_get(schema, "prefixItems"), *items = rg_schema_get(schema, "items");

    return v ? v : json_is_array(items) ? items : NULL;
}

/* The terms of item k, or of those past all prefixes; after a list in "items" those are "additionalItems". */
static rg_terms item_terms(rg_schemas *s, const rg_terms *t, size_t k)
{
    rg_terms sub = { 0 };

    for (uint32_t i = 0; i < t->n; i++) {
        json_t *schema = t->term[i].schema, *v = json_array_get(prefix_of(schema), k);
        if (!v)
            v = rg_schema_get(schema, json_is_array(rg_schema_get(schema, "items")) ? "additionalItems" : "items");
        if (v)
            rg_terms_add(s, &sub, v, 0);
    }
    return sub;
}

static uint32_t item_node(rg_schemas *s, const rg_terms *t, size_t k)
{
    rg_terms sub = item_terms(s, t, k);

    return rg_schema_node(s, &sub);
}

/* Items that must differ; of those that cannot be told apart as they are written there is one at most. */
static uint32_t unique_array(rg_schemas *s, const rg_terms *t, const rg_array_spec *spec, size_t n_prefix)
{
    rg_terms items = item_terms(s, t, n_prefix);
    uint32_t made = n_prefix || s->f->failed ? RG_NEVER : rg_schema_unique(s, &items, spec->min, spec->max), one;
    rg_array_spec few = { .item = RG_NEVER, .n_prefix = 1, .prefix = &one, .min = spec->min, .max = 1 };

    if (made != RG_NEVER || s->f->failed)
        return made;
    if (spec->min > 1) {
        rg_schema_cannot(s, "'uniqueItems' with 'minItems' of %u: so many different items cannot be told apart here",
                         spec->min);
        return RG_NEVER;
    }
    one = item_node(s, t, 0);
    return rg_json_array(s->f, &s->parts, &few);
}

static uint32_t array_node(rg_schemas *s, const rg_terms *t)
{
    rg_array_spec spec = { .min = rg_schema_count(s, t, "minItems", true, 0),
                           .max = rg_schema_count(s, t, "maxItems", false, RG_FOREVER) };
    rg_list prefix = { 0 };
    size_t longest = 0;
    bool differ = false;
    uint32_t made;

    EACH(t, i, "prefixItems", v)
        if (!json_array_size(v))
            rg_schema_bad(s, "'prefixItems' is not a list of schemas");
    for (uint32_t i = 0; i < t->n; i++) {
        size_t n = json_array_size(prefix_of(t->term[i].schema));
        longest = n > longest ? n : longest;
    }
    EACH(t, i, "uniqueItems", v)
        differ |= json_is_true(v);
    if (differ && spec.max > 1)
        return unique_array(s, t, &spec, longest);
    for (size_t k = 0; k < longest && !s->f->failed; k++)
        rg_list_add(s->f, &prefix, item_node(s, t, k));
    spec.prefix = prefix.id;
    spec.n_prefix = prefix.n;
    spec.item = item_node(s, t, longest);
    made = rg_json_array(s->f, &s->parts, &spec);
    rg_list_fini(&prefix);
    return made;
}

static bool passes(rg_schemas *s, const rg_terms *t, const json_t *v);

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

/* Names that "propertyNames" lists count as declared; *others: no other name is allowed. */
static void collect_allowed(names *n, bool *others)
{
    EACH(n->t, i, "propertyNames", v) {
        json_t *list = rg_schema_get(v, "enum"), *name, *one = rg_schema_get(v, "const");
        size_t k;

        if (json_is_false(v))
            *others = false;
        if (json_is_string(one))
            add_name(n, json_string_value(one), json_string_length(one));
        json_array_foreach(list, k, name)
            if (json_is_string(name) && !n->s->f->failed)
                add_name(n, json_string_value(name), json_string_length(name));
        *others &= !list && !one;
    }
}

/* True if "propertyNames" allow this name. */
static bool allows_name(names *n, const char *name, size_t length)
{
    rg_terms all = { 0 };
    json_t *text = json_stringn(name, length);
    bool ok = true;

    EACH(n->t, i, "propertyNames", v)
        rg_terms_add(n->s, &all, v, 0);
    for (uint32_t i = 0; i < all.n && ok; i++) {
        rg_terms one = { .n = 1, .term = { all.term[i] } };
        ok = !json_is_false(all.term[i].schema) && passes(n->s, &one, text);
    }
    json_decref(text);
    return ok;
}

/* "propertyNames": names that are not allowed can have no value, and others have the form that is asked for; where both
 * declared names and others were possible, the others are left out. */
static void name_keys(names *n, rg_object_spec *spec)
{
    static const char *const says[] = { "$ref",      "allOf",     "anyOf", "format",
                                        "maxLength", "minLength", "oneOf", "pattern" };
    rg_terms all = { 0 };
    bool any = false;

    EACH(n->t, i, "propertyNames", v) {
        rg_terms_add(n->s, &all, v, 0);
        for (size_t k = 0; k < RG_LEN(says); k++)
            any |= rg_schema_get(v, says[k]) != NULL;
    }
    for (uint32_t i = 0; i < n->n && all.n && !n->s->f->failed; i++)
        if (!allows_name(n, n->prop[i].name, n->prop[i].n_name))
            n->prop[i].value = RG_NEVER;
    if (!any || spec->other == RG_NEVER)
        return;
    if (n->n) {
        spec->other = RG_NEVER;
        return;
    }
    rg_terms_add(n->s, &all, n->s->string, 0);
    spec->other_key = rg_schema_node(n->s, &all);
}

/* What the value of a key must be; name NULL: of a key that is not declared. */
static uint32_t value_node(rg_schemas *s, const rg_terms *t, const char *name)
{
    rg_terms sub = { 0 };

    for (uint32_t i = 0; i < t->n; i++) {
        json_t *schema = t->term[i].schema;
        json_t *v = name ? json_object_get(rg_schema_get(schema, "properties"), name) : NULL;
        if (!v)
            v = rg_schema_get(schema, "additionalProperties");
        if (v)
            rg_terms_add(s, &sub, v, 0);
    }
    for (uint32_t i = 0; i < sub.n; i++)
        if (json_is_false(sub.term[i].schema))
            return RG_NEVER;
    return rg_schema_node(s, &sub);
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
            if (!json_is_false(rg_schema_get(n->t->term[i].schema, "additionalProperties")))
                rg_schema_cannot(s, "'patternProperties' without 'additionalProperties': false");
        }
    }
    if (!found || s->f->failed)
        return;
    for (uint32_t i = 0; i < n->t->n; i++) {
        json_t *one = n->t->term[i].schema;
        if (!rg_schema_get(one, "patternProperties") &&
            (rg_schema_get(one, "properties") || rg_schema_get(one, "additionalProperties")))
            rg_schema_cannot(s, "'patternProperties' together with another schema's properties");
    }
    for (uint32_t i = 0; i < n->n && !s->f->failed; i++)
        if (rg_schema_found(s, pattern, n->prop[i].name))
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
    rg_object_spec spec = { .min = rg_schema_count(s, t, "minProperties", true, 0),
                            .max = rg_schema_count(s, t, "maxProperties", false, RG_FOREVER),
                            .other_key = RG_NEVER, .space = s->parts.space };
    uint32_t n_required = 0, made = RG_NEVER;
    bool others = true;

    if (!n.known)
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
    else
        collect(&n);
    if (!s->f->failed)
        collect_allowed(&n, &others);
    for (uint32_t i = 0; i < n.n && !s->f->failed; i++) {
        n.prop[i].value = value_node(s, t, n.prop[i].name);
        n_required += n.prop[i].required;
    }
    spec.other = others ? value_node(s, t, NULL) : RG_NEVER;
    if (!s->f->failed)
        pattern_keys(&n, &spec);
    if (!s->f->failed)
        name_keys(&n, &spec);
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

bool rg_schema_in_range(rg_schemas *s, const rg_terms *t, const json_t *v)
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
    static const char *const of_arrays[] = { "items", "prefixItems", "minItems", "maxItems", NULL };
    static const char *const of_objects[] = { "properties", "required", "additionalProperties", "patternProperties",
                                              "minProperties", "maxProperties", NULL };
    const char *const *keys = json_is_array(v) ? of_arrays : of_objects;

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
        return rg_schema_in_range(s, t, v) && rg_schema_is_multiple(s, t, v);
    if ((json_is_array(v) || json_is_object(v)) && has_any(t, keys))
        rg_schema_cannot(s, "'enum' or 'const' together with '%s' and the like", keys[0]);
    if (json_is_string(v)) {
        size_t n = 0, bytes = json_string_length(v);
        for (size_t i = 0; i < bytes; i++)
            n += (json_string_value(v)[i] & 0xC0) != 0x80;
        return n >= rg_schema_count(s, t, "minLength", true, 0) &&
               n <= rg_schema_count(s, t, "maxLength", false, RG_FOREVER) &&
               rg_schema_matches(s, t, json_string_value(v));
    }
    return true;
}

static uint32_t exactly(rg_schemas *s, json_t *v)
{
    double real = json_is_real(v) ? json_real_value(v) : 0.5;
    json_t *whole = NULL;
    uint32_t made;

    if (s->one_way && (json_is_array(v) || json_is_object(v)))
        return RG_NEVER;
    if (s->one_way && floor(real) == real && fabs(real) < 1e15)
        whole = json_integer((json_int_t)real);
    made = rg_json_exactly(s->f, &s->parts, whole ? whole : v);
    json_decref(whole);
    return made;
}

static uint32_t listed(rg_schemas *s, const rg_terms *t, const json_t *list)
{
    rg_list l = { 0 };
    json_t *v;
    size_t k;
    uint32_t made;

    json_array_foreach(list, k, v)
        if (!s->f->failed && passes(s, t, v))
            rg_list_add(s->f, &l, exactly(s, v));
    made = rg_form_alt(s->f, l.id, l.n);
    rg_list_fini(&l);
    return made;
}

uint32_t rg_schema_plain(rg_schemas *s, const rg_terms *t)
{
    uint32_t types = rg_schema_types(s, t), made[6], n = 0;

    EACH(t, i, "const", v)
        return passes(s, t, v) ? exactly(s, v) : RG_NEVER;
    EACH(t, i, "enum", v) {
        if (!json_is_array(v))
            rg_schema_bad(s, "'enum' is not a list of values");
        return listed(s, t, v);
    }
    if (s->one_way)
        types &= ~(uint32_t)(RG_TYPE_OBJECT | RG_TYPE_ARRAY);
    if (types & RG_TYPE_OBJECT)
        made[n++] = object_node(s, t);
    if (types & RG_TYPE_ARRAY)
        made[n++] = array_node(s, t);
    if (types & RG_TYPE_STRING)
        made[n++] = rg_schema_string(s, t);
    if (types & RG_TYPE_INTEGER)
        made[n++] = number_node(s, t, !(types & RG_TYPE_REAL));
    if (types & RG_TYPE_BOOLEAN)
        made[n++] = s->parts.boolean;
    if (types & RG_TYPE_NULL)
        made[n++] = s->parts.null;
    return rg_form_alt(s->f, made, n);
}
