/* schema.c -- see schema.h: lists of schemas, references, branches. */
#include "grammar/schema.h"

#include <stdlib.h>

#include "base/mem.h"

/* Keywords of any draft that say what values there are, and are not supported.  Every other one that is not known only
 * annotates, as the standard says: OpenAPI's and Gemini's own, "x-..." and whatever else there is. */
static const char *const refused[] = {
    "$dynamicRef", "$recursiveRef", "contains", "dependencies", "dependentRequired", "dependentSchemas", "disallow",
    "divisibleBy", "else", "extends", "if", "maxContains", "minContains", "not", "then", "unevaluatedItems",
    "unevaluatedProperties",
};

json_t *rg_schema_get(const json_t *schema, const char *key)
{
    json_t *v = json_object_get(schema, key);

    return json_is_null(v) && strcmp(key, "const") != 0 ? NULL : v;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, *(const char *const *)b);
}

/* A "$id" below the root begins a document of its own, in which '#' means that one. */
static bool begins_document(const rg_schemas *s, const json_t *schema)
{
    return schema != s->root && json_is_string(json_object_get(schema, "$id"));
}

static void refuse_document(rg_schemas *s, const json_t *schema)
{
    rg_schema_cannot(s, "a '$id' below the root ('%.100s') is not supported: references within it would start there",
                     json_string_value(json_object_get(schema, "$id")));
}

static void check_keywords(rg_schemas *s, json_t *schema)
{
    const char *key;
    json_t *v;

    if (begins_document(s, schema))
        refuse_document(s, schema);

    json_object_foreach(schema, key, v)
        if (!json_is_null(v) && bsearch(key, refused, RG_LEN(refused), sizeof *refused, by_name))
            rg_schema_cannot(s, "the keyword '%.100s' is not supported", key);
}

/* ---- references -------------------------------------------------------------------------------------------------- */

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

