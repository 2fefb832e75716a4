/* postprocess.h -- the ids that a tokenizer puts around a text, and around a pair of texts.
 *
 * Post-processors come one after another, and each sees what the one before it made: a list of parts.  One part is
 * the text, or two are the texts of a pair.  Every item has a token type, 0 or 1. */
#ifndef RG_TEXT_POSTPROCESS_H
#define RG_TEXT_POSTPROCESS_H

#include "text/tokenizer.h"

enum {
    RG_AROUND_CAP = 128,
    RG_AROUND_TEXT = -1,
    RG_AROUND_NEXT = -2,   /* where the next part begins */
    RG_AROUND_SECOND = -3, /* the second text of a pair */
};

typedef struct rg_around {
    int32_t item[RG_AROUND_CAP]; /* ids; the texts; where the next part begins */
    uint8_t type[RG_AROUND_CAP];
    int n;
    const int32_t *before, *after;
    int n_before, n_after;       /* once sealed, of a text alone */
} rg_around;

bool rg_around_add(rg_around *a, int32_t item, int type, rg_error *err);
/* first and last around the first part; front (RG_AROUND_NEXT: nothing) and last around each of the others, of their
 * types; where there is a front all types become 0. */
bool rg_around_wrap(rg_around *a, int32_t first, int32_t last, int32_t front, rg_error *err);
void rg_around_seal(rg_around *a); /* a stays where it is from now on */
/* What a text alone, or a pair of texts, is before any post-processor. */
void rg_around_begin(rg_around *a);
void rg_around_begin_pair(rg_around *a);
/* Without the marks of parts. */
void rg_around_join(rg_around *a);

#endif
