/* schema_disjoint.c -- see schema.h: values that are equal, and schemas that no value satisfies at once. */
#include <math.h>
#include <stdlib.h>

#include "grammar/schema.h"

enum { MOST_DEPTH = 5, MOST_BRANCHES = 24, MOST_VALUES = 64, MOST_LOOKS = 1 << 18 /* of one schema */ };

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* An integer beside a real, without rounding either. */
static int compare_mixed(int64_t i, double d)
{
    int64_t whole;

    if (d >= 0x1p63)
        return -1;
    if (d < -0x1p63)
        return 1;
    whole = (int64_t)d;
    if (i != whole)
        return i < whole ? -1 : 1;
    return (double)whole < d ? -1 : (double)whole > d;
}

int rg_schema_compare(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b)) {
        int64_t x = json_integer_value(a), y = json_integer_value(b);
        return (x > y) - (x < y);
    }
    if (json_is_integer(a))
        return compare_mixed(json_integer_value(a), json_real_value(b));
    if (json_is_integer(b))
        return -compare_mixed(json_integer_value(b), json_real_value(a));
    return (json_real_value(a) > json_real_value(b)) - (json_real_value(a) < json_real_value(b));
}

bool rg_schema_equal(const json_t *a, const json_t *b)
{
    const char *name;
    json_t *x;
    size_t i;

    if (json_is_number(a) && json_is_number(b))
        return rg_schema_compare(a, b) == 0;
    if (json_is_array(a) && json_is_array(b) && json_array_size(a) == json_array_size(b)) {
        json_array_foreach(a, i, x) if (!rg_schema_equal(x, json_array_get(b, i))) return false;
        return true;
    }
    if (json_is_object(a) && json_is_object(b) && json_object_size(a) == json_object_size(b)) {
        json_object_foreach((json_t *)(uintptr_t)a, name,
                            x) if (!json_object_get(b, name) ||
                                   !rg_schema_equal(x, json_object_get(b, name))) return false;
        return true;
    }
    return json_equal(a, b) == 1;
}

/* ---- schemas ----------------------------------------------------------------------------------------------------- */

static bool disjoint(rg_schemas *s, const rg_terms *with, json_t *a, json_t *b, int depth);

static json_t *follow(rg_schemas *s, json_t *schema)
{
    for (int i = 0; i < 16 && json_is_object(schema) && rg_schema_get(schema, "$ref"); i++) {
        if (json_object_size(schema) > 1)
            return schema; /* what stands beside it counts as well */
        schema = rg_schema_target(s, schema);
    }
    return schema;
}

/* True if a is a list of values and none of them satisfies b. */
static bool lists_none(rg_schemas *s, json_t *a, json_t *b)
{
    json_t *one = json_object_get(a, "const"), *list = rg_schema_get(a, "enum"), *v;
    size_t i;

    if (one)
        return !rg_schema_valid(s, b, one, NULL);
    if (!list || json_array_size(list) > MOST_VALUES || rg_schema_allows_null(a))
        return false;
    json_array_foreach(list, i, v) if (rg_schema_valid(s, b, v, NULL)) return false;
    return !s->f->failed;
}

static bool is_required(const json_t *schema, const char *name)
{
    json_t *v;
    size_t i;

    json_array_foreach(rg_schema_get(schema, "required"), i,
                       v) if (json_is_string(v) && !strcmp(json_string_value(v), name)) return true;
    return false;
}

static bool is_needed(const rg_terms *with, const json_t *a, const json_t *b, const char *name)
{
    for (uint32_t i = 0; with && i < with->n; i++)
        if (is_required(with->term[i].schema, name))
            return true;
    return (a && is_required(a, name)) || (b && is_required(b, name));
}

/* What a schema says of this property; NULL: nothing, or not by its name alone. */
static json_t *property_of(const json_t *schema, const char *name)
{
    json_t *own = json_object_get(rg_schema_get(schema, "properties"), name);

    if (own || rg_schema_get(schema, "patternProperties"))
        return own;
    return rg_schema_get(schema, "additionalProperties");
}

/* True if a property that must be there has no value that both allow. */
static bool properties_disjoint(rg_schemas *s, const rg_terms *with, json_t *a, json_t *b, int depth)
{
    const char *name;
    json_t *x, *other;
    size_t i;

    json_object_foreach(rg_schema_get(a, "properties"), name,
                        x) if (is_needed(with, a, b, name) &&
                               (json_is_false(x) || ((other = property_of(b, name)) &&
                                                     disjoint(s, NULL, x, other, depth + 1)))) return true;
    json_array_foreach(rg_schema_get(a, "required"), i, x) if (json_is_string(x) &&
                                                               (other = property_of(b, json_string_value(x))) &&
                                                               json_is_false(other)) return true;
    return false;
}

static bool has_branch(const json_t *list, const json_t *schema)
{
    json_t *one;
    size_t i;

    json_array_foreach(list, i, one) if (one == schema) return true;
    return false;
}

/* The allOf of a, and its branches. */
static bool parts_disjoint(rg_schemas *s, const rg_terms *with, json_t *a, json_t *b, int depth)
{
    static const char *const branches[] = { "anyOf", "oneOf" };
    json_t *sub, *list = rg_schema_get(a, "allOf"), *ref = rg_schema_get(a, "$ref");
    size_t i;

    if (ref && (ref = rg_schema_target(s, a)) && disjoint(s, with, ref, b, depth + 1))
        return true;
    json_array_foreach(list, i, sub) if (disjoint(s, with, sub, b, depth + 1)) return true;
    for (int k = 0; k < 2; k++) {
        bool all;
        list = rg_schema_get(a, branches[k]);
        all = json_array_size(list) > 0 && json_array_size(list) <= MOST_BRANCHES && !has_branch(list, b);
        for (i = 0; all && i < json_array_size(list); i++)
            all = disjoint(s, with, json_array_get(list, i), b, depth + 1);
        if (all)
            return true;
    }
    return false;
}

