/* schema_refs.c -- see schema.h: where a $ref leads.
 *
 * A "$id" (of draft 4 "id") below the root begins a document of its own, in which '#' means that one; "$anchor", or an
 * id that is only '#name', names a place.  All ids are found once, beforehand.  Authors write ids that are no addresses
 * ("/properties/a"): what is not found in a document of its own is looked for in the root. */
#include <stdlib.h>

#include "base/mem.h"
#include "grammar/schema.h"

enum { MOST_IDS = 1 << 14 };

typedef struct member {
    const json_t *schema; /* one that has a $ref */
    json_t *document;
} member;

struct rg_schema_refs {
    rg_schemas *s;
    rg_dict *ids, *anchors; /* -> place */
    json_t **place;
    uint32_t n_places;
    member *member; /* of documents below the root */
    uint32_t n_members;
};

static bool is_map(const char *key)
{
    static const char *const maps[] = {
        "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"
    };

    for (size_t i = 0; i < RG_LEN(maps); i++)
        if (!strcmp(key, maps[i]))
            return true;
    return false;
}

static bool is_data(const char *key)
{
    static const char *const data[] = { "const", "default", "enum", "example", "examples" };

    for (size_t i = 0; i < RG_LEN(data); i++)
        if (!strcmp(key, data[i]))
            return true;
    return false;
}

static void put(rg_schema_refs *r, rg_dict *to, const char *key, size_t n, json_t *place)
{
    json_t **all;

    if (!n || r->n_places == MOST_IDS || rg_dict_get(to, key, n) >= 0)
        return;
    /* fits: there are fewer than MOST_IDS */
    all = rg_resize_array(r->place, r->n_places + 1, sizeof *all);
    if (all) {
        r->place = all;
        r->place[r->n_places] = place;
    }
    if (!all || !rg_dict_put(to, key, n, (int)r->n_places++))
        rg_form_fail(r->s->f, RG_E_MEMORY, "schema: out of memory");
}

static const char *id_of(const json_t *schema)
{
    const char *id = json_string_value(json_object_get(schema, "$id"));

    return id ? id : json_string_value(json_object_get(schema, "id"));
}

/* The length of an address without its fragment. */
static size_t address(const char *uri)
{
    return strcspn(uri, "#");
}

static void find_ids(rg_schema_refs *r, json_t *v, json_t *document, bool map)
{
    const char *key, *id = map ? NULL : id_of(v),
                     *anchor = map ? NULL : json_string_value(json_object_get(v, "$anchor"));
    json_t *sub;
    size_t i;

    if (id && id[0] == '#') {
        put(r, r->anchors, id + 1, strlen(id + 1), v);
    } else if (id) {
        put(r, r->ids, id, address(id), v);
        document = v;
    }
    if (anchor)
        put(r, r->anchors, anchor, strlen(anchor), v);
    if (document != r->s->root && !map && json_is_string(json_object_get(v, "$ref"))) {
        /* fits: each is an object of a document in memory */
        member *all = rg_resize_array(r->member, r->n_members + 1, sizeof *all);
        if (!all) {
            rg_form_fail(r->s->f, RG_E_MEMORY, "schema: out of memory");
            return;
        }
        r->member = all;
        r->member[r->n_members++] = (member){ v, document };
    }
    json_object_foreach(v, key, sub) if (map || !is_data(key)) find_ids(r, sub, document, !map && is_map(key));
    json_array_foreach(v, i, sub) find_ids(r, sub, document, false);
}

static int by_schema(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const member *)a)->schema, y = (uintptr_t)((const member *)b)->schema;

    return (x > y) - (x < y);
}

rg_schema_refs *rg_schema_refs_new(rg_schemas *s)
{
    rg_schema_refs *r = rg_zalloc(sizeof *r);

    if (r) {
        r->s = s;
        r->ids = rg_dict_new(4);
        r->anchors = rg_dict_new(4);
    }
    if (!r || !r->ids || !r->anchors) {
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
        rg_schema_refs_free(r);
        return NULL;
    }
    find_ids(r, s->root, s->root, false);
    if (r->n_members)
        qsort(r->member, r->n_members, sizeof *r->member, by_schema);
    return r;
}

