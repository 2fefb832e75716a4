/* charsmap.h -- SentencePiece's precompiled character maps: a double-array trie of byte strings and what they become.
 *
 * The bytes are not trusted: every step of a walk is checked against the array. */
#ifndef RG_TEXT_CHARSMAP_H
#define RG_TEXT_CHARSMAP_H

#include "ckpt/checkpoint.h"

typedef struct rg_charsmap {
    uint32_t *unit; /* the trie */
    size_t n_units;
    char *text; /* what the strings become, each ended by a NUL */
    size_t n_text;
} rg_charsmap;

/* From the file's blob: the trie's size in bytes, the trie, the texts.  NULL and *err if it is none. */
rg_charsmap *rg_charsmap_new(const void *blob, size_t n, rg_error *err);
unsigned char *rg_charsmap_decode(const char *text, size_t n, size_t *n_blob, rg_error *err); /* base64; rg_free it */
rg_charsmap *rg_charsmap_base64(const char *text, size_t n, rg_error *err); /* as tokenizer.json has it */
void rg_charsmap_free(rg_charsmap *m);                                      /* NULL is fine */

/* The shortest (or longest) beginning of s[0, n) that the map knows: its length, 0 if there is none, and what it
 * becomes in *by, which is valid as long as the map. */
size_t rg_charsmap_find(const rg_charsmap *m, const char *s, size_t n, bool longest, rg_string *by);

#endif