static bool counts_disjoint(rg_schemas *s, const rg_terms *both, const char *least, const char *most)
{
    return rg_schema_count(s, both, least, true, 0) > rg_schema_count(s, both, most, false, RG_FOREVER);
}

static bool formats_differ(const json_t *a, const json_t *b)
{
    const char *x = json_string_value(rg_schema_get(a, "format")), *y = json_string_value(rg_schema_get(b, "format"));

    return x && y && rg_json_formats_differ(x, y);
}

static bool items_disjoint(rg_schemas *s, json_t *a, json_t *b, const rg_terms *both, int depth)
{
    json_t *x = rg_schema_get(a, "items"), *y = rg_schema_get(b, "items");

    return json_is_object(x) && json_is_object(y) && !rg_schema_get(a, "prefixItems") &&
           !rg_schema_get(b, "prefixItems") && rg_schema_count(s, both, "minItems", true, 0) > 0 &&
           disjoint(s, NULL, x, y, depth + 1);
}

static bool disjoint(rg_schemas *s, const rg_terms *with, json_t *a, json_t *b, int depth)
{
    rg_terms both = { .n = 2 };
    uint32_t types;

    if (depth > MOST_DEPTH || ++s->n_looks > MOST_LOOKS || s->f->failed)
        return false;
    a = a == s->plain ? a : follow(s, a);
    b = b == s->plain ? b : follow(s, b);
    if (!json_is_object(a) || !json_is_object(b))
        return json_is_false(a) || json_is_false(b);
    if (a == b)
        return false;
    if ((b != s->plain && lists_none(s, a, b)) || (a != s->plain && lists_none(s, b, a)))
        return true;
    both.term[0] = (rg_term){ a, 0 };
    both.term[1] = (rg_term){ b, 0 };
    types = rg_schema_types(s, &both);
    if (!types)
        return true;
    if (types == RG_TYPE_STRING && (counts_disjoint(s, &both, "minLength", "maxLength") || formats_differ(a, b)))
        return true;
    if (!(types & ~(uint32_t)(RG_TYPE_INTEGER | RG_TYPE_REAL)) && rg_schema_range_empty(s, &both))
        return true;
    if (types == RG_TYPE_ARRAY &&
        (counts_disjoint(s, &both, "minItems", "maxItems") || items_disjoint(s, a, b, &both, depth)))
        return true;
    if (types == RG_TYPE_OBJECT &&
        (counts_disjoint(s, &both, "minProperties", "maxProperties") || properties_disjoint(s, with, a, b, depth) ||
         properties_disjoint(s, with, b, a, depth)))
        return true;
    return (a != s->plain && parts_disjoint(s, with, a, b, depth)) ||
           (b != s->plain && parts_disjoint(s, with, b, a, depth));
}

bool rg_schema_disjoint(rg_schemas *s, const rg_terms *with, json_t *a, json_t *b)
{
    return disjoint(s, with, a, b, 0);
}

bool rg_schema_disjoint_plain(rg_schemas *s, const rg_terms *with, json_t *a, json_t *plain)
{
    bool made;

    s->plain = plain;
    made = disjoint(s, with, a, plain, 0);
    s->plain = NULL;
    return made;
}

/* ---- what holds anyway ------------------------------------------------------------------------------------------- */

/* True if some term says that this property cannot be, or of one that is there: that it is nothing of a schema. */
static bool property_implied(rg_schemas *s, const rg_terms *t, const char *name, json_t *schema)
{
    json_t *negated = rg_schema_get(schema, RG_NEGATE_PART);

    for (uint32_t i = 0; i < t->n; i++) {
        json_t *own = property_of(t->term[i].schema, name);
        if (!own)
            continue;
        if (json_is_false(own) || (negated && disjoint(s, NULL, own, negated, 1)))
            return true;
    }
    return false;
}

/* True if the terms require a property that is none of these. */
static bool requires_other(const rg_terms *t, const json_t *names)
{
    json_t *name;
    size_t k;

    RG_EACH(t, i, "required", list)
    json_array_foreach(list, k,
                       name) if (json_is_string(name) && !json_object_get(names, json_string_value(name))) return true;
    return false;
}

static bool keyword_implied(rg_schemas *s, const rg_terms *t, json_t *schema, const char *key, json_t *v)
{
    rg_terms one = { .n = 1, .term = { { schema, 0 } } };
    const char *name;
    json_t *sub;
    size_t i;

    if (!strcmp(key, "type"))
        return !(rg_schema_types(s, t) & ~rg_schema_types(s, &one));
    if (!strcmp(key, RG_OTHER_THAN))
        return requires_other(t, v);
    if (!strcmp(key, "required")) {
        json_array_foreach(v, i, sub) if (!json_is_string(sub) ||
                                          !is_needed(t, NULL, NULL, json_string_value(sub))) return false;
        return true;
    }
    if (strcmp(key, "properties") != 0)
        return false;
    json_object_foreach(v, name, sub) if (!property_implied(s, t, name, sub)) return false;
    return true;
}

bool rg_schema_implied(rg_schemas *s, const rg_terms *t, json_t *schema)
{
    const char *key;
    json_t *v;

    for (uint32_t i = 0; i < t->n; i++)
        if (schema == t->term[i].schema && !t->term[i].done)
            return true;
    if (!json_is_object(schema) || ++s->n_looks > MOST_LOOKS)
        return json_is_true(schema);
    json_object_foreach(schema, key, v) if (!keyword_implied(s, t, schema, key, v)) return false;
    return json_object_size(schema) > 0;
}
