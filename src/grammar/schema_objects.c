/* schema_objects.c -- see schema.h: what a list of schemas says of objects: which properties they have, under which
 * names, and which values those have. */
#include <stdio.h>

#include "base/mem.h"
#include "grammar/schema.h"

#define EACH RG_EACH

enum { MOST_PATTERNS = 6 /* of names: each set of patterns that match is looked at by itself */ };

typedef struct names {
    rg_schemas *s;
    const rg_terms *t;
    rg_object_prop *prop;
    uint32_t n, room;
    rg_dict *known;
    const char *pattern[MOST_PATTERNS];
    uint32_t n_patterns;
    rg_terms all; /* what "propertyNames" say */
} names;

/* ---- names ------------------------------------------------------------------------------------------------------- */

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

static void add_names_of(names *n, json_t *object, const char *key)
{
    const char *name;
    json_t *sub;

    if (!json_is_object(object))
        rg_schema_bad(n->s, "'%s' is not an object", key);
    json_object_foreach(object, name, sub) if (!n->s->f->failed) add_name(n, name, strlen(name));
}

/* The names of a list; *required of all of them becomes true. */
static void add_listed(names *n, const json_t *list, const char *key, bool required)
{
    json_t *name;
    size_t k;

    if (!json_is_array(list))
        rg_schema_bad(n->s, "'%s' is not a list of texts", key);
    json_array_foreach(list, k, name)
    {
        rg_object_prop *p = NULL;
        if (!json_is_string(name))
            rg_schema_bad(n->s, "'%s' is not a list of texts", key);
        else if (!n->s->f->failed)
            p = add_name(n, json_string_value(name), json_string_length(name));
        if (p)
            p->required |= required;
    }
}

static void add_pattern(names *n, const char *pattern)
{
    for (uint32_t i = 0; i < n->n_patterns; i++)
        if (!strcmp(n->pattern[i], pattern))
            return;
    if (n->n_patterns == MOST_PATTERNS)
        rg_schema_cannot(n->s, "'patternProperties' of more than %d patterns for a value", MOST_PATTERNS);
    else
        n->pattern[n->n_patterns++] = pattern;
}

static void collect(names *n)
{
    static const char *const needs[] = { "dependentRequired", "dependencies" };
    const char *name;
    json_t *sub;

    EACH(n->t, i, "properties", v)
    add_names_of(n, v, "properties");
    EACH(n->t, i, "required", v)
    add_listed(n, v, "required", true);
    EACH(n->t, i, RG_OTHER_THAN, v)
    add_names_of(n, v, "properties");
    for (size_t k = 0; k < RG_LEN(needs); k++)
        EACH(n->t, i, needs[k], v)
    json_object_foreach(v, name, sub) if (!n->s->f->failed && (json_is_array(sub) || json_is_string(sub)))
    {
        add_name(n, name, strlen(name));
        if (json_is_string(sub))
            add_name(n, json_string_value(sub), json_string_length(sub));
        else
            add_listed(n, sub, needs[k], false);
    }
    EACH(n->t, i, "patternProperties", v)
    {
        if (!json_is_object(v))
            rg_schema_bad(n->s, "'patternProperties' is not an object");
        json_object_foreach(v, name, sub) if (!n->s->f->failed) add_pattern(n, name);
    }
}

/* Names that "propertyNames" lists count as declared; *others: no other name is allowed. */
static void collect_allowed(names *n, bool *others)
{
    EACH(n->t, i, "propertyNames", v)
    rg_terms_add(n->s, &n->all, v, 0);
    for (uint32_t i = 0; i < n->all.n && !n->s->f->failed; i++) {
        json_t *schema = n->all.term[i].schema, *one = rg_schema_get(schema, "const"),
               *list = rg_schema_get(schema, "enum"), *name;
        size_t k;

        if (json_is_string(one))
            add_name(n, json_string_value(one), json_string_length(one));
        json_array_foreach(list, k, name) if (json_is_string(name) && !n->s->f->failed)
            add_name(n, json_string_value(name), json_string_length(name));
        *others &= !list && !one && !json_is_false(schema);
    }
}