json_t *rg_schema_target(rg_schemas *s, const json_t *ref)
{
    const char *text = json_string_value(ref), *p = text ? text : "";
    json_t *at = s->root;
    char name[512];

    if (*p != '#' || (p[1] && p[1] != '/')) {
        rg_schema_cannot(s, "$ref '%.200s': only '#' and '#/...' are followed", p);
        return NULL;
    }
    for (p++; at && p && *p == '/';) {
        p = pointer_part(p + 1, name, sizeof name);
        if (p && json_is_array(at))
            at = json_array_get(at, strtoul(name, NULL, 10));
        else
            at = p ? json_object_get(at, name) : NULL;
        if (begins_document(s, at)) {
            refuse_document(s, at);
            return NULL;
        }
    }
    if (!at || !p)
        rg_schema_bad(s, "$ref '%.200s' leads nowhere", text);
    return p ? at : NULL;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

void rg_terms_add(rg_schemas *s, rg_terms *t, json_t *schema, uint64_t done)
{
    if (json_is_true(schema) || s->f->failed)
        return;
    if (!json_is_object(schema) && !json_is_false(schema)) {
        rg_schema_bad(s, "a schema must be an object, true or false");
        return;
    }
    for (uint32_t i = 0; i < t->n; i++)
        if (t->term[i].schema == schema && t->term[i].done == done)
            return;
    if (t->n == RG_TERMS) {
        rg_form_fail(s->f, RG_E_LIMIT, "schema: more than %d schemas for one value", RG_TERMS);
        return;
    }
    t->term[t->n++] = (rg_term){ schema, done };
}

static int by_address(const void *a, const void *b)
{
    const rg_term *x = a, *y = b;

    uintptr_t p = (uintptr_t)x->schema, q = (uintptr_t)y->schema;

    return p != q ? (p > q) - (p < q) : (x->done > y->done) - (x->done < y->done);
}

uint32_t rg_schema_node(rg_schemas *s, const rg_terms *t)
{
    rg_terms sorted = *t;
    size_t bytes = t->n * sizeof *sorted.term;
    rg_job job;
    int found;

    if (s->f->failed)
        return RG_NEVER;
    if (!t->n)
        return s->parts.value;
    qsort(sorted.term, sorted.n, sizeof *sorted.term, by_address);
    found = rg_dict_get(s->known, (const char *)sorted.term, bytes);
    if (found >= 0)
        return s->job[found].node;
    if (s->n_jobs == RG_SCHEMA_JOBS) {
        rg_form_fail(s->f, RG_E_LIMIT, "schema: more than %d different combinations of schemas", RG_SCHEMA_JOBS);
        return RG_NEVER;
    }
    if (s->n_jobs == s->room) {
        uint32_t room = s->room ? 2 * s->room : 64;
        rg_job *p = rg_resize_array(s->job, room, sizeof *p);
        if (p)
            s->job = p, s->room = room;
    }
    job = (rg_job){ .term = rg_alloc(bytes), .n = t->n, .node = rg_form_ref(s->f, "the schema", 10) };
    if (!job.term || s->n_jobs == s->room) {
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
        rg_free(job.term);
        return RG_NEVER;
    }
    memcpy(job.term, sorted.term, bytes);
    s->job[s->n_jobs] = job;
    if (!rg_dict_put(s->known, (const char *)job.term, bytes, (int)s->n_jobs++))
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
    return job.node;
}

/* Follow $ref and allOf.  A schema that leads back to itself in this way adds nothing. */
static void flatten(rg_schemas *s, const rg_job *job, rg_terms *out)
{
    rg_terms all = { 0 };
    uint32_t from[RG_TERMS];

    for (uint32_t i = 0; i < job->n; i++) {
        from[i] = UINT32_MAX;
        all.term[all.n++] = job->term[i];
    }
    for (uint32_t i = 0; i < all.n && !s->f->failed; i++) {
        rg_term t = all.term[i];
        json_t *ref = rg_schema_get(t.schema, "$ref"), *list = rg_schema_get(t.schema, "allOf"), *sub;
        uint32_t had = all.n;
        size_t k;

        for (uint32_t up = from[i]; up != UINT32_MAX; up = from[up])
            if (all.term[up].schema == t.schema)
                rg_schema_cannot(s, "a cycle of $ref that leads back to itself");
        check_keywords(s, t.schema);
        if (ref && !(t.done & RG_DONE_REF) && (ref = rg_schema_target(s, ref)))
            rg_terms_add(s, &all, ref, 0);
        if (list && !(t.done & RG_DONE_ALL)) {
            if (!json_array_size(list))
                rg_schema_bad(s, "'allOf' is not a list of schemas");
            json_array_foreach(list, k, sub)
                rg_terms_add(s, &all, sub, 0);
        }
        for (; had < all.n; had++)
            from[had] = i;
        rg_terms_add(s, out, t.schema, t.done | RG_DONE_REF | RG_DONE_ALL);
        if (ref && s->f->failed)
            return;
        for (uint32_t up = i; ref && up != UINT32_MAX; up = from[up]) /* one that was there already leads back, too */
            if (all.term[up].schema == ref && !all.term[up].done)
                rg_schema_cannot(s, "a cycle of $ref that leads back to itself");
    }
}

/* ---- branches ---------------------------------------------------------------------------------------------------- */

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
    if (json_is_number(a) && json_is_number(b))
        return rg_schema_compare(a, b) == 0;
    return json_equal(a, b) == 1;
}

/* True if a value can satisfy both lists of values. */
static bool lists_meet(const json_t *a, const json_t *b)
{
    size_t i, k;
    json_t *x, *y;

    json_array_foreach(a, i, x)
        json_array_foreach(b, k, y)
            if (rg_schema_equal(x, y))
                return true;
    return false;
}

static json_t *follow(rg_schemas *s, json_t *schema)
{
    for (int i = 0; i < 16 && schema && rg_schema_get(schema, "$ref"); i++)
        schema = rg_schema_target(s, rg_schema_get(schema, "$ref"));
    return schema;
}

static bool have_other_values(json_t *a, json_t *b)
{
    json_t *x = json_object_get(a, "const"), *y = json_object_get(b, "const");
    json_t *p = json_object_get(a, "enum"), *q = json_object_get(b, "enum");
    bool differ = false;

    if (x && y)
        return !rg_schema_equal(x, y);
    if (json_array_size(p) > 1000 || json_array_size(q) > 1000)
        return false;
    p = x ? json_pack("[O]", x) : json_incref(p);
    q = y ? json_pack("[O]", y) : json_incref(q);
    differ = p && q && !lists_meet(p, q);
    json_decref(p);
    json_decref(q);
    return differ;
}

