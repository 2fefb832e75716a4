/* contents.h -- numbers for the rows that prompts are given, so that a prompt is a list of numbers throughout.
 *
 * Where a prompt has no id but a given row, its list of ids has a number below -1 (RG_GIVEN: none yet).  Rows of equal
 * content (by its hash and its number of rows) have equal numbers, each row its own; other contents have others.  So
 * whatever compares ids to find a prefix, exactly, finds given rows as well, cut anywhere.
 *
 * A bounded table knows the numbers of the contents that came lately.  A content that it has forgotten gets new
 * numbers, and is then not found: never the wrong one.  Numbers are not used again, until all of them were; then a new
 * era begins, whose prefixes are apart from those of the eras before, by their salt.  Not thread-safe: the engine's
 * thread calls it. */
#ifndef RG_ENGINE_CONTENTS_H
#define RG_ENGINE_CONTENTS_H

#include "base/error.h"

enum { RG_GIVEN = -1 };

/* True if something is an id, and not a given row's number. */
static inline bool rg_is_id(int32_t id)
{
    return id >= 0;
}

typedef struct rg_content { /* its k-th row has the number first - k */
    uint8_t hash[16];
    int32_t n, first;       /* n 0: the place is free */
    uint64_t used;
} rg_content;

typedef struct rg_contents {
    rg_content *all;        /* [n_sets][RG_CONTENT_WAYS] */
    size_t n_sets;          /* a power of two */
    uint64_t seed, clock;
    int32_t next;           /* the first number that was not used in this era */
    uint64_t era;           /* from 0 */
} rg_contents;

enum { RG_CONTENT_WAYS = 4 };

/* Room for at least so many contents, up to some thousand. */
bool rg_contents_init(rg_contents *c, int64_t room, rg_error *err);
void rg_contents_fini(rg_contents *c);

/* Put the numbers of given [n] into a prompt, at their positions.  Returns what the salt of its prefixes is to be
 * combined with (exclusive or): 0 in the first era. */
uint64_t rg_contents_number(rg_contents *c, const rg_given_rows *given, int32_t n, int32_t *prompt);

/* The row at a position of a prompt, of dim numbers; NULL: none is given there. */
const float *rg_given_row(const rg_given_rows *given, int32_t n, int32_t dim, int32_t position);

#endif
