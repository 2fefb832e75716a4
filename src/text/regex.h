/* regex.h -- the regular expressions of tokenizers, run by PCRE2.
 *
 * Patterns come in the dialect of the library that tokenizer.json files are written for (Oniguruma, Ruby syntax) and
 * are rewritten where PCRE2 reads them otherwise.  Subjects are clean text (clean.h).  A compiled pattern may be used
 * by any thread; each brings its own rg_matcher.  A matcher has a limit, so a hostile pattern is an error and not a
 * hang. */
#ifndef RG_TEXT_REGEX_H
#define RG_TEXT_REGEX_H

#include "base/error.h"

typedef struct rg_regex rg_regex;

rg_regex *rg_regex_new(const char *pattern, size_t n, rg_error *err);
rg_regex *rg_regex_literal(const char *text, size_t n, rg_error *err); /* n > 0 */
void rg_regex_free(rg_regex *r);                                       /* NULL is fine */

typedef struct rg_matcher rg_matcher;

/* For texts of n bytes in all; the steps of its matches may grow in proportion to n. */
rg_matcher *rg_matcher_new(size_t n, rg_error *err);
void rg_matcher_free(rg_matcher *m);             /* NULL is fine */
uint64_t rg_matcher_calls(const rg_matcher *m); /* how often PCRE2 was called so far */

typedef struct rg_extent {
    size_t from, to;
} rg_extent;

enum { RG_ROUND = 4 };

/* A walk over the matches in a text, zeroed at its start. */
typedef struct rg_walk {
    size_t at;   /* where to look on */
    size_t done; /* where the last match ended */
    bool matched;
    size_t end[RG_ROUND]; /* where the matches before that one ended, the latest first */
    /* Where a text repeats itself, with a period of bytes, matches repeat too: those of one period are kept, and each
     * is given again, moved by the period, without a search. */
    rg_extent round[RG_ROUND];
    int n_round, turn;    /* how many are kept, and which comes next */
    size_t period, until; /* until: where the text stops repeating itself */
    size_t barren;        /* up to here no period was found */
} rg_walk;

/* The next match in text[0, n); nothing right after a match is none.  1: *found; 0: no more; -1: *err. */
int rg_regex_next(const rg_regex *r, rg_matcher *m, const char *text, size_t n, rg_walk *walk, rg_extent *found,
                  rg_error *err);

#endif