void rg_schema_refs_free(rg_schema_refs *r)
{
    if (!r)
        return;
    rg_dict_free(r->ids);
    rg_dict_free(r->anchors);
    rg_free(r->place);
    rg_free(r->member);
    rg_free(r);
}

/* ---- following --------------------------------------------------------------------------------------------------- */

/* One part of a pointer, unescaped, into out; the rest of the pointer, or NULL if it does not fit. */
static const char *pointer_part(const char *p, char *out, size_t room)
{
    size_t n = 0;

    for (; *p && *p != '/'; p++) {
        size_t at = 1;
        char c = *p;
        uint32_t v;
        if (c == '~' && (p[1] == '0' || p[1] == '1'))
            c = *++p == '0' ? '~' : '/';
        else if (c == '%' && rg_hex(p, strlen(p), &at, 2, &v) && v)
            c = (char)v, p += 2;
        if (n + 1 == room)
            return NULL;
        out[n++] = c;
    }
    out[n] = 0;
    return p;
}

/* What the pointer ("", "/a/b") leads to; NULL: nothing. */
static json_t *follow_pointer(json_t *at, const char *p)
{
    char name[512];

    while (at && *p == '/') {
        p = pointer_part(p + 1, name, sizeof name);
        if (!p)
            return NULL;
        at = json_is_array(at) ? json_array_get(at, strtoul(name, NULL, 10)) : json_object_get(at, name);
    }
    return at;
}

static json_t *place_of(const rg_schema_refs *r, const rg_dict *in, const char *key, size_t n)
{
    int at = n ? rg_dict_get(in, key, n) : -1;

    return at >= 0 ? r->place[at] : NULL;
}

/* The length of the address of the folder that an address is in. */
static size_t folder(const char *uri)
{
    size_t n = address(uri);

    while (n && uri[n - 1] != '/')
        n--;
    return n;
}

/* The document with this address; NULL: it is not here. */
static json_t *find_document(const rg_schema_refs *r, const char *uri, size_t n, json_t *document)
{
    json_t *found = place_of(r, r->ids, uri, n), *bases[] = { document, r->s->root };

    for (size_t i = 0; !found && i < RG_LEN(bases); i++) {
        const char *base = id_of(bases[i]);
        size_t at = base ? folder(base) : 0;
        char joined[1024];
        if (!at)
            continue;
        if (n > at && !memcmp(uri, base, at)) { /* ids may be written without the root's folder, */
            found = place_of(r, r->ids, uri + at, n - at);
        } else if (at + n < sizeof joined && !strstr(uri, "://")) { /* and references so, too */
            memcpy(joined, base, at);
            memcpy(joined + at, uri, n);
            found = place_of(r, r->ids, joined, at + n);
        }
    }
    return found;
}

json_t *rg_schema_target(rg_schemas *s, const json_t *schema)
{
    const rg_schema_refs *r = s->refs;
    const char *text = rg_schema_text(s, rg_schema_get(schema, "$ref"), "$ref"), *fragment;
    const member key = { schema, NULL };
    const member *in = r->n_members ? bsearch(&key, r->member, r->n_members, sizeof key, by_schema) : NULL;
    json_t *document = in ? in->document : s->root, *found;
    size_t n = address(text);

    if (n)
        document = find_document(r, text, n, document);
    if (!document) {
        rg_schema_cannot(
            s, "$ref '%.200s' leads to another document: only '#', '#/...' and ids of this one are followed", text);
        return NULL;
    }
    fragment = text[n] ? text + n + 1 : "";
    if (*fragment && *fragment != '/')
        found = place_of(r, r->anchors, fragment, strlen(fragment));
    else
        found = follow_pointer(document, fragment);
    if (!found && *fragment == '/')
        found = follow_pointer(s->root, fragment);
    if (!found)
        rg_schema_bad(s, "$ref '%.200s' leads nowhere", text);
    return found;
}