static uint32_t types_of(rg_schemas *s, json_t *schema)
{
    rg_terms one = { .n = 1, .term = { { schema, 0 } } };
    json_t *v = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    uint32_t types = rg_schema_types(s, &one), some = 0;
    size_t i;

    if (v)
        return types & rg_schema_type_of(v);
    json_array_foreach(list, i, v)
        some |= rg_schema_type_of(v);
    return list ? types & some : types;
}

static bool is_required(const json_t *schema, const char *name)
{
    json_t *v;
    size_t i;

    json_array_foreach(rg_schema_get(schema, "required"), i, v)
        if (json_is_string(v) && !strcmp(json_string_value(v), name))
            return true;
    return false;
}

/* True if it is certain that no value satisfies both. */
static bool disjoint(rg_schemas *s, json_t *a, json_t *b)
{
    uint32_t both;
    const char *name;
    json_t *x;

    a = follow(s, a);
    b = follow(s, b);
    if (!json_is_object(a) || !json_is_object(b))
        return json_is_false(a) || json_is_false(b);
    both = types_of(s, a) & types_of(s, b);
    if (!both || have_other_values(a, b))
        return true;
    if (both != RG_TYPE_OBJECT)
        return false;
    json_object_foreach(json_object_get(a, "properties"), name, x) {
        json_t *y = json_object_get(json_object_get(b, "properties"), name);
        json_t *p = y ? follow(s, x) : NULL, *q = y ? follow(s, y) : NULL;
        if (p && q && is_required(a, name) && is_required(b, name) &&
            (!(types_of(s, p) & types_of(s, q)) || have_other_values(p, q)))
            return true;
    }
    return false;
}

static void check_disjoint(rg_schemas *s, const json_t *list)
{
    size_t n = json_array_size(list);

    if (n > 200) {
        rg_schema_cannot(s, "'oneOf' of more than 200 schemas: use 'anyOf'");
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n && !s->f->failed; k++)
            if (!disjoint(s, json_array_get(list, i), json_array_get(list, k)))
                rg_schema_cannot(s, "'oneOf', whose schemas %zu and %zu may hold at once: use 'anyOf'", i, k);
}

/* If terms and branch have no keyword but one constant text of the branch: its node.  Otherwise 0. */
static uint32_t values_only(rg_schemas *s, const rg_terms *t, json_t *branch)
{
    json_t *v = json_object_get(branch, "const");

    if (t->n != 1 || json_object_size(t->term[0].schema) != 1 || json_object_size(branch) != 1 || !json_is_string(v))
        return 0;
    return rg_json_exactly(s->f, &s->parts, v);
}

/* OpenAPI's "nullable": true; where values are listed, null has to be one of them. */
static bool allows_null(const json_t *schema)
{
    json_t *list = rg_schema_get(schema, "enum"), *one = json_object_get(schema, "const"), *v;
    bool listed = !list && (!one || json_is_null(one));
    size_t i;

    json_array_foreach(list, i, v)
        listed |= json_is_null(v);
    return listed && json_is_true(rg_schema_get(schema, "nullable"));
}

/* OpenAPI's "nullable": true, of the first term that has it: null, or what the others and the rest of it say.  0: none
 * has it. */
static uint32_t nullable(rg_schemas *s, const rg_terms *t)
{
    rg_terms null = { 0 }, other = { 0 };
    uint32_t at = 0;

    while (at < t->n && (t->term[at].done & RG_DONE_NULLABLE || !allows_null(t->term[at].schema)))
        at++;
    if (at == t->n)
        return 0;
    for (uint32_t i = 0; i < t->n; i++) {
        rg_terms_add(s, &other, t->term[i].schema, t->term[i].done | (i == at ? RG_DONE_NULLABLE : 0));
        rg_terms_add(s, &null, i == at ? s->null : t->term[i].schema, i == at ? 0 : t->term[i].done);
    }
    return RG_ALT(s->f, rg_schema_node(s, &other), rg_schema_node(s, &null));
}

