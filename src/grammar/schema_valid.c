/* schema_valid.c -- see schema.h: whether a value that is written out (of "enum", "const", or a property's name)
 * satisfies a schema.  Formats are not asked for: what does not have one for sure is not known (format.c knows a part
 * of each). */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "grammar/schema.h"

enum { MOST_DEPTH = 64 };

typedef struct checker {
    rg_schemas *s;
    int depth;
} checker;

static bool valid(checker *c, json_t *schema, json_t *v, const json_t *listed);

static size_t characters(const json_t *text)
{
    size_t n = 0;

    for (size_t i = 0; i < json_string_length(text); i++)
        n += (json_string_value(text)[i] & 0xC0) != 0x80;
    return n;
}

static bool counts(rg_schemas *s, json_t *schema, const char *least, const char *most, size_t n)
{
    rg_terms one = { .n = 1, .term = { { schema, 0 } } };

    return n >= rg_schema_count(s, &one, least, true, 0) && n <= rg_schema_count(s, &one, most, false, RG_FOREVER);
}

static bool valid_string(checker *c, json_t *schema, json_t *v)
{
    json_t *pattern = rg_schema_get(schema, "pattern"), *not = rg_schema_get(schema, RG_NOT_PATTERN);

    return counts(c->s, schema, "minLength", "maxLength", characters(v)) &&
           (!pattern || rg_schema_found(c->s, rg_schema_text(c->s, pattern, "pattern"), json_string_value(v))) &&
           (!not || !rg_schema_found(c->s, json_string_value(not ), json_string_value(v)));
}

/* By "contains": the items that satisfy it are counted. */
static bool contains_so_many(checker *c, json_t *schema, json_t *v)
{
    json_t *wanted = rg_schema_get(schema, "contains"), *item;
    rg_terms one = { .n = 1, .term = { { schema, 0 } } };
    uint32_t n = 0;
    size_t i;

    if (!wanted)
        return true;
    json_array_foreach(v, i, item) n += valid(c, wanted, item, NULL);
    return n >= rg_schema_count(c->s, &one, "minContains", true, 1) &&
           n <= rg_schema_count(c->s, &one, "maxContains", false, RG_FOREVER);
}

static bool valid_array(checker *c, json_t *schema, json_t *v)
{
    json_t *items = rg_schema_get(schema, "items"), *prefix = rg_schema_get(schema, "prefixItems"), *item;
    size_t i, n = json_array_size(v);

    if (!counts(c->s, schema, "minItems", "maxItems", n) || !contains_so_many(c, schema, v))
        return false;
    if (json_is_array(items))
        prefix = items, items = rg_schema_get(schema, "additionalItems");
    json_array_foreach(v, i, item)
    {
        json_t *sub = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (sub && !valid(c, sub, item, NULL))
            return false;
        for (size_t k = 0; json_is_true(rg_schema_get(schema, "uniqueItems")) && k < i; k++)
            if (rg_schema_equal(json_array_get(v, k), item))
                return false;
    }
    return true;
}

/* The value of one property, by all that the schema says of it. */
static bool valid_property(checker *c, json_t *schema, const char *name, json_t *v)
{
    json_t *own = json_object_get(rg_schema_get(schema, "properties"), name), *sub;
    json_t *others = rg_schema_get(schema, "additionalProperties"), *names = rg_schema_get(schema, "propertyNames");
    bool known = own != NULL, ok = !own || valid(c, own, v, NULL);
    const char *pattern;

    json_object_foreach(rg_schema_get(schema, "patternProperties"), pattern,
                        sub) if (ok && rg_schema_found(c->s, pattern, name))
    {
        known = true;
        ok = valid(c, sub, v, NULL);
    }
    if (ok && names) {
        json_t *text = json_string(name);
        ok = valid(c, names, text, NULL);
        json_decref(text);
    }
    return ok && (known || !others || valid(c, others, v, NULL));
}

static bool has_all(const json_t *names, const json_t *v)
{
    json_t *name;
    size_t i;

    json_array_foreach(names, i, name) if (!json_object_get(v, json_string_value(name))) return false;
    return true;
}

