/* postprocess.h -- the ids that a tokenizer puts around a text.
 *
 * Post-processors come one after another, and each sees what the one before it made: a list of parts, one of which
 * is the text. */
#ifndef RG_TEXT_POSTPROCESS_H
#define RG_TEXT_POSTPROCESS_H

#include "text/tokenizer.h"

enum { RG_AROUND_CAP = 128, RG_AROUND_TEXT = -1, RG_AROUND_NEXT = -2 };

typedef struct rg_around {
    int32_t item[RG_AROUND_CAP]; /* ids; the text; where the next part begins */
    int n;                       /* 0: the text alone */
    const int32_t *before, *after;
    int n_before, n_after;       /* once sealed */
} rg_around;

bool rg_around_add(rg_around *a, int32_t item, rg_error *err);
/* first and last around the first part; front (RG_AROUND_NEXT: nothing) and last around each of the others. */
bool rg_around_wrap(rg_around *a, int32_t first, int32_t last, int32_t front, rg_error *err);
void rg_around_seal(rg_around *a); /* a stays where it is from now on */

#endif
