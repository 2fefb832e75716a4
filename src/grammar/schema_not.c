/* schema_not.c -- see schema.h: keywords that say what must not be, or what must be only if something else is, as
 * schemas without them.
 *
 * not: what a schema says is taken keyword by keyword; a value does not satisfy it if it breaks one of them, so that
 * the opposite is an anyOf of one schema for each keyword.  Opposites that cannot be written as a schema are left out
 * of that list: then fewer values are allowed, never more.  Where nothing is left the keyword is refused by name.
 *
 * What is made belongs to the rg_schemas and is made once for each schema, so that lists of schemas that are equal stay
 * equal.  It uses a few keywords of its own, whose names begin with a byte that no author writes. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "grammar/schema.h"

enum { MOST_PAIRS = 8 /* of a oneOf under not: any two of its schemas may hold */ };

typedef struct alternatives {
    rg_schemas *s;
    json_t *list;
    const char *left_out; /* a keyword whose opposite is left out; NULL: there is none */
    bool part;            /* of the value of a property: of its own properties' values only the type is looked at */
} alternatives;

static void out_of_memory(rg_schemas *s)
{
    rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
}

/* One more schema, taken. */
static void add(alternatives *a, json_t *schema)
{
    if (!schema || json_array_append_new(a->list, schema))
        out_of_memory(a->s);
}

static json_t *names_of_types(uint32_t types)
{
    static const struct {
        const char *name;
        uint32_t type;
    } names[] = {
        { "null", RG_TYPE_NULL },     { "boolean", RG_TYPE_BOOLEAN }, { "integer", RG_TYPE_INTEGER },
        { RG_REAL, RG_TYPE_REAL },    { "string", RG_TYPE_STRING },   { "array", RG_TYPE_ARRAY },
        { "object", RG_TYPE_OBJECT },
    };
    json_t *list = json_array();

    for (size_t i = 0; i < RG_LEN(names); i++)
        if (types & names[i].type)
            json_array_append_new(list, json_string(names[i].name));
    return list;
}

/* ---- the opposite of a keyword ----------------------------------------------------------------------------------- */

static void not_type(alternatives *a, json_t *schema)
{
    rg_terms one = { .n = 1, .term = { { schema, 0 } } };
    uint32_t types = RG_TYPE_ANY & ~rg_schema_types(a->s, &one);

    if (types)
        add(a, json_pack("{s:o}", "type", names_of_types(types)));
}

static void not_values(alternatives *a, json_t *schema)
{
    json_t *one = json_object_get(schema, "const"), *list = rg_schema_get(schema, "enum");

    if (one)
        add(a, json_pack("{s:[O]}", RG_NOT_VALUES, one));
    if (json_is_array(list))
        add(a, json_pack("{s:O}", RG_NOT_VALUES, list));
}

static void not_numbers(alternatives *a, json_t *schema)
{
    static const char *const key[] = { "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum" };

    for (int i = 0; i < 4; i++) {
        json_t *v = rg_schema_get(schema, key[i]);
        bool exclusive = i >= 2 || json_is_true(rg_schema_get(schema, key[i + 2])); /* of draft 4 */
        const char *opposite = i % 2       ? exclusive ? "minimum" : "exclusiveMinimum"
                               : exclusive ? "maximum"
                                           : "exclusiveMaximum";
        if (json_is_number(v))
            add(a, json_pack("{s:s,s:O}", "type", "number", opposite, v));
    }
    if (rg_schema_get(schema, "multipleOf"))
        a->left_out = "multipleOf";
}

static void not_counts(alternatives *a, json_t *schema)
{
    static const struct {
        const char *type, *least, *most;
    } of[] = { { "string", "minLength", "maxLength" },
               { "array", "minItems", "maxItems" },
               { "object", "minProperties", "maxProperties" } };

    for (size_t i = 0; i < RG_LEN(of); i++) {
        json_t *least = rg_schema_get(schema, of[i].least), *most = rg_schema_get(schema, of[i].most);
        double n = json_number_value(least), m = json_number_value(most);
        if (json_is_number(least) && n >= 1 && n < 1e9)
            add(a, json_pack("{s:s,s:I}", "type", of[i].type, of[i].most, (json_int_t)n - 1));
        if (json_is_number(most) && m >= 0 && m < 1e6)
            add(a, json_pack("{s:s,s:I}", "type", of[i].type, of[i].least, (json_int_t)m + 1));
    }
}

