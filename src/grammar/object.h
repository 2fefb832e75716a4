/* object.h -- JSON objects whose keys come in any order, each at most once.
 *
 * A frame of an object carries which of its declared keys have been (a bit each, as long as there are at most
 * RG_OBJECT_ANY_ORDER of them; of more, keys come in the order of their declaration and the frame carries the next one)
 * and how many others.  Declared keys are a tree of bytes, quotes included.  Where other keys are allowed, a key may
 * leave the tree at any byte and goes on as any string does; keys are written in one way only (escapes where JSON must
 * have them, and the short ones), so that a declared key cannot be written in another spelling.  Or other keys have
 * forms of their own, each with a value of its own, which match no declared key and have no key in common.
 *
 * Relies on form.h.  Knows no schema. */
#ifndef RG_GRAMMAR_OBJECT_H
#define RG_GRAMMAR_OBJECT_H

#include "grammar/form.h"

enum {
    RG_OBJECT_ANY_ORDER = 48,
    RG_OBJECT_OTHERS = 1 << 15, /* others are counted up to here */
    RG_LEX_STATES = 16,         /* within a string: object.c */
};

/* A place in the tree of keys. */
typedef struct rg_key_node {
    uint32_t child, sibling; /* 0: none */
    uint32_t from, to;       /* in the object's `below`, if keys have an order: declared keys under here, sorted */
    uint64_t below;          /* if they have none */
    int32_t prop;            /* the key that has ended here, or -1 */
    uint8_t byte, lex;
} rg_key_node;

typedef struct rg_prop {
    uint32_t value; /* all that follows the key, up to the comma or the brace */
    bool required;
    uint64_t needs; /* in an object without an order: the keys that must be there too if this key is */
    bool never;     /* no value is possible: the key must not be used as another key either */
} rg_prop;

/* Keys that are not declared. */
typedef struct rg_object_other {
    uint32_t key; /* their form, quotes included; NEVER, if there is only this kind: any string that is not declared */
    uint32_t value; /* what follows the key; in a spec only the value */
} rg_object_other;

typedef struct rg_object {
    rg_prop *prop;
    rg_key_node *key;
    uint32_t *below;
    uint32_t n_props, n_keys, room_keys;
    bool ordered;
    uint64_t required; /* bits, if keys have no order */
    uint32_t min, max; /* keys in all; max may be RG_FOREVER */
    bool need_other;   /* a key that is not declared has to come */
    bool has_needs;
    rg_object_other *other;
    uint32_t n_others;
    uint32_t space;
    uint32_t tail[RG_LEX_STATES]; /* the rest of a string, by the state it is in */
    uint32_t open, next, root; /* its nodes; root: of the place 0 of its tree, the others following */
    uint32_t edges, n_edges;   /* slice: all nodes that it may lead to */
} rg_object;

/* What rg_object_new needs to know; names are JSON-escaped here. */
typedef struct rg_object_prop {
    const char *name;
    size_t n_name;
    uint32_t value; /* only the value */
    bool required;
    uint64_t needs;
} rg_object_prop;

typedef struct rg_object_spec {
    const rg_object_prop *prop;
    uint32_t n_props;
    uint32_t min, max;
    bool need_other;
    const rg_object_other *other;
    uint32_t n_others;
    uint32_t space; /* what may stand between the parts */
} rg_object_spec;

/* The node of the whole object, braces included. */
uint32_t rg_object_new(rg_form *f, const rg_object_spec *spec);
void rg_object_fini(rg_object *o);

/* A character of a key that is written in the one way, and its escapes; for a form of keys. */
uint32_t rg_object_text(rg_form *f, const char *s, size_t n); /* "s" as JSON, quotes included */

/* After refine's look at values: false if the object cannot be. */
bool rg_object_possible(rg_form *f, rg_object *o, const rg_set *spelled);

/* ---- for the matcher ---- */

/* True if an undeclared key is any string. */
static inline bool rg_object_any_string(const rg_object *o)
{
    return o->n_others == 1 && o->other->key == RG_NEVER;
}

static inline uint32_t rg_object_count(const rg_object *o, uint64_t data)
{
    return o->ordered ? (uint32_t)(data >> 24 & 0xffffff) + (uint32_t)(data >> 48)
                      : (uint32_t)__builtin_popcountll(data & 0xffffffffffff) + (uint32_t)(data >> 48);
}

bool rg_object_may_close(const rg_object *o, uint64_t data);
bool rg_object_may_go_on(const rg_object *o, uint64_t data); /* another key can come */
bool rg_object_may_have_other(const rg_object *o, uint64_t data);     /* one that is not declared */
bool rg_object_below(const rg_object *o, uint64_t data, uint32_t place); /* a declared one under this place */
uint64_t rg_object_with(const rg_object *o, uint64_t data, int32_t prop); /* prop -1: another */

/* The state of a string after one byte more; RG_LEX_STATES: none.  RG_LEX_DONE: the closing quote. */
enum { RG_LEX_TEXT, RG_LEX_DONE = RG_LEX_STATES - 1 };
int rg_lex(int state, unsigned char byte);

#endif