/* One node per branch of the first term that has any; 0: none has. */
static uint32_t branches(rg_schemas *s, const rg_terms *t)
{
    json_t *list = NULL, *branch;
    rg_list l = { 0 };
    uint32_t at, made;
    uint64_t which = 0;
    size_t k;

    for (at = 0; at < t->n && !list; at++) {
        const rg_term *term = &t->term[at];
        json_t *any = rg_schema_get(term->schema, "anyOf"), *one = rg_schema_get(term->schema, "oneOf");
        if (any && !(term->done & RG_DONE_ANY))
            list = any, which = RG_DONE_ANY;
        else if (one && !(term->done & RG_DONE_ONE))
            list = one, which = RG_DONE_ONE;
    }
    if (!list)
        return 0;
    if (!json_array_size(list))
        rg_schema_bad(s, "'anyOf' or 'oneOf' is not a list of schemas");
    if (which == RG_DONE_ONE)
        check_disjoint(s, list);
    json_array_foreach(list, k, branch) {
        rg_terms sub = { 0 };
        uint32_t node = values_only(s, t, branch);

        if (s->f->failed)
            break;
        if (!node) {
            for (uint32_t i = 0; i < t->n; i++)
                rg_terms_add(s, &sub, t->term[i].schema, t->term[i].done | (i == at - 1 ? which : 0));
            rg_terms_add(s, &sub, branch, 0);
            node = rg_schema_node(s, &sub);
        }
        rg_list_add(s->f, &l, node);
    }
    made = rg_form_alt(s->f, l.id, l.n);
    rg_list_fini(&l);
    return made;
}

static uint32_t finish(rg_schemas *s, const rg_job *job)
{
    rg_terms t = { 0 };
    uint32_t made;

    for (uint32_t i = 0; i < job->n; i++)
        if (json_is_false(job->term[i].schema))
            return RG_NEVER;
    flatten(s, job, &t);
    for (uint32_t i = 0; i < t.n; i++)
        if (json_is_false(t.term[i].schema))
            return RG_NEVER;
    if (s->f->failed)
        return RG_NEVER;
    made = nullable(s, &t);
    made = made ? made : branches(s, &t);
    return made ? made : rg_schema_plain(s, &t);
}

static void write_one_way(rg_schemas *s)
{
    rg_json_parts *p = &s->parts;
    rg_terms none = { 0 };
    uint32_t quote = rg_form_str(s->f, "\"");

    p->string = RG_SEQ(s->f, quote, rg_form_rep(s->f, rg_chars_any(s->f, RG_WRITE_JSON), 0, RG_FOREVER), quote);
    p->number = rg_schema_short_number(s, &none);
    p->value = RG_ALT(s->f, p->string, p->number, p->boolean, p->null);
}

/* Make the node of these terms, and all that it refers to. */
static uint32_t make(rg_schemas *s, const rg_terms *t)
{
    uint32_t made = RG_NEVER;

    s->known = rg_dict_new(64);
    s->null = json_pack("{s:s}", "type", "null");
    s->string = json_pack("{s:s}", "type", "string");
    if (!s->known || !s->null || !s->string)
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
    if (!s->f->failed && rg_json_parts_make(s->f, &s->parts)) {
        if (s->one_way)
            write_one_way(s);
        made = rg_schema_node(s, t);
        for (; s->n_finished < s->n_jobs && !s->f->failed; s->n_finished++) {
            rg_job job = s->job[s->n_finished];
            rg_form_bind(s->f, job.node, finish(s, &job));
        }
    }
    for (uint32_t i = 0; i < s->n_jobs; i++)
        rg_free(s->job[i].term);
    rg_free(s->job);
    rg_dict_free(s->known);
    rg_dfa_fini(&s->table);
    json_decref(s->null);
    json_decref(s->string);
    return s->f->failed ? RG_NEVER : made;
}

uint32_t rg_schema_one_way(const rg_schemas *s, const rg_terms *t, rg_form *f)
{
    rg_schemas own = { .f = f, .root = s->root, .one_way = true };

    return make(&own, t);
}

uint32_t rg_schema(rg_form *f, const char *text, size_t n)
{
    rg_schemas s = { .f = f, .root = rg_grammar_json(f, "schema", text, n) };
    rg_terms t = { 0 };
    uint32_t made = RG_NEVER;

    if (s.root) {
        rg_terms_add(&s, &t, s.root, 0);
        made = make(&s, &t);
    }
    json_decref(s.root);
    return made;
}
