/* dfa.h -- regular languages over bytes as tables, for what nodes in a row cannot say: that a text matches two patterns
 * at once, has so many characters besides, or is none of the items that came before it.
 *
 * A table is made by running the matcher over a form whose stacks never grow without end; tables are then put together
 * state by state.  In a table that is made, every state can reach an end.  Failures are kept in the form that a table
 * is for.  A word (of characters as strings of JSON have them, quotes excluded) and an array of different items are
 * nodes that carry their state in a frame's data. */
#ifndef RG_GRAMMAR_DFA_H
#define RG_GRAMMAR_DFA_H

#include "grammar/form.h"

enum {
    RG_DFA_STATES = 1 << 13,
    RG_DFA_DEAD = UINT16_MAX,
    RG_DFA_BEGINS = 0xfe, /* bytes that no text has */
    RG_DFA_ENDED = 0xff,
    RG_WORD_CHARS = 1 << 12, /* a longer maximum of a word is lowered to this */
    RG_UNIQUE_ITEMS = 37,    /* the most items of an array whose items differ: a prime, see rg_unique_hash */
};

typedef struct rg_dfa {
    uint32_t n, n_classes; /* state 0 is the start; no states: nothing matches */
    uint8_t class[256];
    uint16_t *next; /* [n][n_classes] */
    uint8_t *ends;  /* [n] of rg_dfa_end */
} rg_dfa;

typedef enum rg_dfa_end {
    RG_DFA_ENDS = 1,  /* a text may end here */
    RG_DFA_WHOLE = 2, /* of a product: the second language's text may */
} rg_dfa_end;

static inline uint16_t rg_dfa_next(const rg_dfa *d, uint16_t state, uint8_t byte)
{
    return d->next[state * d->n_classes + d->class[byte]];
}

/* All give false and a failure of f, or *out, which is the caller's. */
/* Make the automaton of the root.  anchored: any number of RG_DFA_BEGINS may stand before a text, and RG_DFA_ENDED
 * after it; they are no part of it. */
bool rg_dfa_of(rg_form *f, const rg_form *refined, bool anchored, rg_dfa *out);
/* What is in both, or in a and not in b.  a and b stay. */
bool rg_dfa_both(rg_form *f, const rg_dfa *a, const rg_dfa *b, bool not_b, rg_dfa *out);
bool rg_dfa_chars(rg_form *f, rg_dfa *out);                      /* any characters as a string of JSON writes them */
bool rg_dfa_multiples(rg_form *f, uint32_t of, rg_dfa *out);     /* of decimal whole numbers, with or without a sign */
bool rg_dfa_copy(rg_form *f, const rg_dfa *d, rg_dfa *out);
void rg_dfa_unquote(rg_dfa *d);                                  /* texts in quotes become what is between the quotes */
void rg_dfa_fini(rg_dfa *d);

/* ---- words ------------------------------------------------------------------------------------------------------- */

typedef struct rg_dfa_word {
    rg_dfa d;
    uint32_t min, max; /* characters; max may be RG_FOREVER */
    uint32_t n_bits;   /* of each state; 0: characters are not counted */
    uint64_t *fits;    /* [n][bits in 64s] so many more characters are possible: exactly, or without a max at least */
} rg_dfa_word;

/* The node of a text of d, which is taken on success and failure, with min to max characters.  A count of characters
 * needs a d that came of rg_dfa_both with rg_dfa_chars. */
uint32_t rg_dfa_word_node(rg_form *f, rg_dfa *d, uint32_t min, uint32_t max);
void rg_dfa_word_fini(rg_dfa_word *w);

/* step: a frame's data (0 at first) after one byte more; UINT64_MAX: it cannot come.  done: the word may end here. */
uint64_t rg_dfa_word_step(const rg_dfa_word *w, uint64_t data, uint8_t byte);
bool rg_dfa_word_done(const rg_dfa_word *w, uint64_t data);

/* ---- arrays whose items differ ----------------------------------------------------------------------------------- */

/* Each item belongs to one of RG_UNIQUE_ITEMS classes: by its number if there are so few, else by a hash of its text.
 * No two items of an array have the same class, so that no two are equal; items are written in one way only.  An item
 * is gone on with only where it can end in a class that is free. */
typedef struct rg_unique {
    rg_dfa d;
    int8_t *number;      /* [n] the class of an item that ends in this state; NULL: by hash */
    uint64_t *reach;     /* [n][RG_UNIQUE_ITEMS] by state and hash: classes in which an item can end */
    uint32_t min, max, space;
    uint32_t item, next; /* nodes: within an item, and after one */
    uint32_t edges;      /* slice of these and space */
} rg_unique;

enum { RG_UNIQUE_EDGES = 3 };

/* The node of all after the bracket and its space.  d is taken as above.  NEVER without a failure if it cannot be: too
 * many states for what must be found beforehand, or fewer classes than min. */
uint32_t rg_unique_node(rg_form *f, rg_dfa *d, uint32_t min, uint32_t max, uint32_t space);
void rg_unique_fini(rg_unique *u);

/* A frame's data: the classes taken, and within an item its state and hash. */
#define RG_UNIQUE_TAKEN(data) ((data) & ((1ULL << 40) - 1))
uint64_t rg_unique_step(const rg_unique *u, uint64_t data, uint8_t byte); /* UINT64_MAX: it cannot come */
bool rg_unique_done(const rg_unique *u, uint64_t data, uint64_t *taken);  /* the item may end: the classes taken then */
bool rg_unique_may_go_on(const rg_unique *u, uint64_t taken);             /* another item can come */
bool rg_unique_may_close(const rg_unique *u, uint64_t taken);

#endif