static void not_strings(alternatives *a, json_t *schema)
{
    json_t *pattern = rg_schema_get(schema, "pattern");
    const char *format = json_string_value(rg_schema_get(schema, "format"));

    if (json_is_string(pattern))
        add(a, json_pack("{s:s,s:O}", "type", "string", RG_NOT_PATTERN, pattern));
    if (format && rg_json_has_format(format))
        a->left_out = "format";
}

static void not_arrays(alternatives *a, json_t *schema)
{
    static const char *const other[] = { "prefixItems", "additionalItems", "uniqueItems" };
    json_t *items = rg_schema_get(schema, "items"), *contains = rg_schema_get(schema, "contains");
    json_t *least = rg_schema_get(schema, "minContains"), *most = rg_schema_get(schema, "maxContains");

    if (json_is_array(items) || json_is_object(items))
        a->left_out = "items";
    if (json_is_false(items))
        add(a, json_pack("{s:s,s:i}", "type", "array", "minItems", 1));
    if (contains && (!least || json_number_value(least) >= 1)) {
        json_int_t few = least ? (json_int_t)json_number_value(least) - 1 : 0;
        add(a, json_pack("{s:s,s:O,s:i,s:I}", "type", "array", "contains", contains, "minContains", 0, "maxContains",
                         few));
    }
    if (contains && json_is_number(most) && json_number_value(most) < 1e6)
        add(a, json_pack("{s:s,s:O,s:I}", "type", "array", "contains", contains, "minContains",
                         (json_int_t)json_number_value(most) + 1));
    for (size_t i = 0; i < RG_LEN(other); i++)
        if (rg_schema_get(schema, other[i]))
            a->left_out = other[i];
}

static bool is_any(const json_t *schema)
{
    return json_is_true(schema) || (json_is_object(schema) && !json_object_size(schema));
}

/* The schema whose opposite is looked at where it speaks of a property's value: of values with parts only the type,
 * since the opposites of parts of parts are too many.  NULL: it says nothing of the type. */
static json_t *outline(rg_schemas *s, json_t *schema)
{
    static const char *const parts[] = {
        "additionalProperties", "allOf",      "anyOf",   "dependencies", "if", "items", "oneOf",
        "patternProperties",    "properties", "required"
    };
    rg_terms one = { .n = 1 };
    uint32_t types;

    for (int i = 0; i < 8 && json_is_object(schema) && json_object_size(schema) == 1 && rg_schema_get(schema, "$ref");
         i++)
        schema = rg_schema_target(s, schema);
    if (!json_is_object(schema))
        return json_incref(schema);
    for (size_t i = 0; i < RG_LEN(parts); i++)
        if (rg_schema_get(schema, parts[i])) {
            one = (rg_terms){ .n = 1, .term = { { schema, 0 } } };
            types = rg_schema_types(s, &one);
            return types == RG_TYPE_ANY ? NULL : json_pack("{s:o}", "type", names_of_types(types));
        }
    return json_incref(schema);
}

static void not_property(alternatives *a, const char *key, json_t *schema)
{
    json_t *negated = is_any(schema) ? NULL : a->part ? outline(a->s, schema) : json_incref(schema);

    if (negated)
        add(a, json_pack("{s:s,s:[s],s:{s:{s:o}}}", "type", "object", "required", key, "properties", key,
                         RG_NEGATE_PART, negated));
    else if (!is_any(schema))
        a->left_out = "properties";
}

static void not_objects(alternatives *a, json_t *schema)
{
    json_t *names = rg_schema_get(schema, "required"), *name, *properties = rg_schema_get(schema, "properties"), *sub;
    json_t *others = rg_schema_get(schema, "additionalProperties");
    bool patterns = json_object_size(rg_schema_get(schema, "patternProperties")) > 0;
    const char *key;
    size_t i;

    json_array_foreach(names, i, name) if (json_is_string(name))
        add(a, json_pack("{s:s,s:{s:b}}", "type", "object", "properties", json_string_value(name), 0));
    json_object_foreach(properties, key, sub) not_property(a, key, sub);
    if (patterns)
        a->left_out = "patternProperties";
    if (json_is_false(others) && !patterns)
        add(a, json_pack("{s:s,s:O?}", "type", "object", RG_OTHER_THAN, properties ? properties : a->s->nothing));
    else if (others && !is_any(others))
        a->left_out = "additionalProperties";
}

