/* normalize.h -- what a tokenizer does to a stretch of text before splitting it: steps, one after another.
 *
 * Text is clean (clean.h) before and after.  Cost is linear in the text; a step may make it longer within a bound. */
#ifndef RG_TEXT_NORMALIZE_H
#define RG_TEXT_NORMALIZE_H

#include "base/buf.h"
#include "ckpt/checkpoint.h"
#include "text/regex.h"

typedef enum rg_norm_kind {
    RG_NORM_NFC,
    RG_NORM_NFD,
    RG_NORM_NFKC,
    RG_NORM_NFKD,
    RG_NORM_LOWERCASE,
    RG_NORM_PREPEND, /* text, unless there is nothing */
    RG_NORM_REPLACE, /* what matches, by text */
    RG_NORM_STRIP,   /* white space at the ends */
} rg_norm_kind;

typedef struct rg_norm_step {
    rg_norm_kind kind;
    rg_regex *pattern;
    char *text;
    size_t n_text;
    bool left, right;
} rg_norm_step;

enum { RG_NORM_STEPS = 32 };

typedef struct rg_normalizer {
    rg_norm_step steps[RG_NORM_STEPS];
    int n;
} rg_normalizer;

void rg_normalizer_fini(rg_normalizer *z);

/* One more step, taking over its pattern and copying its text; false frees the pattern. */
bool rg_normalizer_add(rg_normalizer *z, rg_norm_step step, rg_error *err);

/* *text, *n: the input, and then the result, which lies in the input or in one of the two buffers.  The buffers are the
 * caller's, and stay so.  *first: made false if what the text began with is gone. */
bool rg_normalize(const rg_normalizer *z, rg_matcher *m, rg_buf two[2], const char **text, size_t *n, bool *first,
                  rg_error *err);

/* Every match of pattern in text replaced; appended to out. */
bool rg_replace(const rg_regex *pattern, rg_matcher *m, rg_string text, rg_string by, rg_buf *out, rg_error *err);

#endif
