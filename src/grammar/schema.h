/* schema.h -- from a JSON schema to a form; between schema.c (which schemas hold at once), schema_types.c and
 * schema_objects.c (what they say of each type), schema_words.c (what needs tables), and what these ask: where a $ref
 * leads (schema_refs.c), what is the opposite of a schema (schema_not.c), which schemas exclude each other
 * (schema_disjoint.c), whether a value satisfies one (schema_valid.c).
 *
 * What a value must satisfy is a list of schemas, all of them ("terms").  References and allOf put more on the list,
 * anyOf and oneOf make one list per branch; then all that is left says something of single types, and is put together
 * keyword by keyword.  Each list becomes a node once, so that schemas may refer to themselves.  Lists to be done wait
 * in a queue: nothing recurses. */
#ifndef RG_GRAMMAR_SCHEMA_H
#define RG_GRAMMAR_SCHEMA_H

#include "base/hash.h"
#include "grammar/dfa.h"
#include "grammar/json.h"
#include "grammar/object.h"
#include "grammar/source.h"

enum { RG_TERMS = 64, RG_SCHEMA_JOBS = 20000 };

typedef enum rg_done {
    RG_DONE_PARTS = 1, /* $ref, allOf, not, if, dependencies */
    RG_DONE_ANY = 4,
    RG_DONE_ONE = 8,
    RG_DONE_NULLABLE = 16,
} rg_done;

typedef struct rg_term {
    json_t *schema;
    uint64_t done; /* keywords of it that are dealt with */
} rg_term;

typedef struct rg_terms {
    uint32_t n;
    rg_term term[RG_TERMS];
} rg_terms;

typedef struct rg_job {
    rg_term *term;
    uint32_t n, node;
} rg_job;

typedef struct rg_derived rg_derived;
typedef struct rg_schema_refs rg_schema_refs;

typedef struct rg_schemas {
    rg_form *f;
    json_t *root;
    json_t *null, *string; /* the schemas of these types */
    rg_json_parts parts;
    rg_job *job;
    uint32_t n_jobs, n_finished, room;
    rg_dict *known; /* terms -> job */
    bool one_way;   /* equal values are written alike, and there are neither arrays nor objects: for items that must
                     *   differ */
    rg_schema_refs *refs;
    json_t *nothing;      /* {} */
    json_t *texts;        /* patterns that were rewritten */
    rg_derived **derived; /* schema_not.c's */
    uint32_t n_derived;
    rg_dict *derived_of;
    rg_dfa **table;       /* of patterns, schema_words.c's */
    uint32_t n_tables;
    rg_dict *table_of;
    uint32_t n_looks;     /* schema_disjoint.c's, as is the next */
    const json_t *plain;
} rg_schemas;

/* Keywords of our own (schema_not.c), and a type: numbers that are no integers. */
#define RG_NEGATE "\1" "negate"           /* a schema that must not hold, as far as its opposite is known */
#define RG_NEGATE_PART "\1" "negatePart"  /* likewise, and less far */
#define RG_NOT_PATTERN "\1" "notPattern"  /* a pattern that is not found in a string */
#define RG_NOT_VALUES "\1" "notValues"    /* a list of values that it is not */
#define RG_OTHER_THAN "\1" "otherThan"    /* an object has a property that is none of these */
#define RG_REAL "\1" "real"

typedef enum rg_json_type {
    RG_TYPE_NULL = 1,
    RG_TYPE_BOOLEAN = 2,
    RG_TYPE_INTEGER = 4,
    RG_TYPE_REAL = 8, /* numbers that are no integers */
    RG_TYPE_STRING = 16,
    RG_TYPE_ARRAY = 32,
    RG_TYPE_OBJECT = 64,
    RG_TYPE_ANY = 127,
} rg_json_type;

#define rg_schema_bad(s, ...) rg_form_fail((s)->f, RG_E_INPUT, "schema: " __VA_ARGS__)
#define rg_schema_cannot(s, ...) rg_form_fail((s)->f, RG_E_UNSUPPORTED, "schema: " __VA_ARGS__)

/* The value of a keyword; NULL: there is none, or it is null, which no keyword but const means. */
json_t *rg_schema_get(const json_t *schema, const char *key);

/* One more; a schema that is true is none. */
void rg_terms_add(rg_schemas *s, rg_terms *t, json_t *schema, uint64_t done);
/* The node for these; it may be a reference that is filled later. */
uint32_t rg_schema_node(rg_schemas *s, const rg_terms *t);

uint32_t rg_schema_types(rg_schemas *s, const rg_terms *t);          /* that "type" leaves */
uint32_t rg_schema_type_of(const json_t *v);
bool rg_schema_allows_null(const json_t *schema);                    /* by "nullable" */
void rg_schema_check_keywords(rg_schemas *s, json_t *schema);        /* a failure if one is not supported */
const char *rg_schema_text(rg_schemas *s, const json_t *v, const char *key); /* "" and a failure: it is none */

/* ---- schema_refs.c ---- */

/* Unevaluated properties and items of the root, and of all in it, as additional ones where that is the same; text [n]:
 * what the root was read from. */
void rg_schema_unevaluated(rg_schemas *s, const char *text, size_t n);
rg_schema_refs *rg_schema_refs_new(rg_schemas *s); /* all ids and anchors of the root; NULL and a failure */
void rg_schema_refs_free(rg_schema_refs *r);       /* NULL is fine */
json_t *rg_schema_target(rg_schemas *s, const json_t *schema); /* of its $ref; NULL and a failure */

