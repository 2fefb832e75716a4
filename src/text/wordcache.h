/* wordcache.h -- the ids of words that were seen already, for the length of one call.
 *
 * It has sets of four words, and replaces a set's oldest word: a lookup compares four words at most, in any text.
 * Knows bytes and ids, nothing of models. */
#ifndef RG_TEXT_WORDCACHE_H
#define RG_TEXT_WORDCACHE_H

#include "text/tokenizer.h"

enum { RG_WORDCACHE_BYTES = 64 }; /* longer words are not kept */

typedef struct rg_wordcache {
    struct rg_wordset *sets; /* NULL: none yet */
    size_t n_sets;
    char *keys;
    int32_t *ids; /* of each place for a word, RG_WORDCACHE_BYTES of key and as many ids */
} rg_wordcache;

/* For a text of n bytes. */
bool rg_wordcache_init(rg_wordcache *c, size_t n, rg_error *err);
void rg_wordcache_fini(rg_wordcache *c);

/* A word's ids; false: not known.  *hash is for rg_wordcache_put. */
bool rg_wordcache_get(const rg_wordcache *c, rg_string word, bool plain, uint64_t *hash, const int32_t **ids,
                      size_t *n);
void rg_wordcache_put(rg_wordcache *c, rg_string word, uint64_t hash, const int32_t *ids, size_t n);

#endif
