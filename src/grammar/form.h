/* form.h -- the compiled form of a grammar, whatever its source: a graph of nodes over bytes.
 *
 * A node says what may come next: a byte of a set, a literal, a sequence of nodes, one of several nodes, or a repeated
 * node.  Repetitions are counted, not copied, and any number of nodes may refer to the same node, so that the graph is
 * about as large as the source.  Objects of JSON whose keys come in any order are nodes of their own (object.h).  The
 * functions that build do not return failures: the first failure is kept in the form, and everything built after it is
 * NEVER.
 *
 * rg_form_refine prepares the graph for the matcher: it takes out unreachable and impossible parts, makes the bodies
 * of repetitions never empty, refuses left recursion, and finds the first bytes of each node.  Knows no JSON and no
 * vocabulary. */
#ifndef RG_GRAMMAR_FORM_H
#define RG_GRAMMAR_FORM_H

#include <string.h>

#include "base/error.h"

enum {
    RG_FORM_NODES = 1 << 19, /* of one grammar */
    RG_FORM_KIDS = 1 << 21,
    RG_FORM_TEXT = 1 << 23,
    RG_FORM_SETS = 1 << 13,
    RG_FORM_OBJECTS = 1 << 12,
    RG_FORM_WORDS = 1 << 10, /* and arrays whose items differ */
    RG_FORM_KEYS = 1 << 19,
    RG_FORM_WIDE = 256, /* alternatives of one node, once the literals among them have become a tree */
};

#define RG_FOREVER UINT32_MAX /* rg_grammar_node.max */

typedef struct rg_set {
    uint64_t bit[4];
} rg_set;

static inline bool rg_set_has(const rg_set *s, unsigned byte)
{
    return s->bit[byte >> 6] >> (byte & 63) & 1;
}

static inline void rg_set_add(rg_set *s, unsigned from, unsigned to) /* both included */
{
    for (unsigned b = from; b <= to; b++)
        s->bit[b >> 6] |= 1ULL << (b & 63);
}

typedef enum rg_node_kind {
    RG_NODE_END,   /* the bottom of every stack: the answer may end */
    RG_NODE_BASE,  /* the bottom of what a mask looks at: what is below is not known */
    RG_NODE_EMPTY,
    RG_NODE_SET,   /* a: set */
    RG_NODE_LIT,   /* text[a, a + n); a frame's data: how far */
    RG_NODE_SEQ,   /* kid[a, a + n) in a row; data: which */
    RG_NODE_ALT,   /* one of kid[a, a + n) */
    RG_NODE_REP,   /* a, min to max times; data: how often it has been */
    RG_NODE_REF,   /* a; text + n: its name */
    RG_NODE_OPEN,  /* object a: after the brace; data: the keys that have been (object.h) */
    RG_NODE_NEXT,  /* object a: after a value */
    RG_NODE_KEY,   /* object a: within a key, at n of its tree */
    RG_NODE_WORD,  /* word a (dfa.h); data: its state and how many characters it has */
    RG_NODE_UNIQUE, /* array a whose items differ (dfa.h): after the bracket */
    RG_NODE_UNIQUE_ITEM, /* array a: within an item; data: the classes taken, the item's state and hash */
    RG_NODE_UNIQUE_NEXT, /* array a: after an item; data: the classes taken */
} rg_node_kind;

typedef struct rg_grammar_node {
    uint8_t kind;
    bool nullable, dead, done; /* may be nothing; cannot be at all; (refine's) */
    bool any_char, any_text;   /* of JSON strings: one whole character; all that may follow within one, and the quote */
    uint32_t a, n, min, max;
    uint32_t first; /* set of the bytes that it may begin with */
} rg_grammar_node;

enum { RG_END, RG_BASE, RG_EMPTY, RG_NEVER, RG_FIRST_FREE }; /* nodes that always are; NEVER is an ALT of none */