/* ---- schema_disjoint.c ---- */

int rg_schema_compare(const json_t *a, const json_t *b);             /* of numbers, exactly: below, at or above 0 */
bool rg_schema_equal(const json_t *a, const json_t *b);              /* as JSON Schema says: 1 is 1.0 */
/* True if it is certain that no value satisfies both; the value has what `with` (or NULL) requires. */
bool rg_schema_disjoint(rg_schemas *s, const rg_terms *with, json_t *a, json_t *b);
/* The same, by what `plain` says without other schemas: its $ref, allOf, branches and the like are not looked at. */
bool rg_schema_disjoint_plain(rg_schemas *s, const rg_terms *with, json_t *a, json_t *plain);
/* True if it is certain that every value which satisfies the terms satisfies this schema. */
bool rg_schema_implied(rg_schemas *s, const rg_terms *t, json_t *schema);

/* ---- schema_not.c: what is returned belongs to s; NULL and a failure ---- */

/* The values that do not satisfy the schema, or some of them.  *left_out, if there are none: a keyword whose opposite
 * is not known; NULL: every value satisfies it.  part: fewer values still, for what is deep in another schema. */
json_t *rg_schema_not(rg_schemas *s, json_t *schema, bool part, const char **left_out);
json_t *rg_schema_condition(rg_schemas *s, json_t *schema); /* "if", "then", "else" */
json_t *rg_schema_dependent(rg_schemas *s, json_t *schema); /* "dependentSchemas", "dependencies" */
void rg_schema_derived_fini(rg_schemas *s);

/* ---- schema_valid.c ---- */

/* True if the value satisfies the schema; listed: a schema whose "enum" has the value, or NULL. */
bool rg_schema_valid(rg_schemas *s, json_t *schema, json_t *v, const json_t *listed);

bool rg_schema_lists_values(const rg_terms *t); /* "enum" or "const" */
/* What the terms say, references and branches being dealt with. */
uint32_t rg_schema_plain(rg_schemas *s, const rg_terms *t);

/* The node of a value that satisfies the terms and is neither array nor object, in a form of its own, every value being
 * written in one way. */
uint32_t rg_schema_one_way(const rg_schemas *s, const rg_terms *t, rg_form *f);

/* ---- what schema_types.c has for schema_words.c ---- */

#define RG_EACH(t, i, key, v)                        \
    for (uint32_t i = 0; i < (t)->n; i++)            \
        for (json_t *v = rg_schema_get((t)->term[i].schema, key); v; v = NULL)

/* A keyword that counts: the largest (or smallest) that is asked for. */
uint32_t rg_schema_count(rg_schemas *s, const rg_terms *t, const char *key, bool largest, uint32_t none);
bool rg_schema_range_empty(rg_schemas *s, const rg_terms *t); /* of minimum and the like */
bool rg_schema_in_range(rg_schemas *s, const rg_terms *t, const json_t *v); /* a number, of minimum and the like */
void rg_schema_bounds(rg_schemas *s, const rg_terms *t, double *low, double *high); /* infinite: there is none */
/* A number between the bounds that the terms have; short_: of 15 digits where there is no bound. */
uint32_t rg_schema_number(rg_schemas *s, rg_form *f, const rg_terms *t, bool whole, bool short_);

/* ---- schema_words.c ---- */

/* without: a list of values that must not be, or NULL. */
uint32_t rg_schema_string(rg_schemas *s, const rg_terms *t, const json_t *without);
uint32_t rg_schema_numbers_without(rg_schemas *s, const rg_terms *t, uint32_t types, const json_t *without);
bool rg_schema_has_multiple(const rg_terms *t);
bool rg_schema_is_multiple(rg_schemas *s, const rg_terms *t, const json_t *v); /* of all multipleOf */
uint32_t rg_schema_multiples(rg_schemas *s, const rg_terms *t, bool whole);
/* A number, each written in one way. */
uint32_t rg_schema_short_number(rg_schemas *s, const rg_terms *t);
/* The rest of an array after its bracket, whose items differ and satisfy these terms. */
uint32_t rg_schema_unique(rg_schemas *s, const rg_terms *items, uint32_t min, uint32_t max);
bool rg_schema_found(rg_schemas *s, const char *pattern, const char *text); /* the pattern, in the text */
bool rg_schema_fits_format(rg_schemas *s, const json_t *schema,
                           const json_t *v);                                /* a text: "format", where it is known */
const rg_dfa *rg_schema_table(rg_schemas *s, const char *pattern);          /* of all strings in which it is found */
void rg_schema_tables_fini(rg_schemas *s);
/* *d becomes what it and `other` have in common, or what it has and other has not; first: it is other, or all else. */
bool rg_schema_narrow(rg_schemas *s, rg_dfa *d, const rg_dfa *other, bool not_other, bool first);
bool rg_schema_string_table(rg_schemas *s, const rg_terms *t, rg_dfa *out); /* of strings that the terms allow */
bool rg_schema_words_table(rg_schemas *s, rg_literal *word, uint32_t n, rg_dfa *out);
uint32_t rg_schema_quoted(rg_form *f, uint32_t inside); /* with quotes around it */

/* ---- schema_arrays.c ---- */

uint32_t rg_schema_array(rg_schemas *s, const rg_terms *t);

/* ---- schema_objects.c ---- */

uint32_t rg_schema_object(rg_schemas *s, const rg_terms *t);

#endif
