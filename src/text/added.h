/* added.h -- tokens that are matched literally, and cut out of a text before anything else.
 *
 * Leftmost-longest, without overlap.  The tokens lie sorted, and a range of sorted strings that share a prefix is the
 * node of a trie: looking at one more byte narrows the range.  One walk is at most RG_ADDED_BYTES long and the first
 * byte decides almost always, so the search is linear in the text.  Knows no vocabulary but the ids it was given. */
#ifndef RG_TEXT_ADDED_H
#define RG_TEXT_ADDED_H

#include "text/passage.h"

enum { RG_ADDED_BYTES = 1024 };

typedef struct rg_added {
    int32_t id;
    char *text; /* as it stands in the text; the set has copies of its own */
    size_t n;
    bool special;        /* foreign text cannot produce it */
    bool normalized;     /* matched after normalising, in its own normalised form */
    bool lstrip, rstrip; /* also consumes the white space before, after it */
    bool single_word;    /* only where no word character is beside it */
} rg_added;

/* Tokens by text: one set of those looked for in the text as it came, one for after normalising. */
typedef struct rg_added_set {
    rg_added *tokens; /* sorted by text once sealed */
    size_t n, room;
    uint32_t first[257]; /* tokens whose first byte is b are [first[b], first[b + 1]) */
    size_t max_bytes, n_special;
} rg_added_set;

void rg_added_fini(rg_added_set *s);
bool rg_added_add(rg_added_set *s, const rg_added *token, rg_error *err); /* refuses empty and too long ones */
void rg_added_seal(rg_added_set *s); /* before the first search; of equal texts the first added stays */

typedef struct rg_found {
    size_t from, to; /* white space that it takes included */
    const rg_added *token;
} rg_found;

/* A search of one text, zeroed at its start. */
typedef struct rg_search {
    size_t at;    /* where to look on */
    size_t taken; /* the last match ends here; a token within its white space may still match */
    size_t white_from, white_to; /* the last run of white space that was looked at, so that it is walked once */
} rg_search;

/* The next token in p.  False: none.  Special tokens are found only where nothing is foreign. */
bool rg_added_next(const rg_added_set *s, const rg_passage *p, rg_search *search, rg_found *found);

#endif
