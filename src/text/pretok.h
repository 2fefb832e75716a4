/* pretok.h -- how a stretch of normalised text is cut into the words that the model sees: steps, one after another.
 *
 * Every published splitter is made of a few steps: cut at a pattern or at a class of characters, put a space in front,
 * write spaces as another character, write bytes as characters.  Text is clean (clean.h) before and after. */
#ifndef RG_TEXT_PRETOK_H
#define RG_TEXT_PRETOK_H

#include "text/passage.h"
#include "text/regex.h"

typedef enum rg_pretok_kind {
    RG_PRETOK_SPLIT,   /* at pattern, or where class says so, as behavior says */
    RG_PRETOK_SPACE,   /* a space in front of every word that does not start with one */
    RG_PRETOK_META,    /* spaces become text; it is put in front as scheme says; cut at pattern if there is one */
    RG_PRETOK_BYTES,   /* bytelevel.h */
    RG_PRETOK_SCRIPTS, /* where the script changes */
    RG_PRETOK_FIXED,   /* into length characters each */
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
    rg_regex *pattern;
    bool (*class)(uint32_t code); /* NULL: the pattern */
    rg_scheme scheme;
    char text[5]; /* of RG_PRETOK_META: one character */
    size_t length;
} rg_pretok_step;

enum { RG_PRETOK_STEPS = 64 };

typedef struct rg_pretok {
    rg_pretok_step *steps;
    int n;
} rg_pretok;

void rg_pretok_fini(rg_pretok *p);
bool rg_pretok_add(rg_pretok *p, rg_pretok_step step, rg_error *err); /* takes the pattern over; false frees it */
bool rg_pretok_class(rg_pretok *p, bool (*class)(uint32_t code), rg_behavior behavior, rg_error *err);
bool rg_pretok_split(rg_pretok *p, const char *regex, rg_behavior behavior, bool invert, rg_error *err);
/* As ByteLevel is published: the pattern (unless left out) and the bytes. */
bool rg_pretok_byte_level(rg_pretok *p, bool prefix_space, bool use_regex, rg_error *err);

/* The steps that GGUF knows by a name ("llama-bpe"), and what else the name says; false for a name that ridge does not
 * know. */
enum {
    RG_PRE_IGNORE_MERGES = 1, /* a word that is a piece is that piece */
    RG_PRE_ADD_BOS = 2,       /* the text begins with BOS unless the file says otherwise */
    RG_PRE_CHARS = 4,         /* pieces are characters, spaces are U+2581, and what is unknown is bytes */
};
bool rg_pretok_named(rg_pretok *p, const char *name, unsigned *flags, rg_error *err);

/* A word in a passage, and how often it stands there, one right after another. */
typedef struct rg_word {
    uint32_t from, to, times;
} rg_word;

typedef struct rg_words {
    rg_passage passage; /* the caller's, or one of own's */
    rg_draft own[2];
    rg_word *word; /* [n]; of a passage with marks each stands by itself */
    size_t n, room;
    rg_word *spare; /* the list that a step makes */
    size_t n_spare, spare_room;
    int turn;
    bool bytes; /* the words' bytes are still to be written as characters: rg_pretok_bytes */
} rg_words;

void rg_words_fini(rg_words *w);

/* Cut a passage; the result is in w until the next call. */
bool rg_pretok_cut(const rg_pretok *p, rg_matcher *m, const rg_passage *passage, rg_words *w, rg_error *err);

/* The characters that stand for the bytes of s[0, n), which is clean, into out, which has room for 2 n. */
size_t rg_pretok_bytes(const char *s, size_t n, char *out);

#endif
