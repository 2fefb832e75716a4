/* normalize.h -- what a tokenizer does to a stretch of text before splitting it: steps, one after another.
 *
 * Text is clean (clean.h) before and after.  Cost is linear in the text; the steps may make it longer within a
 * bound. */
#ifndef RG_TEXT_NORMALIZE_H
#define RG_TEXT_NORMALIZE_H

#include "text/charsmap.h"
#include "text/passage.h"
#include "text/regex.h"

typedef enum rg_norm_kind {
    RG_NORM_NFC,
    RG_NORM_NFD,
    RG_NORM_NFKC,
    RG_NORM_NFKD,
    RG_NORM_STRIP_MARKS,      /* combining marks of every kind are left out */
    RG_NORM_STRIP_NONSPACING, /* those that take no room */
    RG_NORM_LOWERCASE,
    RG_NORM_NMT,        /* control characters are left out, odd spaces become a space */
    RG_NORM_BERT_CLEAN, /* the same as BERT does it */
    RG_NORM_IDEOGRAPHS, /* Chinese characters get spaces around them */
    RG_NORM_BYTES,      /* bytelevel.h */
    RG_NORM_CHARSMAP,   /* map, for clusters and characters, as the tokenizers library reads it */
    RG_NORM_CHARSMAP_LONGEST, /* map, as SentencePiece reads it */
    RG_NORM_SQUEEZE, /* spaces at the ends are left out, runs of them become one */
    RG_NORM_PREPEND, /* text, unless there is nothing */
    RG_NORM_REPLACE, /* what matches, by text */
    RG_NORM_STRIP,   /* white space at the ends */
} rg_norm_kind;

typedef struct rg_norm_step {
    rg_norm_kind kind;
    rg_regex *pattern;
    rg_charsmap *map;
    char *text;
    size_t n_text;
    bool left, right;
} rg_norm_step;

enum { RG_NORM_STEPS = 64 };

typedef struct rg_normalizer {
    rg_norm_step *steps;
    int n;
    bool inserts; /* it can write characters that come from no character of the text */
} rg_normalizer;

void rg_normalizer_fini(rg_normalizer *z);

/* One more step, taking over its pattern and its map and copying its text; false frees them. */
bool rg_normalizer_add(rg_normalizer *z, rg_norm_step step, rg_error *err);

/* *p: the input, and then the result, which lies in the input or in one of the two drafts.  Those are the caller's, and
 * stay so. */
bool rg_normalize(const rg_normalizer *z, rg_matcher *m, rg_draft two[2], rg_passage *p, rg_error *err);

#endif
