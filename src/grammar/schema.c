/* schema.c -- see schema.h: lists of schemas, references, branches. */
#include "grammar/schema.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"

enum { MOST_HOPS = 16, MOST_BRANCHES = 200 };

/* Keywords of any draft that say what values there are, and are not supported. */
static const char *const refused[] = {
    "$dynamicRef", "$recursiveRef", "disallow", "divisibleBy", "extends", "unevaluatedItems", "unevaluatedProperties",
};

/* All keywords that say what values there are, sorted.  Every other one that is not known only annotates, as the
 * standard says: OpenAPI's and Gemini's own, "x-..." and whatever else there is. */
static const char *const meaning[] = {
    RG_NEGATE,
    RG_NEGATE_PART,
    RG_NOT_PATTERN,
    RG_NOT_VALUES,
    RG_OTHER_THAN,
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "disallow",
    "divisibleBy",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "extends",
    "format",
    "if",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
};

json_t *rg_schema_get(const json_t *schema, const char *key)
{
    json_t *v = json_object_get(schema, key);

    return json_is_null(v) && strcmp(key, "const") != 0 ? NULL : v;
}

/* A pattern that has the character 0 in it, with an escape for it. */
static const char *without_nul(rg_schemas *s, const char *text, size_t n)
{
    rg_buf b;
    json_t *made;
    bool ok = true;

    rg_buf_init(&b, RG_PATTERN_BYTES);
    for (size_t i = 0; i < n && ok; i++)
        ok = text[i] ? rg_buf_add(&b, text + i, 1) : rg_buf_str(&b, "\\x00");
    made = ok ? json_stringn(b.data, b.n) : NULL;
    rg_buf_fini(&b);
    if (!made || json_array_append_new(s->texts, made))
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory for a pattern");
    return s->f->failed ? "" : json_string_value(made);
}

const char *rg_schema_text(rg_schemas *s, const json_t *v, const char *key)
{
    const char *text = json_string_value(v);

    if (text && strlen(text) == json_string_length(v))
        return text;
    if (text && !strcmp(key, "pattern"))
        return without_nul(s, text, json_string_length(v));
    rg_schema_bad(s, "'%s' is not a text", key);
    return "";
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, *(const char *const *)b);
}

void rg_schema_check_keywords(rg_schemas *s, json_t *schema)
{
    const char *key;
    json_t *v;

    json_object_foreach(schema, key,
                        v) if (!json_is_null(v) && bsearch(key, refused, RG_LEN(refused), sizeof *refused, by_name))
        rg_schema_cannot(s, "the keyword '%.100s' is not supported", key);
}

