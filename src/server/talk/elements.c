/* elements.c -- an argument that is made of tags itself, on the way to JSON: objects have a tag for each member, lists
 * one for each value (rg_talk_tags.nested).
 *
 * What a tag is follows from the tool's schema.  Where that says nothing, tags called "item" are of a list, and so are
 * several of the same key. */
#include "base/json.h"
#include "base/mem.h"
#include "server/json.h"
#include "server/talk/force.h"
#include "server/talk/inner.h"

enum { MAX_NAME = 128 };

typedef struct element {
    char key[MAX_NAME];
    const json_t *schema; /* NULL: unknown */
    json_t *value;        /* of what has tags: an object or a list; NULL: there was none so far */
    const char *text;     /* where its text begins */
} element;

typedef struct reading {
    const rg_talk_tags *tags;
    const json_t *root;
    element open[RG_CALL_DEPTH];
    int depth;
} reading;

/* The alternative of a schema that is a list or an object. */
static const json_t *container_of(const json_t *root, const json_t *schema)
{
    static const char *const unions[] = { "anyOf", "oneOf", "allOf" };
    const json_t *s = rg_schema_resolve(root, schema);

    if (json_object_get(s, "properties") || json_object_get(s, "items"))
        return s;
    for (size_t u = 0; u < RG_LEN(unions); u++) {
        const json_t *any = json_object_get(s, unions[u]);
        for (size_t i = 0; i < json_array_size(any); i++) {
            const json_t *one = rg_schema_resolve(root, json_array_get(any, i));
            if (rg_property_types(root, one) & (RG_IS_LIST | RG_IS_OBJECT))
                return one;
        }
    }
    return s;
}

static bool is_list(const reading *r, const element *e, const char *first)
{
    unsigned types = e->schema ? rg_property_types(r->root, e->schema) & RG_IS_ANY : RG_IS_ANY;

    if (types == RG_IS_ANY || (types & RG_IS_LIST && types & RG_IS_OBJECT))
        return !strcmp(first, "item");
    return types & RG_IS_LIST;
}

static const json_t *schema_of_member(const reading *r, const element *parent, const char *key)
{
    const json_t *s = container_of(r->root, parent->schema), *v;

    if (json_is_array(parent->value))
        return json_object_get(s, "items");
    v = json_object_get(json_object_get(s, "properties"), key);
    return v ? v : json_object_get(s, "additionalProperties");
}

/* Text as what the schema has it be. */
static json_t *plain(const reading *r, const json_t *schema, const char *s, size_t n)
{
    unsigned types = json_is_object(schema) ? rg_property_types(r->root, schema) & RG_IS_ANY : RG_IS_TEXT;
    json_t *v = types == RG_IS_TEXT || !n ? NULL : rg_json_load(s, n, JSON_DECODE_ANY, NULL);

    if (!n && !(types & RG_IS_TEXT) && types & (RG_IS_LIST | RG_IS_OBJECT))
        return types & RG_IS_LIST ? json_array() : json_object();
    if (v && !(json_is_string(v) && types & RG_IS_TEXT))
        return v;
    json_decref(v);
    return json_stringn_nocheck(s, n);
}

/* Add a member; one whose key is there makes a list of both. */
static void add(element *to, const char *key, json_t *v)
{
    json_t *there = json_object_get(to->value, key);

    if (json_is_array(to->value)) {
        json_array_append_new(to->value, v);
    } else if (json_is_array(there) && !json_is_array(v)) {
        json_array_append_new(there, v);
    } else if (there) {
        json_t *both = json_array();
        json_array_append(both, there);
        json_array_append_new(both, v);
        json_object_set_new_nocheck(to->value, key, both);
    } else {
        json_object_set_new_nocheck(to->value, key, v);
    }
}

/* The next tag opens.  False: it is nested too deep. */
static bool open_one(reading *r, const char *key, size_t n, const char *text)
{
    element *parent = &r->open[r->depth - 1], *e = &r->open[r->depth];

    if (r->depth == RG_CALL_DEPTH || n >= MAX_NAME)
        return false;
    *e = (element){ .text = text };
    memcpy(e->key, key, n);
    if (!parent->value)
        parent->value = is_list(r, parent, e->key) ? json_array() : json_object();
    e->schema = schema_of_member(r, parent, e->key);
    r->depth++;
    return true;
}

static void close_one(reading *r, const char *end)
{
    element *e = &r->open[r->depth - 1];
    json_t *v = e->value ? e->value : plain(r, e->schema, e->text, (size_t)(end - e->text));

    e->value = NULL;
    r->depth--;
    if (v)
        add(&r->open[r->depth - 1], e->key, v);
}

/* Read all tags.  False: they are no tree. */
static bool read_tags(reading *r, const char *s, size_t n)
{
    const rg_talk_tags *t = r->tags;
    size_t n_end = strlen(t->key_close);

    for (size_t i = 0; i < n;) {
        int opens = rg_mark_match(t->key_open, s + i, n - i, true),
            closes = rg_mark_match(t->close, s + i, n - i, true);
        if (opens < 0) {
            i++;
            continue;
        }
        size_t from = i + (size_t)(closes > opens ? closes : opens), to = from;
        while (to < n && (n - to < n_end || memcmp(s + to, t->key_close, n_end) != 0))
            to++;
        if (to >= n || (closes > opens && r->depth < 2))
            return false;
        if (closes > opens)
            close_one(r, s + i);
        else if (!open_one(r, s + from, to - from, s + to + n_end))
            return false;
        i = to + n_end;
    }
    return r->depth == 1;
}

void rg_put_elements(rg_answer *a, const json_t *function, const char *key, const char *s, size_t n)
{
    const json_t *parameters = json_object_get(function, "parameters");
    reading *r = rg_zalloc(sizeof *r);
    rg_buf *to = &rg_call_now(a)->arguments;
    char *dump = NULL;

    if (r) {
        r->tags = a->form->tags;
        r->root = parameters;
        r->open[0].schema = json_object_get(json_object_get(parameters, "properties"), key);
        r->depth = 1;
        if (read_tags(r, s, n) && r->open[0].value)
            dump = rg_body_dump(r->open[0].value);
        for (int i = 0; i < r->depth; i++)
            json_decref(r->open[i].value);
    } else {
        a->failed = true;
    }
    if (dump) {
        rg_put(a, to, dump, strlen(dump));
    } else { /* as it stands */
        rg_put(a, to, "\"", 1);
        rg_put_escaped(a, to, s, n);
        rg_put(a, to, "\"", 1);
    }
    rg_free(dump);
    rg_free(r);
}