/* True if "propertyNames" allow this name. */
static bool allows_name(const names *n, const rg_object_prop *p)
{
    json_t *text = n->all.n ? json_stringn(p->name, p->n_name) : NULL;
    bool ok = true;

    for (uint32_t i = 0; i < n->all.n && ok; i++)
        ok = rg_schema_valid(n->s, n->all.term[i].schema, text, NULL);
    json_decref(text);
    return ok;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* What one term says of the value of a name that is not among its own, by the patterns that match it, a bit each. */
static void add_terms(const names *n, json_t *schema, uint32_t matched, bool known, rg_terms *sub)
{
    json_t *patterns = rg_schema_get(schema, "patternProperties"),
           *others = rg_schema_get(schema, "additionalProperties");

    for (uint32_t k = 0; patterns && k < n->n_patterns; k++) {
        json_t *v = matched >> k & 1 ? json_object_get(patterns, n->pattern[k]) : NULL;
        if (v)
            rg_terms_add(n->s, sub, v, 0);
        known |= v != NULL;
    }
    if (!known && others)
        rg_terms_add(n->s, sub, others, 0);
}

static uint32_t node_of(rg_schemas *s, const rg_terms *sub)
{
    for (uint32_t i = 0; i < sub->n; i++)
        if (json_is_false(sub->term[i].schema))
            return RG_NEVER;
    return rg_schema_node(s, sub);
}

/* What the value of a declared name must be. */
static uint32_t value_node(const names *n, const rg_object_prop *p)
{
    uint32_t matched = 0;
    rg_terms sub = { 0 };

    if (!allows_name(n, p))
        return RG_NEVER;
    for (uint32_t k = 0; k < n->n_patterns && !n->s->f->failed; k++)
        matched |= (uint32_t)rg_schema_found(n->s, n->pattern[k], p->name) << k;
    for (uint32_t i = 0; i < n->t->n; i++) {
        json_t *own = json_object_get(rg_schema_get(n->t->term[i].schema, "properties"), p->name);
        if (own)
            rg_terms_add(n->s, &sub, own, 0);
        add_terms(n, n->t->term[i].schema, matched, own != NULL, &sub);
    }
    return node_of(n->s, &sub);
}

/* True if properties that no keyword speaks of are left out: some are listed, and nothing is said of others. */
static bool is_closed(const names *n)
{
    bool lists = false;

    for (uint32_t i = 0; i < n->t->n && !n->s->f->open_objects; i++) {
        json_t *schema = n->t->term[i].schema;
        if (rg_schema_get(schema, "additionalProperties") || rg_schema_get(schema, "unevaluatedProperties"))
            return false;
        lists |= json_object_size(rg_schema_get(schema, "properties")) || rg_schema_get(schema, "patternProperties");
    }
    return lists;
}

/* ---- other names ------------------------------------------------------------------------------------------------- */

/* True if "propertyNames" say more than which names there are. */
static bool says_how(const names *n)
{
    static const char *const says[] = { "$ref",      "allOf",     "anyOf",        "format",       "if",
                                        "maxLength", "minLength", "not",          "oneOf",        "pattern",
                                        "type",      RG_NEGATE,   RG_NEGATE_PART, RG_NOT_PATTERN, RG_NOT_VALUES };

    for (uint32_t i = 0; i < n->all.n; i++)
        for (size_t k = 0; k < RG_LEN(says); k++)
            if (rg_schema_get(n->all.term[i].schema, says[k]))
                return true;
    return false;
}

/* The table of names that are not declared and match exactly these patterns. */
static bool names_table(const names *n, uint32_t matched, const rg_dfa *allowed, rg_dfa *d)
{
    rg_schemas *s = n->s;
    rg_literal *word = rg_array(n->n, sizeof *word);
    rg_dfa declared = { 0 };
    bool first = true, ok = word != NULL;

    *d = (rg_dfa){ 0 };
    if (!ok)
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
    for (int yes = 1; ok && yes >= 0; yes--) /* what must be found first, since it makes the smaller tables */
        for (uint32_t k = 0; ok && k < n->n_patterns; k++) {
            const rg_dfa *one;
            if ((int)(matched >> k & 1) != yes)
                continue;
            one = rg_schema_table(s, n->pattern[k]);
            ok = one && rg_schema_narrow(s, d, one, !yes, first);
            first = false;
        }
    if (ok && allowed) {
        ok = rg_schema_narrow(s, d, allowed, false, first);
        first = false;
    }
    for (uint32_t i = 0; ok && i < n->n; i++)
        word[i] = (rg_literal){ n->prop[i].name, n->prop[i].n_name };
    if (ok && n->n)
        ok = rg_schema_words_table(s, word, n->n, &declared) && rg_schema_narrow(s, d, &declared, true, first);
    rg_dfa_fini(&declared);
    rg_free(word);
    return ok;
}

/* Names that are not declared, by which patterns they match. */
static uint32_t other_names(const names *n, bool how, rg_object_other *other)
{
    rg_terms names_are = n->all;
    rg_schemas *s = n->s;
    uint32_t made = 0;
    rg_dfa allowed = { 0 };

    if (how) {
        rg_terms_add(s, &names_are, s->string, 0);
        if (!rg_schema_string_table(s, &names_are, &allowed))
            return 0;
    }
    for (uint32_t matched = 0; matched < 1U << n->n_patterns && !s->f->failed; matched++) {
        rg_terms sub = { 0 };
        rg_dfa d;
        uint32_t value;

        if (!matched && is_closed(n))
            continue;
        for (uint32_t i = 0; i < n->t->n; i++)
            add_terms(n, n->t->term[i].schema, matched, false, &sub);
        value = node_of(s, &sub);
        if (value == RG_NEVER || s->f->failed || !names_table(n, matched, how ? &allowed : NULL, &d))
            continue;
        other[made].key = rg_schema_quoted(s->f, rg_dfa_word_node(s->f, &d, 0, RG_FOREVER));
        other[made].value = value;
        made += other[made].key != RG_NEVER;
    }
    rg_dfa_fini(&allowed);
    return made;
}

/* Names with a schema for their value, and no other rule. */
static uint32_t any_other(const names *n, rg_object_other *other)
{
    rg_terms sub = { 0 };

    if (is_closed(n))
        return 0;
    for (uint32_t i = 0; i < n->t->n; i++)
        add_terms(n, n->t->term[i].schema, 0, false, &sub);
    other->value = node_of(n->s, &sub);
    other->key = n->n ? RG_NEVER : n->s->parts.string; /* no declared name that they could be confused with */
    return other->value != RG_NEVER;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

/* "dependentRequired", and "dependencies" that are lists of names: a bit for each name that another one needs. */
static void add_needs(names *n)
{
    static const char *const keys[] = { "dependentRequired", "dependencies" };
    const char *name;
    json_t *sub, *one;
    size_t i;

    for (size_t k = 0; k < RG_LEN(keys); k++)
        EACH(n->t, at, keys[k], v)
    json_object_foreach(v, name, sub)
    {
        rg_object_prop *p = NULL;
        if (!json_is_array(sub) && !json_is_string(sub))
            continue;
        if (n->n > RG_OBJECT_ANY_ORDER)
            rg_schema_cannot(n->s, "'%s' in an object of more than %d properties", keys[k], RG_OBJECT_ANY_ORDER);
        if (n->s->f->failed)
            return;
        p = add_name(n, name, strlen(name)); /* it is there */
        if (json_is_string(sub))
            p->needs |= 1ULL << rg_dict_get(n->known, json_string_value(sub), json_string_length(sub));
        json_array_foreach(sub, i, one) p->needs |=
            1ULL << rg_dict_get(n->known, json_string_value(one), json_string_length(one));
    }
}

/* "minProperties": names that are not declared may come twice, so that they are not counted. */
static void check_min(names *n, rg_object_spec *spec)
{
    uint32_t n_required = 0, n_possible = 0;

    for (uint32_t i = 0; i < n->n; i++) {
        n_required += n->prop[i].required;
        n_possible += n->prop[i].value != RG_NEVER;
    }
    if (spec->min <= n_required)
        spec->min = 0;
    if (spec->min <= 1 || (!spec->n_others && n->n <= RG_OBJECT_ANY_ORDER))
        return;
    if (n_possible >= spec->min && n->n <= RG_OBJECT_ANY_ORDER)
        spec->n_others = 0;
    else
        rg_schema_cannot(n->s, "'minProperties' of %u, of which only %u are required", spec->min, n_required);
}

static void fill(names *n, rg_object_spec *spec, rg_object_other *other)
{
    rg_schemas *s = n->s;
    bool others = true, how;

    collect(n);
    if (!s->f->failed)
        collect_allowed(n, &others);
    if (!s->f->failed)
        add_needs(n);
    for (uint32_t i = 0; i < n->n && !s->f->failed; i++)
        n->prop[i].value = value_node(n, &n->prop[i]);
    if (s->f->failed)
        return;
    how = others && says_how(n);
    if (others)
        spec->n_others = n->n_patterns || how ? other_names(n, how, other) : any_other(n, other);
    spec->other = other;
    spec->prop = n->prop;
    spec->n_props = n->n;
    EACH(n->t, i, RG_OTHER_THAN, v)
    spec->need_other = true;
    check_min(n, spec);
}

/* An object that has a property beside some: one of the declared ones that are not among them, or any other. */
static uint32_t beyond(rg_schemas *s, const names *n, const rg_object_spec *spec)
{
    rg_object_spec one = *spec;
    rg_list l = { 0 };
    uint32_t made;

    rg_list_add(s->f, &l, rg_object_new(s->f, &one));
    one.need_other = false;
    for (uint32_t i = 0; i < n->n && !s->f->failed; i++) {
        bool among = false, had = n->prop[i].required;
        EACH(n->t, k, RG_OTHER_THAN, v)
        among |= json_object_get(v, n->prop[i].name) != NULL;
        if (among || n->prop[i].value == RG_NEVER)
            continue;
        n->prop[i].required = true;
        rg_list_add(s->f, &l, rg_object_new(s->f, &one));
        n->prop[i].required = had;
        if (had)
            break; /* it is always there */
    }
    made = rg_form_alt(s->f, l.id, l.n);
    rg_list_fini(&l);
    return made;
}

uint32_t rg_schema_object(rg_schemas *s, const rg_terms *t)
{
    names n = { .s = s, .t = t, .known = rg_dict_new(16) };
    rg_object_other other[1 << MOST_PATTERNS];
    rg_object_spec spec = { .min = rg_schema_count(s, t, "minProperties", true, 0),
                            .max = rg_schema_count(s, t, "maxProperties", false, RG_FOREVER),
                            .space = s->parts.space };
    uint32_t made = RG_NEVER;

    if (!n.known)
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
    else
        fill(&n, &spec, other);
    if (!s->f->failed)
        made = spec.need_other ? beyond(s, &n, &spec) : rg_object_new(s->f, &spec);
    rg_dict_free(n.known);
    rg_free(n.prop);
    return made;
}
