/* shown.h -- a vocabulary's spelling in which some special tokens show their text, as answers with marks have it.
 *
 * A copy of the tokenizer's spelling, made once; immutable from then on. */
#ifndef RG_API_SHOWN_H
#define RG_API_SHOWN_H

#include "base/spell.h"
#include "text/tokenizer.h"

typedef struct rg_shown {
    rg_spelling spelling; /* of it, kind, strip and flags as the tokenizer's; the tables are owned */
} rg_shown;

/* Ids [n] of special tokens.  Ids that are none, or that the tokenizer does not have, change nothing.  NULL and *err:
 * no memory. */
rg_shown *rg_shown_new(const rg_tokenizer *tokenizer, const int32_t *ids, size_t n, rg_error *err);
void rg_shown_free(rg_shown *s); /* NULL is fine */

#endif
