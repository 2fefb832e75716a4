/* schema_unevaluated.c -- unevaluatedProperties and unevaluatedItems as additionalProperties and items.
 *
 * That is the same where it is known beforehand what is evaluated: by the schema's own keywords, and for properties by
 * those of its allOf. */
#include "base/mem.h"
#include "grammar/schema.h"

enum { MOST_OPEN = 1 << 16 };

/* What is evaluated depends on the value, or on a schema elsewhere. */
static bool depends(const json_t *schema, bool all_of)
{
    static const char *const keys[] = { "anyOf",        "oneOf",       "$ref",         "if", "dependentSchemas",
                                        "dependencies", "$dynamicRef", "$recursiveRef" };

    for (size_t i = 0; i < RG_LEN(keys); i++)
        if (rg_schema_get(schema, keys[i]))
            return true;
    return all_of && rg_schema_get(schema, "allOf");
}

static void say_nothing_of(json_t *properties, const json_t *known)
{
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)known, key, v) if (!json_object_get(properties, key))
        json_object_set_new(properties, key, json_true());
}

/* Properties of the schema and of each in its allOf are known; others are as unevaluatedProperties says. */
static void close_properties(json_t *schema)
{
    const json_t *all = rg_schema_get(schema, "allOf");
    json_t *own = rg_schema_get(schema, "properties"), *properties;

    if (rg_schema_get(schema, "additionalProperties")) { /* nothing is left */
        json_object_del(schema, "unevaluatedProperties");
        return;
    }
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *part = json_array_get(all, i);
        if (!json_is_object(part) || depends(part, true) || rg_schema_get(part, "patternProperties") ||
            rg_schema_get(part, "additionalProperties") || rg_schema_get(part, "unevaluatedProperties"))
            return;
    }
    if (depends(schema, false) || (own && !json_is_object(own)))
        return;
    properties = own ? json_copy(own) : json_object();
    for (size_t i = 0; i < json_array_size(all); i++)
        say_nothing_of(properties, rg_schema_get(json_array_get(all, i), "properties"));
    json_object_set_new(schema, "properties", properties);
    json_object_set(schema, "additionalProperties", json_object_get(schema, "unevaluatedProperties"));
    json_object_del(schema, "unevaluatedProperties");
}

static void close_items(json_t *schema)
{
    const json_t *items = rg_schema_get(schema, "items");
    const char *others = json_is_array(items) ? "additionalItems" : "items";

    if (rg_schema_get(schema, "contains") || depends(schema, true))
        return;
    if (!rg_schema_get(schema, others))
        json_object_set(schema, others, json_object_get(schema, "unevaluatedItems"));
    json_object_del(schema, "unevaluatedItems");
}

typedef struct open_value {
    json_t *value;
    bool map; /* of schemas by names of any kind */
} open_value;

static bool is_one_of(const char *key, const char *const *keys)
{
    for (; *keys; keys++)
        if (!strcmp(key, *keys))
            return true;
    return false;
}

/* The schemas within this one, onto the stack. */
static size_t add_inner(open_value v, open_value *stack, size_t n)
{
    static const char *const maps[] = { "properties",       "patternProperties", "$defs", "definitions",
                                        "dependentSchemas", "dependencies",      NULL };
    static const char *const values[] = { "enum", "const", "default", "examples", "example", NULL };
    const char *key;
    json_t *inner;
    size_t i;

    json_array_foreach(v.value, i, inner) if (n < MOST_OPEN) stack[n++] = (open_value){ inner, false };
    json_object_foreach(v.value, key, inner)
    {
        if (n < MOST_OPEN && (json_is_object(inner) || json_is_array(inner)) && (v.map || !is_one_of(key, values)))
            stack[n++] = (open_value){ inner, !v.map && is_one_of(key, maps) };
    }
    return n;
}

static bool has_word(const char *text, size_t n, const char *word)
{
    size_t k = strlen(word);

    for (const char *at = text; at && n - (size_t)(at - text) >= k; at++) {
        at = memchr(at, *word, n - k + 1 - (size_t)(at - text));
        if (!at || !memcmp(at, word, k))
            return at;
        if (at == text + n - k)
            return false;
    }
    return false;
}

void rg_schema_unevaluated(rg_schemas *s, const char *text, size_t n_text)
{
    open_value *stack;
    size_t n = 0;

    if (!has_word(text, n_text, "unevaluated"))
        return;
    stack = rg_array(MOST_OPEN, sizeof *stack);
    if (!stack) {
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
        return;
    }
    stack[n++] = (open_value){ s->root, false };
    while (n) {
        open_value v = stack[--n];
        if (!v.map && rg_schema_get(v.value, "unevaluatedProperties"))
            close_properties(v.value);
        if (!v.map && rg_schema_get(v.value, "unevaluatedItems"))
            close_items(v.value);
        n = add_inner(v, stack, n);
    }
    rg_free(stack);
}