static void not_dependent(alternatives *a, json_t *schema)
{
    static const char *const key[] = { "dependentRequired", "dependencies", "dependentSchemas" };
    json_t *needs;
    const char *name;

    for (size_t i = 0; i < RG_LEN(key); i++)
        json_object_foreach(rg_schema_get(schema, key[i]), name, needs)
        {
            json_t *broken = json_is_array(needs) ? json_pack("{s:O}", "required", needs) : json_incref(needs);
            add(a, json_pack("{s:s,s:[s],s:o}", "type", "object", "required", name, RG_NEGATE, broken));
        }
}

/* {"allOf": [not each]} */
static json_t *none_of(const alternatives *a, const json_t *list)
{
    json_t *all = json_array(), *sub;
    size_t i;

    json_array_foreach(list, i, sub)
        json_array_append_new(all, json_pack("{s:O}", a->part ? RG_NEGATE_PART : RG_NEGATE, sub));
    return json_pack("{s:o}", "allOf", all);
}

static void not_parts(alternatives *a, json_t *schema)
{
    static const char *const left_out[] = { "if", "propertyNames", RG_NOT_VALUES, RG_NOT_PATTERN, RG_OTHER_THAN };
    json_t *ref = rg_schema_get(schema, "$ref"), *list = rg_schema_get(schema, "allOf"), *sub, *target;
    size_t i, n;

    if (ref && (target = rg_schema_target(a->s, schema)))
        add(a, json_pack("{s:O}", a->part ? RG_NEGATE_PART : RG_NEGATE, target));
    json_array_foreach(list, i, sub) add(a, json_pack("{s:O}", a->part ? RG_NEGATE_PART : RG_NEGATE, sub));
    if (json_array_size(rg_schema_get(schema, "anyOf")))
        add(a, none_of(a, rg_schema_get(schema, "anyOf")));
    list = rg_schema_get(schema, "oneOf");
    n = json_array_size(list);
    if (n)
        add(a, none_of(a, list));
    for (i = 0; i < n && n <= MOST_PAIRS; i++)
        for (size_t k = 0; k < i; k++)
            if (!rg_schema_disjoint(a->s, NULL, json_array_get(list, i), json_array_get(list, k)))
                add(a, json_pack("{s:[O,O]}", "allOf", json_array_get(list, k), json_array_get(list, i)));
    if (rg_schema_get(schema, "not"))
        add(a, json_incref(rg_schema_get(schema, "not")));
    if (rg_schema_get(schema, RG_NEGATE))
        add(a, json_incref(rg_schema_get(schema, RG_NEGATE)));
    if (rg_schema_get(schema, RG_NEGATE_PART))
        add(a, json_incref(rg_schema_get(schema, RG_NEGATE_PART)));
    for (i = 0; i < RG_LEN(left_out); i++)
        if (rg_schema_get(schema, left_out[i]))
            a->left_out = left_out[i];
}

/* ---- what is made, once for each schema -------------------------------------------------------------------------- */

typedef enum kind { OPPOSITE, OPPOSITE_OF_PART, CONDITION, DEPENDENT } kind;

struct rg_derived {
    struct {
        const json_t *of;
        uint64_t kind;
    } key;
    json_t *made;
    const char *left_out;
};

static rg_derived *find(rg_schemas *s, const json_t *of, kind k)
{
    rg_derived *d = rg_zalloc(sizeof *d), **all;
    int at;

    if (!d)
        return out_of_memory(s), NULL;
    d->key.of = of;
    d->key.kind = k;
    at = rg_dict_get(s->derived_of, (const char *)&d->key, sizeof d->key);
    if (at >= 0) {
        rg_free(d);
        return s->derived[at];
    }
    /* fits: there are fewer than RG_SCHEMA_JOBS */
    all = s->n_derived < RG_SCHEMA_JOBS ? rg_resize_array(s->derived, s->n_derived + 1, sizeof *all) : NULL;
    if (!all || !rg_dict_put(s->derived_of, (const char *)&d->key, sizeof d->key, (int)s->n_derived)) {
        rg_form_fail(s->f, all ? RG_E_MEMORY : RG_E_LIMIT,
                     "schema: more than %d schemas that are derived from others, or no "
                     "memory for them",
                     RG_SCHEMA_JOBS);
        s->derived = all ? all : s->derived;
        rg_free(d);
        return NULL;
    }
    s->derived = all;
    s->derived[s->n_derived++] = d;
    return d;
}

