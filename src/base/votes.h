/* votes.h -- which of several texts most agree on (self-consistency, Wang et al. 2022).
 *
 * Texts agree that are the same in any case, without blanks and full stops around them. */
#ifndef RG_BASE_VOTES_H
#define RG_BASE_VOTES_H

#include <stdint.h>

#include "base/buf.h"

/* What of a text counts: what follows the last `after` in it, or all (NULL, empty, or it does not occur), without what
 * may stand around it.  Borrowed from the text. */
rg_string rg_vote_text(rg_string text, const char *after);

/* Sets votes[i], i < n: how many of the n texts are equal to the i-th, if it is the first of these; else 0. */
void rg_votes_count(const rg_string *text, int32_t n, int32_t *votes);

#endif
