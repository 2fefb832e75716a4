/* schema.h -- from a JSON schema to a form; between schema.c (which schemas hold at once) and schema_types.c (what they
 * say of each type).
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
    RG_DONE_REF = 1,
    RG_DONE_ALL = 2,
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
    const char *tabled; /* the pattern of the table; NULL: none */
    rg_dfa table;
} rg_schemas;

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

json_t *rg_schema_target(rg_schemas *s, const json_t *ref); /* of a $ref; NULL and a failure */
uint32_t rg_schema_types(rg_schemas *s, const rg_terms *t); /* that "type" leaves */
int rg_schema_compare(const json_t *a, const json_t *b);    /* of numbers, exactly: below, at or above 0 */
bool rg_schema_equal(const json_t *a, const json_t *b);     /* as JSON Schema says: 1 is 1.0 */
uint32_t rg_schema_type_of(const json_t *v);

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
bool rg_schema_in_range(rg_schemas *s, const rg_terms *t, const json_t *v); /* a number, of minimum and the like */
void rg_schema_bounds(rg_schemas *s, const rg_terms *t, double *low, double *high); /* infinite: there is none */
/* A number between the bounds that the terms have; short_: of 15 digits where there is no bound. */
uint32_t rg_schema_number(rg_schemas *s, rg_form *f, const rg_terms *t, bool whole, bool short_);

/* ---- schema_words.c ---- */

uint32_t rg_schema_string(rg_schemas *s, const rg_terms *t);
bool rg_schema_has_multiple(const rg_terms *t);
bool rg_schema_is_multiple(rg_schemas *s, const rg_terms *t, const json_t *v); /* of all multipleOf */
uint32_t rg_schema_multiples(rg_schemas *s, const rg_terms *t, bool whole);
/* A number, each written in one way. */
uint32_t rg_schema_short_number(rg_schemas *s, const rg_terms *t);
/* The rest of an array after its bracket, whose items differ and satisfy these terms. */
uint32_t rg_schema_unique(rg_schemas *s, const rg_terms *items, uint32_t min, uint32_t max);
bool rg_schema_found(rg_schemas *s, const char *pattern, const char *text); /* the pattern, in the text */
bool rg_schema_matches(rg_schemas *s, const rg_terms *t, const char *text); /* of all patterns: found in the text */

#endif
