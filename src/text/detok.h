/* detok.h -- pieces back to text: steps over the list of a text's pieces, one after another. */
#ifndef RG_TEXT_DETOK_H
#define RG_TEXT_DETOK_H

#include "base/spell.h"
#include "text/pretok.h"
#include "text/vocab.h"

typedef enum rg_detok_kind {
    RG_DETOK_BYTE_LEVEL,    /* characters that stand for bytes become them (bytelevel.h); all pieces become one */
    RG_DETOK_META,          /* text becomes a space, or nothing in the first piece unless the scheme is never */
    RG_DETOK_BYTE_FALLBACK, /* "<0xNN>" pieces become bytes where they make characters */
    RG_DETOK_FUSE,          /* all pieces become one */
    RG_DETOK_REPLACE,       /* what matches, by text */
    RG_DETOK_STRIP,         /* up to start and stop times text, at the ends of every piece */
    RG_DETOK_WORDPIECE,     /* a space before every piece but the first, or instead of it the prefix text taken away */
    RG_DETOK_SUFFIX,        /* text becomes a space, in the last piece nothing */
    RG_DETOK_CTC,           /* equal neighbours are one; text becomes nothing, more a space; what is empty goes */
} rg_detok_kind;

typedef struct rg_detok_step {
    rg_detok_kind kind;
    rg_regex *pattern;
    char *text, *more;
    size_t n_text, n_more;
    rg_scheme scheme;
    int start, stop;
    bool cleanup; /* spaces that English does not have are taken out */
} rg_detok_step;

enum { RG_DETOK_STEPS = 64 };

typedef struct rg_detok {
    rg_detok_step *steps;
    int n; /* 0: pieces with a space between them */
} rg_detok;

void rg_detok_fini(rg_detok *d);
/* One more step, taking over its pattern and copying its texts; false frees the pattern. */
bool rg_detok_add(rg_detok *d, rg_detok_step step, rg_error *err);

/* The pieces of a text, packed. */
typedef struct rg_parts {
    rg_buf text;
    size_t *end; /* [n]: of each part */
    size_t n, room;
} rg_parts;

void rg_parts_fini(rg_parts *p);
bool rg_parts_add(rg_parts *p, const char *s, size_t n, rg_error *err);

/* The text of the parts, appended to out as UTF-8; uses the parts up. */
bool rg_detok_text(const rg_detok *d, rg_parts *parts, rg_buf *out, rg_error *err);

/* One piece of a text in the making. */
typedef struct rg_spoken {
    rg_string piece;
    unsigned place; /* where it stands among those that show, of RG_SPELL_FIRST and RG_SPELL_LAST */
    unsigned kind;  /* what it turned out to be, of rg_spell_kind */
} rg_spoken;

/* The bytes that it shows, appended to out. */
bool rg_detok_piece(const rg_detok *d, rg_matcher *m, rg_spoken *p, rg_buf *out, rg_error *err);
/* The rest of the spelling: at which places the text of an id differs, and what is removed from the start of the whole
 * text. */
unsigned rg_detok_spelling(const rg_detok *d, rg_spelling *z);
/* True if decoding piece by piece gives the text of all pieces.  False for steps that look at the text as a whole,
 * which no published tokenizer has. */
bool rg_detok_streams(const rg_detok *d);

#endif