/* How many keywords the schema has that say what values there are. */
static int count_meaning(json_t *schema)
{
    const char *key;
    json_t *v;
    int n = 0;

    json_object_foreach(schema, key, v) n +=
        (!json_is_null(v) || !strcmp(key, "const")) && bsearch(key, meaning, RG_LEN(meaning), sizeof *meaning, by_name);
    return n;
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* What a schema that is a reference and nothing else leads to; NULL and a failure. */
static json_t *skip_references(rg_schemas *s, json_t *schema)
{
    for (int i = 0;
         i < MOST_HOPS && json_is_object(schema) && rg_schema_get(schema, "$ref") && count_meaning(schema) == 1; i++)
        schema = rg_schema_target(s, schema);
    return schema;
}

void rg_terms_add(rg_schemas *s, rg_terms *t, json_t *schema, uint64_t done)
{
    schema = done || s->f->failed ? schema : skip_references(s, schema);
    if (json_is_true(schema) || s->f->failed)
        return;
    if (!json_is_object(schema) && !json_is_false(schema)) {
        rg_schema_bad(s, "a schema must be an object, true or false");
        return;
    }
    if (json_is_object(schema) && !count_meaning(schema))
        return;
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

/* Where a schema that came onto a list is from: the schema that led to it. */
typedef struct flat {
    rg_terms all;
    uint32_t from[RG_TERMS], at;
} flat;

static void came_from(flat *l, uint32_t had)
{
    for (; had < l->all.n; had++)
        l->from[had] = l->at;
}

static void refuse_cycle(rg_schemas *s, const flat *l, uint32_t from, const json_t *schema)
{
    for (uint32_t up = from; up != UINT32_MAX; up = l->from[up])
        if (l->all.term[up].schema == schema && !l->all.term[up].done)
            rg_schema_cannot(s, "a cycle of $ref that leads back to itself");
}

/* Put on the list what the schema says by way of others: $ref, allOf, not, if, dependencies. */
static void add_parts(rg_schemas *s, flat *l, json_t *schema)
{
    json_t *ref = rg_schema_get(schema, "$ref"), *list = rg_schema_get(schema, "allOf"), *sub;
    json_t *not = rg_schema_get(schema, "not"), *negate = rg_schema_get(schema, RG_NEGATE);
    const char *left_out = NULL;
    size_t k;

    if (ref && (ref = rg_schema_target(s, schema))) {
        refuse_cycle(s, l, l->at, ref); /* one that is on the list already leads back, too */
        rg_terms_add(s, &l->all, ref, 0);
    }
    if (list && !json_array_size(list))
        rg_schema_bad(s, "'allOf' is not a list of schemas");
    json_array_foreach(list, k, sub)
    {
        refuse_cycle(s, l, l->at, skip_references(s, sub));
        rg_terms_add(s, &l->all, sub, 0);
    }
    if (not &&(sub = rg_schema_not(s, not, false, &left_out))) {
        if (json_is_false(sub) && left_out)
            rg_schema_cannot(s, "'not' of a schema with '%s' is not supported", left_out);
        rg_terms_add(s, &l->all, sub, 0);
    }
    if (negate && (sub = rg_schema_not(s, negate, false, &left_out)))
        rg_terms_add(s, &l->all, sub, 0);
    negate = rg_schema_get(schema, RG_NEGATE_PART);
    if (negate && (sub = rg_schema_not(s, negate, true, &left_out)))
        rg_terms_add(s, &l->all, sub, 0);
    if (rg_schema_get(schema, "if") && (sub = rg_schema_condition(s, schema)))
        rg_terms_add(s, &l->all, sub, 0);
    if ((rg_schema_get(schema, "dependencies") || rg_schema_get(schema, "dependentSchemas")) &&
        (sub = rg_schema_dependent(s, schema)))
        rg_terms_add(s, &l->all, sub, 0);
}

/* All that the terms say by way of others, as one list.  A schema that leads back to itself in this way adds nothing.
 * */
static void flatten(rg_schemas *s, const rg_job *job, rg_terms *out)
{
    flat l = { 0 };

    for (uint32_t i = 0; i < job->n; i++) {
        l.from[i] = UINT32_MAX;
        l.all.term[l.all.n++] = job->term[i];
    }
    for (l.at = 0; l.at < l.all.n && !s->f->failed; l.at++) {
        rg_term t = l.all.term[l.at];
        uint32_t had = l.all.n;

        if (!(t.done & RG_DONE_PARTS)) {
            refuse_cycle(s, &l, l.from[l.at], t.schema);
            rg_schema_check_keywords(s, t.schema);
            add_parts(s, &l, t.schema);
        }
        came_from(&l, had);
        if (!s->f->failed)
            rg_terms_add(s, out, t.schema, t.done | RG_DONE_PARTS);
    }
}

/* ---- branches ---------------------------------------------------------------------------------------------------- */

/* If terms and branch have no keyword but one constant text of the branch: its node.  Otherwise 0. */
static uint32_t values_only(rg_schemas *s, const rg_terms *t, json_t *branch)
{
    json_t *v = json_object_get(branch, "const");

    if (t->n != 1 || json_object_size(t->term[0].schema) != 1 || json_object_size(branch) != 1 || !json_is_string(v))
        return 0;
    return rg_json_exactly(s->f, &s->parts, v);
}

/* OpenAPI's "nullable": true; where values are listed, null has to be one of them. */
bool rg_schema_allows_null(const json_t *schema)
{
    json_t *list = rg_schema_get(schema, "enum"), *one = json_object_get(schema, "const"), *v;
    bool listed = !list && (!one || json_is_null(one));
    size_t i;

    json_array_foreach(list, i, v) listed |= json_is_null(v);
    return listed && json_is_true(rg_schema_get(schema, "nullable"));
}

/* OpenAPI's "nullable": true, of the first term that has it: null, or what the others and the rest of it say.  0: none
 * has it. */
static uint32_t nullable(rg_schemas *s, const rg_terms *t)
{
    rg_terms null = { 0 }, other = { 0 };
    uint32_t at = 0;

    while (at < t->n && (t->term[at].done & RG_DONE_NULLABLE || !rg_schema_allows_null(t->term[at].schema)))
        at++;
    if (at == t->n)
        return 0;
    for (uint32_t i = 0; i < t->n; i++) {
        rg_terms_add(s, &other, t->term[i].schema, t->term[i].done | (i == at ? RG_DONE_NULLABLE : 0));
        rg_terms_add(s, &null, i == at ? s->null : t->term[i].schema, i == at ? 0 : t->term[i].done);
    }
    return RG_ALT(s->f, rg_schema_node(s, &other), rg_schema_node(s, &null));
}

/* A term that has branches which are not dealt with. */
typedef struct fork {
    uint32_t at;
    uint64_t which;
    json_t *list;
    size_t n_possible;
    bool impossible[MOST_BRANCHES]; /* no value satisfies the branch and the terms */
    bool apart[MOST_BRANCHES];      /* nor the branch and what the terms say without their own parts: so that no branch
                                     *   is left out of what a oneOf excludes because of that oneOf itself */
} fork;

static void look_at_branches(rg_schemas *s, const rg_terms *t, fork *k)
{
    k->n_possible = 0;
    for (size_t i = 0; i < json_array_size(k->list); i++) {
        json_t *branch = json_array_get(k->list, i);
        bool apart = false, impossible;
        for (uint32_t n = 0; i < MOST_BRANCHES && n < t->n && !apart && !s->f->failed; n++)
            apart = rg_schema_disjoint_plain(s, t, branch, t->term[n].schema);
        impossible = apart;
        for (uint32_t n = 0; i < MOST_BRANCHES && n < t->n && !impossible && !s->f->failed; n++)
            impossible = rg_schema_disjoint(s, t, branch, t->term[n].schema);
        if (i < MOST_BRANCHES) {
            k->apart[i] = apart;
            k->impossible[i] = impossible;
        }
        k->n_possible += !impossible;
    }
}

/* True if every value of the terms satisfies a branch of this anyOf. */
static bool holds_anyway(rg_schemas *s, const rg_terms *t, const json_t *list)
{
    json_t *branch;
    size_t i;

    json_array_foreach(list, i, branch) if (i < MOST_BRANCHES && rg_schema_implied(s, t, branch)) return true;
    return false;
}

/* Find the term whose branches leave the fewest ways, so that what follows from the others is known soon.  An anyOf
 * that holds anyway counts as dealt with.  False: no term has branches. */
static bool find_fork(rg_schemas *s, rg_terms *t, fork *best)
{
    static const struct {
        const char *key;
        uint64_t done;
    } of[] = { { "anyOf", RG_DONE_ANY }, { "oneOf", RG_DONE_ONE } };

    best->list = NULL;
    for (uint32_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < RG_LEN(of) && !s->f->failed; k++) {
            fork one = { .at = i, .which = of[k].done, .list = rg_schema_get(t->term[i].schema, of[k].key) };
            if (!one.list || t->term[i].done & one.which)
                continue;
            if (!json_array_size(one.list))
                rg_schema_bad(s, "'%s' is not a list of schemas", of[k].key);
            if (one.which == RG_DONE_ONE && json_array_size(one.list) > MOST_BRANCHES)
                rg_schema_cannot(s, "'oneOf' of more than %d schemas: use 'anyOf'", MOST_BRANCHES);
            if (one.which == RG_DONE_ANY && holds_anyway(s, t, one.list)) {
                t->term[i].done |= RG_DONE_ANY;
                continue;
            }
            look_at_branches(s, t, &one);
            if (!best->list || one.n_possible < best->n_possible)
                *best = one;
        }
    return best->list && !s->f->failed;
}

/* Add, for oneOf, that no other branch holds beside this one. */
static void exclude_others(rg_schemas *s, const rg_terms *t, const fork *k, size_t branch, rg_terms *sub)
{
    json_t *own = json_array_get(k->list, branch), *other, *not ;
    const char *left_out;
    size_t i;

    json_array_foreach(k->list, i, other)
    {
        if (i == branch || k->apart[i] || s->f->failed || rg_schema_disjoint(s, t, own, other))
            continue;
        not = rg_schema_not(s, other, false, &left_out);
        if (json_is_false(not ) && left_out)
            rg_schema_cannot(
                s,
                "'oneOf', whose schemas %zu and %zu may hold at once, and the opposite of '%s' is not supported: "
                "use 'anyOf'",
                branch < i ? branch : i, branch < i ? i : branch, left_out);
        if (not )
            rg_terms_add(s, sub, not, 0);
    }
}

/* One node per branch of the first term that has any; 0: none has. */
static uint32_t branches(rg_schemas *s, rg_terms *t)
{
    json_t *branch;
    rg_list l = { 0 };
    uint32_t made;
    size_t i;
    fork k = { 0 };

    if (!find_fork(s, t, &k))
        return s->f->failed ? RG_NEVER : 0;
    json_array_foreach(k.list, i, branch)
    {
        rg_terms sub = { 0 };
        uint32_t node = k.which == RG_DONE_ANY ? values_only(s, t, branch) : 0;

        if (s->f->failed)
            break;
        if (i < MOST_BRANCHES && k.impossible[i])
            continue;
        if (!node) {
            for (uint32_t n = 0; n < t->n; n++)
                rg_terms_add(s, &sub, t->term[n].schema, t->term[n].done | (n == k.at ? k.which : 0));
            rg_terms_add(s, &sub, branch, 0);
            if (k.which == RG_DONE_ONE)
                exclude_others(s, t, &k, i, &sub);
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
    if (rg_schema_lists_values(&t))
        return rg_schema_plain(s, &t);
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
    s->derived_of = rg_dict_new(16);
    s->table_of = rg_dict_new(16);
    s->texts = json_array();
    s->nothing = json_object();
    s->null = json_pack("{s:s}", "type", "null");
    s->string = json_pack("{s:s}", "type", "string");
    if (!s->known || !s->derived_of || !s->table_of || !s->texts || !s->nothing || !s->null || !s->string)
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
    rg_schema_derived_fini(s);
    rg_schema_tables_fini(s);
    json_decref(s->texts);
    json_decref(s->nothing);
    json_decref(s->null);
    json_decref(s->string);
    return s->f->failed ? RG_NEVER : made;
}

uint32_t rg_schema_one_way(const rg_schemas *s, const rg_terms *t, rg_form *f)
{
    rg_schemas own = { .f = f, .root = s->root, .refs = s->refs, .one_way = true };

    return make(&own, t);
}

uint32_t rg_schema(rg_form *f, const char *text, size_t n)
{
    rg_schemas s = { .f = f, .root = rg_grammar_json(f, "schema", text, n) };
    rg_terms t = { 0 };
    const uint64_t refused_before = rg_json_refused();
    uint32_t made = RG_NEVER;

    if (s.root)
        rg_schema_unevaluated(&s, text, n);
    if (s.root && (s.refs = rg_schema_refs_new(&s))) {
        rg_terms_add(&s, &t, s.root, 0);
        made = make(&s, &t);
    }
    rg_schema_refs_free(s.refs);
    json_decref(s.root);
    if (rg_json_refused() != refused_before)
        rg_form_fail(f, RG_E_MEMORY, "schema: out of memory for what follows from it");
    return made;
}
