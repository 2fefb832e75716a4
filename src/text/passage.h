/* passage.h -- a stretch of clean text on its way through the tokenizer: which of its bytes are foreign, and whether it
 * starts where the whole text starts.
 *
 * A text of one provenance is told so once; only a text of several carries marks for every byte.  A draft is a passage
 * that is being written from another one: whatever a character becomes is as foreign as the character was. */
#ifndef RG_TEXT_PASSAGE_H
#define RG_TEXT_PASSAGE_H

#include "base/buf.h"

enum {
    RG_FOREIGN = 1, /* the byte came from foreign text */
    RG_GONE = 2,    /* foreign text before it was removed */
};

typedef struct rg_passage {
    const char *text;
    size_t n;
    const char *marks; /* [n]; NULL: all bytes are as `foreign` says */
    bool foreign;
    size_t head; /* so many bytes came of the whole text's first character; 0: it starts elsewhere */
} rg_passage;

rg_passage rg_passage_part(const rg_passage *p, size_t from, size_t to);
/* True if a byte of [from, to) is foreign, or foreign text between two of them was removed. */
bool rg_passage_foreign(const rg_passage *p, size_t from, size_t to);

typedef struct rg_draft {
    rg_buf text, marks;
    bool marked, foreign;     /* has marks; if not, what all of it is */
    bool dropped;             /* a foreign character was dropped just now */
    size_t head, source_head; /* its own, and that of the passage it is written from */
} rg_draft;

void rg_draft_fini(rg_draft *d);

/* Empty again, to be written from p, with room for cap bytes. */
void rg_draft_begin(rg_draft *d, const rg_passage *p, size_t cap);
/* Append; what does not fit or has no memory shows in rg_draft_ok.  from: the place in p that it came from. */
void rg_draft_put(rg_draft *d, const char *s, size_t n, size_t from, bool foreign);
void rg_draft_copy(rg_draft *d, const rg_passage *p, size_t from, size_t to);
void rg_draft_drop(rg_draft *d, bool foreign); /* a character is left out */
bool rg_draft_ok(const rg_draft *d);
rg_passage rg_draft_passage(const rg_draft *d); /* valid until the draft changes */

#endif
