/* spell.h -- ids to text, one by one as they come; in the end the text is the same as if all were decoded at once.
 *
 * The text of an id may depend on its place: the first may lose a space and the last the end of a word, equal
 * neighbours may count once, and pieces that stand for bytes show only in a run that is UTF-8 as a whole.  A spelling
 * has these rules as tables.  A speller walks along the ids, which the caller keeps, and gives the text that is certain
 * so far.  It owns no memory, and a copy of it is independent.  Knows no tokenizer. */
#ifndef RG_BASE_SPELL_H
#define RG_BASE_SPELL_H

#include "base/buf.h"

enum { RG_SPELL_FIRST = 1, RG_SPELL_LAST = 2, RG_SPELL_PLACES = 4 }; /* where an id stands: 0 in the middle */

typedef enum rg_spell_kind {
    RG_SPELL_COUNTS = 1, /* it is a piece of text; special tokens are not */
    RG_SPELL_SHOWS = 2,  /* and it has text, so that it can be the first or the last */
    RG_SPELL_BYTE = 4,   /* it stands for one byte, which is its text */
} rg_spell_kind;

enum { RG_SPELL_RUN = 1024 }; /* most bytes that are held back: if a longer run breaks, what it has shown stays */

typedef struct rg_spelling {
    struct {
        const char *data;
        const uint32_t *offset; /* [n + 1]; id's bytes are data[offset[id], offset[id + 1]) */
    } at[RG_SPELL_PLACES];      /* by place; without offsets the text is that of the middle */
    const uint8_t *kind;        /* [n] of rg_spell_kind; NULL: every id with text counts and shows */
    int32_t n;                  /* 0: no tokenizer; other ids show nothing */
    bool collapses;             /* equal neighbours are one */
    rg_string strip;            /* removed from the start of the text, at most so many times */
    int32_t n_strip;
} rg_spelling;

typedef struct rg_speller {
    int32_t next;         /* the id that is looked at next */
    int32_t run, run_end; /* a run of bytes: where it begins, or -1; and its end once it is given out */
    int32_t held, last;   /* an id that may be the last, and the one before; -1: none */
    int32_t n_strip;      /* how often strip may still be removed from the start */
    size_t stripped;      /* bytes of it that were met so far */
    rg_string rest;       /* of a piece of text whose beginning was given out */
    char part[4];         /* of a character within a run */
    uint8_t n_part;
    bool begun, held_first;
    bool broken, over; /* the run is not UTF-8; the run has ended */
} rg_speller;

/* goes_on: the text has begun already. */
rg_speller rg_speller_begin(const rg_spelling *z, bool goes_on);

/* The next piece of the text of ids [0, n), where n grows from call to call; ended: no more ids will come.  False:
 * nothing more is certain yet. */
bool rg_speller_next(const rg_spelling *z, rg_speller *s, const int32_t *ids, int32_t n, bool ended, rg_string *out);

/* The number of ids held back that would show text if no id came after them; 0 within a character. */
int32_t rg_speller_waiting(const rg_speller *s);

bool rg_spelling_shows(const rg_spelling *z, int32_t id); /* an id shows something, in the middle of a text */
rg_string rg_spelling_bytes(const rg_spelling *z, int32_t id); /* what an id below n shows there; valid as long as z */
size_t rg_spelling_room(const rg_spelling *z);            /* most bytes that one more id can make certain */

#endif