typedef struct rg_form {
    rg_grammar_node *node;
    uint32_t *kid;
    rg_set *set;
    uint32_t *set_index; /* hash -> set + 1 */
    char *text;
    struct rg_object *object; /* object.h */
    struct rg_dfa_word *word;     /* dfa.h, as is the next */
    struct rg_unique *unique;
    uint32_t n_nodes, n_kids, n_sets, n_text, n_objects, n_keys, n_words, n_uniques;
    uint32_t room_nodes, room_kids, room_sets, room_text, room_objects, room_words, room_uniques;
    size_t table_bytes;       /* of words and these arrays */
    uint32_t tail[16]; /* object.c's, shared by all objects; 0: not made yet */
    uint32_t root;
    bool open_objects; /* of schemas: objects may have properties that no keyword speaks of */
    int within; /* sources within a source */
    bool failed;
    rg_error *err; /* of the first failure */
} rg_form;

/* Ids on their way into a node. */
typedef struct rg_list {
    uint32_t *id;
    uint32_t n, room;
} rg_list;

bool rg_form_init(rg_form *f, rg_error *err); /* false: *err; fini is allowed */
void rg_form_fini(rg_form *f);
size_t rg_form_bytes(const rg_form *f); /* of memory, about */
void rg_form_fail(rg_form *f, rg_code code, const char *fmt, ...) RG_PRINTF(3, 4); /* the first one stays */

void rg_list_add(rg_form *f, rg_list *l, uint32_t id);
void rg_list_fini(rg_list *l);

uint32_t rg_form_node(rg_form *f, rg_grammar_node node);
uint32_t rg_form_set(rg_form *f, const rg_set *set);
uint32_t rg_form_range(rg_form *f, unsigned from, unsigned to);
uint32_t rg_form_lit(rg_form *f, const char *s, size_t n);
uint32_t rg_form_str(rg_form *f, const char *s);
uint32_t rg_form_seq(rg_form *f, const uint32_t *id, uint32_t n); /* adjacent literals become one */
uint32_t rg_form_alt(rg_form *f, const uint32_t *id, uint32_t n); /* many literals become a tree */
uint32_t rg_form_rep(rg_form *f, uint32_t body, uint32_t min, uint32_t max);
uint32_t rg_form_ref(rg_form *f, const char *name, size_t n); /* to nothing yet: bind it */
void rg_form_bind(rg_form *f, uint32_t ref, uint32_t target);
uint32_t rg_form_own_set(rg_form *f, const rg_set *set); /* the number of a set */
uint32_t rg_form_own_word(rg_form *f, struct rg_dfa_word *w);     /* taken, on failure too; its number */
uint32_t rg_form_own_unique(rg_form *f, struct rg_unique *u); /* likewise */
uint32_t rg_form_keep(rg_form *f, const char *s, size_t n); /* where in text */
uint32_t rg_form_slice(rg_form *f, const uint32_t *id, uint32_t n); /* where in kid */

#define RG_SEQ(f, ...) \
    rg_form_seq(f, (const uint32_t[]){ __VA_ARGS__ }, (uint32_t)RG_LEN(((const uint32_t[]){ __VA_ARGS__ })))
#define RG_ALT(f, ...) \
    rg_form_alt(f, (const uint32_t[]){ __VA_ARGS__ }, (uint32_t)RG_LEN(((const uint32_t[]){ __VA_ARGS__ })))

static inline uint32_t rg_form_opt(rg_form *f, uint32_t id)
{
    return RG_ALT(f, RG_EMPTY, id);
}

/* A rule for one of n texts.  They need not be sorted or different; the function sorts them. */
typedef struct rg_literal {
    const char *text;
    size_t n;
} rg_literal;
uint32_t rg_form_words(rg_form *f, rg_literal *word, uint32_t n);

/* From f->root; only bytes of `spelled` can come.  False, and f->err: nothing can match, or a rule is
 * left-recursive. */
bool rg_form_refine(rg_form *f, const rg_set *spelled);

#endif
