/* spell.h -- ids to text as they come, one by one: in the end the same text as that of all of them at once.
 *
 * What an id shows may depend on its place: the first may lose a space and the last a word's end, neighbours that are
 * equal may be one, and pieces that stand for bytes show them only in a run that is UTF-8 as a whole.  A spelling says
 * so in tables; a speller walks along the ids, which somebody else keeps, and gives what is certain by now.  It has no
 * memory of its own to free, and a copy of it goes its own way.  Knows no tokenizer. */
#ifndef RG_BASE_SPELL_H
#define RG_BASE_SPELL_H

#include "base/buf.h"

enum { RG_SPELL_FIRST = 1, RG_SPELL_LAST = 2, RG_SPELL_PLACES = 4 }; /* where an id stands: 0 in the middle */

typedef enum rg_spell_kind {
    RG_SPELL_COUNTS = 1, /* it is one of the text's pieces; special tokens are none */
    RG_SPELL_SHOWS = 2,  /* and one of those by which places are told */
    RG_SPELL_BYTE = 4,   /* and stands for one byte, which is its text */
} rg_spell_kind;

enum { RG_SPELL_RUN = 1024 }; /* bytes that are held back at most: a run that breaks later keeps what it has shown */

typedef struct rg_spelling {
    struct {
        const char *data;
        const uint32_t *offset; /* [n + 1]; id's bytes are data[offset[id], offset[id + 1]) */
    } at[RG_SPELL_PLACES];      /* by place; without offsets: no different */
    const uint8_t *kind;        /* [n] of rg_spell_kind; NULL: what has bytes counts and shows */
    int32_t n;                  /* 0: no tokenizer; other ids show nothing */
    bool collapses;             /* equal neighbours are one */
    rg_string strip;            /* taken from the start of the text, up to so many times */
    int32_t n_strip;
} rg_spelling;

typedef struct rg_speller {
    int32_t next;         /* the id that is looked at next */
    int32_t run, run_end; /* a run of bytes: from, or -1; and its end once it is given out */
    int32_t held, last;   /* an id that may be the last, and the one before; -1: none */
    int32_t n_strip;      /* how often something may still be taken from the start */
    size_t stripped;      /* bytes of it that were met so far */
    rg_string rest;       /* of a stretch whose beginning was given out */
    char part[4];         /* of a character within a run */
    uint8_t n_part;
    bool begun, held_first;
    bool broken, over; /* the run is no UTF-8; it has ended */
} rg_speller;

/* goes_on: the text has begun already. */
rg_speller rg_speller_begin(const rg_spelling *z, bool goes_on);

/* The next stretch of what ids [0, n) show, of which there are more from call to call; ended: no more will come.
 * False: nothing more is certain yet. */
bool rg_speller_next(const rg_spelling *z, rg_speller *s, const int32_t *ids, int32_t n, bool ended, rg_string *out);

/* How many ids wait that would show something if none came after them; 0 in the midst of a character. */
int32_t rg_speller_waiting(const rg_speller *s);

bool rg_spelling_shows(const rg_spelling *z, int32_t id); /* an id shows something, in the middle of a text */
size_t rg_spelling_room(const rg_spelling *z);            /* bytes that one id more can make certain, at most */

#endif