static bool valid_object(checker *c, json_t *schema, json_t *v)
{
    json_t *other = rg_schema_get(schema, RG_OTHER_THAN), *value, *sub;
    bool beyond = !other;
    const char *name;

    if (!counts(c->s, schema, "minProperties", "maxProperties", json_object_size(v)) ||
        !has_all(rg_schema_get(schema, "required"), v))
        return false;
    json_object_foreach(v, name, value)
    {
        if (!valid_property(c, schema, name, value))
            return false;
        beyond |= !json_object_get(other, name);
    }
    json_object_foreach(rg_schema_get(schema, "dependentRequired"), name,
                        sub) if (json_object_get(v, name) && !has_all(sub, v)) return false;
    json_object_foreach(rg_schema_get(schema, "dependentSchemas"), name,
                        sub) if (json_object_get(v, name) && !valid(c, sub, v, NULL)) return false;
    json_object_foreach(rg_schema_get(schema, "dependencies"), name,
                        sub) if (json_object_get(v, name) &&
                                 !(json_is_array(sub) ? has_all(sub, v) : valid(c, sub, v, NULL))) return false;
    return beyond;
}

/* How many schemas of a list the value satisfies. */
static size_t count_valid(checker *c, const json_t *list, json_t *v)
{
    size_t n = 0, i;
    json_t *sub;

    json_array_foreach(list, i, sub) n += valid(c, sub, v, NULL);
    return n;
}

static bool valid_parts(checker *c, json_t *schema, json_t *v)
{
    json_t *ref = rg_schema_get(schema, "$ref"), *all = rg_schema_get(schema, "allOf"),
           *any = rg_schema_get(schema, "anyOf");
    json_t *one = rg_schema_get(schema, "oneOf"), *not = rg_schema_get(schema, "not"),
           *test = rg_schema_get(schema, "if");
    json_t *negate = rg_schema_get(schema, RG_NEGATE), *part = rg_schema_get(schema, RG_NEGATE_PART);

    if (ref && (!(ref = rg_schema_target(c->s, schema)) || !valid(c, ref, v, NULL)))
        return false;
    if (test && (test = rg_schema_get(schema, valid(c, test, v, NULL) ? "then" : "else")) && !valid(c, test, v, NULL))
        return false;
    return (!all || count_valid(c, all, v) == json_array_size(all)) && (!any || count_valid(c, any, v) > 0) &&
           (!one || count_valid(c, one, v) == 1) && (!not || !valid(c, not, v, NULL)) &&
           (!negate || !valid(c, negate, v, NULL)) && (!part || !valid(c, part, v, NULL));
}

static bool among(const json_t *list, const json_t *v)
{
    json_t *one;
    size_t i;

    json_array_foreach(list, i, one) if (rg_schema_equal(one, v)) return true;
    return false;
}

/* listed: the schema whose list v was taken from, so that it is not looked for there. */
static bool valid_object_schema(checker *c, json_t *schema, json_t *v, const json_t *listed)
{
    rg_terms one = { .n = 1, .term = { { schema, 0 } } };
    json_t *list = rg_schema_get(schema, "enum"), *constant = json_object_get(schema, "const");
    json_t *without = rg_schema_get(schema, RG_NOT_VALUES);

    rg_schema_check_keywords(c->s, schema);
    if (json_is_null(v) && rg_schema_allows_null(schema))
        return true;
    if (!(rg_schema_types(c->s, &one) & rg_schema_type_of(v)) || (constant && !rg_schema_equal(constant, v)) ||
        (list && schema != listed && !among(list, v)) || among(without, v))
        return false;
    if (json_is_number(v) && !(rg_schema_in_range(c->s, &one, v) && rg_schema_is_multiple(c->s, &one, v)))
        return false;
    if (json_is_string(v) && !valid_string(c, schema, v))
        return false;
    if (json_is_array(v) && !valid_array(c, schema, v))
        return false;
    return (!json_is_object(v) || valid_object(c, schema, v)) && valid_parts(c, schema, v);
}

static bool valid(checker *c, json_t *schema, json_t *v, const json_t *listed)
{
    bool ok;

    if (json_is_boolean(schema) || c->s->f->failed)
        return json_is_true(schema);
    if (!json_is_object(schema)) {
        rg_schema_bad(c->s, "a schema must be an object, true or false");
        return false;
    }
    if (c->depth == MOST_DEPTH) {
        rg_schema_cannot(c->s, "a listed value whose schemas refer to each other more than %d deep", MOST_DEPTH);
        return false;
    }
    c->depth++;
    ok = valid_object_schema(c, schema, v, listed);
    c->depth--;
    return ok;
}

bool rg_schema_valid(rg_schemas *s, json_t *schema, json_t *v, const json_t *listed)
{
    checker c = { .s = s };

    return valid(&c, schema, v, listed) && !s->f->failed;
}