void rg_schema_derived_fini(rg_schemas *s)
{
    for (uint32_t i = 0; i < s->n_derived; i++) {
        json_decref(s->derived[i]->made);
        rg_free(s->derived[i]);
    }
    rg_free(s->derived);
    rg_dict_free(s->derived_of);
    s->n_derived = 0;
}

json_t *rg_schema_not(rg_schemas *s, json_t *schema, bool part, const char **left_out)
{
    alternatives a = { .s = s, .part = part };
    rg_derived *d = find(s, schema, part ? OPPOSITE_OF_PART : OPPOSITE);

    *left_out = NULL;
    if (!d || d->made)
        return d ? *left_out = d->left_out, d->made : NULL;
    if (!json_is_object(schema)) {
        if (!json_is_boolean(schema))
            rg_schema_bad(s, "a schema must be an object, true or false");
        return d->made = json_boolean(json_is_false(schema));
    }
    rg_schema_check_keywords(s, schema);
    a.list = json_array();
    if (rg_schema_get(schema, "type"))
        not_type(&a, schema);
    not_values(&a, schema);
    not_numbers(&a, schema);
    not_counts(&a, schema);
    not_strings(&a, schema);
    not_arrays(&a, schema);
    not_objects(&a, schema);
    not_dependent(&a, schema);
    not_parts(&a, schema);
    if (rg_schema_allows_null(schema)) { /* null satisfies it, whatever else it says */
        json_t *list =
            json_pack("[{s:o},{s:o}]", "type", names_of_types(RG_TYPE_ANY & ~(uint32_t)RG_TYPE_NULL), "anyOf", a.list);
        d->made = json_pack("{s:o}", "allOf", list);
    } else {
        d->made = json_array_size(a.list) ? json_pack("{s:o}", "anyOf", a.list) : json_false();
        if (!json_is_object(d->made))
            json_decref(a.list);
    }
    if (json_is_false(d->made) || !json_array_size(a.list))
        d->left_out = a.left_out;
    *left_out = d->left_out;
    if (!d->made)
        out_of_memory(s);
    return d->made;
}

/* Either the condition and "then", or not the condition and "else". */
json_t *rg_schema_condition(rg_schemas *s, json_t *schema)
{
    json_t *test = rg_schema_get(schema, "if"), *yes = rg_schema_get(schema, "then"),
           *no = rg_schema_get(schema, "else");
    rg_derived *d = find(s, schema, CONDITION);

    if (!d || d->made)
        return d ? d->made : NULL;
    yes = yes ? json_pack("[O,O]", test, yes) : json_pack("[O]", test);
    no = no ? json_pack("[{s:O},O]", RG_NEGATE, test, no) : json_pack("[{s:O}]", RG_NEGATE, test);
    d->made = json_pack("{s:[{s:o},{s:o}]}", "anyOf", "allOf", yes, "allOf", no);
    if (!d->made)
        out_of_memory(s);
    return d->made;
}

/* For each name: either it is not there, or the schema holds. */
json_t *rg_schema_dependent(rg_schemas *s, json_t *schema)
{
    static const char *const key[] = { "dependentSchemas", "dependencies" };
    rg_derived *d = find(s, schema, DEPENDENT);
    json_t *all, *needs;
    const char *name;

    if (!d || d->made)
        return d ? d->made : NULL;
    all = json_array();
    for (size_t i = 0; i < RG_LEN(key); i++)
        json_object_foreach(rg_schema_get(schema, key[i]), name, needs)
        {
            json_t *without, *with;
            if (json_is_array(needs) || json_is_string(needs))
                continue; /* names: object.h knows them */
            without = json_pack("{s:{s:b}}", "properties", name, 0);
            with = json_pack("{s:s,s:[s],s:[O]}", "type", "object", "required", name, "allOf", needs);
            if (json_array_append_new(all, json_pack("{s:[o,o]}", "anyOf", without, with)))
                out_of_memory(s);
        }
    d->made = json_array_size(all) ? json_pack("{s:o}", "allOf", all) : json_true();
    if (!json_is_object(d->made))
        json_decref(all);
    return d->made;
}
