/* pretok.h -- how a stretch of normalised text is cut into the words that the model sees: steps, one after another.
 *
 * Every published splitter is one of four steps: cut at a pattern, put a space in front, write spaces as another
 * character, write bytes as characters.  Text is clean (clean.h) before and after. */
#ifndef RG_TEXT_PRETOK_H
#define RG_TEXT_PRETOK_H

#include "base/buf.h"
#include "text/regex.h"

typedef enum rg_pretok_kind {
    RG_PRETOK_SPLIT, /* at pattern, as behavior says */
    RG_PRETOK_SPACE, /* a space in front of every word that does not start with one */
    RG_PRETOK_META,  /* spaces become text; it is put in front as scheme says; cut at pattern if any */
    RG_PRETOK_BYTES, /* bytelevel.h */
} rg_pretok_kind;

typedef enum rg_behavior {
    RG_SPLIT_ISOLATED,
    RG_SPLIT_REMOVED,
    RG_SPLIT_MERGED_WITH_PREVIOUS,
    RG_SPLIT_MERGED_WITH_NEXT,
    RG_SPLIT_CONTIGUOUS
} rg_behavior;

typedef enum rg_scheme { RG_PREPEND_ALWAYS, RG_PREPEND_FIRST, RG_PREPEND_NEVER } rg_scheme;

typedef struct rg_pretok_step {
    rg_pretok_kind kind;
    rg_behavior behavior;
    bool invert; /* what lies between the matches counts as the matches */
    rg_scheme scheme;
    char text[5]; /* of RG_PRETOK_META: one character */
    rg_regex *pattern;
} rg_pretok_step;

enum { RG_PRETOK_STEPS = 32 };

typedef struct rg_pretok {
    rg_pretok_step steps[RG_PRETOK_STEPS];
    int n;
} rg_pretok;

void rg_pretok_fini(rg_pretok *p);
bool rg_pretok_add(rg_pretok *p, rg_pretok_step step, rg_error *err); /* takes the pattern over; false frees it */
bool rg_pretok_split(rg_pretok *p, const char *regex, rg_behavior behavior, bool invert, rg_error *err);
/* As ByteLevel is published: the pattern (unless left out) and the bytes. */
bool rg_pretok_byte_level(rg_pretok *p, bool prefix_space, bool use_regex, rg_error *err);

/* The steps that GGUF knows by a name ("llama-bpe"); false for a name that ridge does not know.  *ignore_merges: a word
 * that is a piece is that piece. */
bool rg_pretok_named(rg_pretok *p, const char *name, bool *ignore_merges, rg_error *err);

/* Words, as spans of a text. */
typedef struct rg_word {
    size_t from, to;
    bool first; /* the beginning of the whole text */
} rg_word;

typedef struct rg_words {
    const char *text; /* the caller's, or one of own's */
    rg_buf own[2];
    rg_word *word;
    size_t n, room;
    rg_word *spare; /* the list that a step makes */
    size_t n_spare, spare_room;
    int turn;
} rg_words;

void rg_words_fini(rg_words *w);

/* Cut text[0, n); the result is in w until the next call. */
bool rg_pretok_cut(const rg_pretok *p, rg_matcher *m, const char *text, size_t n, bool first, rg_words *w,
                   rg_error *err);

#endif
