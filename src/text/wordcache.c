/* wordcache.c -- see wordcache.h. */
#include "text/wordcache.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { WAYS = 4, MOST_IDS = 16, MIN_SETS = 16, MAX_SETS = 1 << 13 };

typedef struct rg_wordset {
    uint64_t hash[WAYS]; /* 0: free */
    uint8_t n_key[WAYS], n_ids[WAYS];
    uint8_t turn;
} set;

bool rg_wordcache_init(rg_wordcache *c, size_t n, rg_error *err)
{
    size_t n_sets = MIN_SETS, places;

    while (n_sets < MAX_SETS && n_sets * 64 < n)
        n_sets *= 2;
    places = n_sets * WAYS;
    c->n_sets = n_sets;
    c->sets = rg_array(n_sets, sizeof *c->sets);
    c->keys = rg_alloc_tail(0, places, RG_WORDCACHE_BYTES);
    c->ids = rg_alloc_tail(0, places, MOST_IDS * sizeof *c->ids);
    return (c->sets && c->keys && c->ids) || rg_fail_memory(err, places * 128);
}

void rg_wordcache_fini(rg_wordcache *c)
{
    rg_free(c->sets);
    rg_free(c->keys);
    rg_free(c->ids);
    *c = (rg_wordcache){ 0 };
}

bool rg_wordcache_get(const rg_wordcache *c, rg_string word, bool plain, uint64_t *hash, const int32_t **ids,
                      size_t *n)
{
    uint64_t h = rg_hash(word.data, word.n, plain) | 1;
    size_t at = (size_t)(h >> 32) & (c->n_sets - 1);
    const set *s = &c->sets[at];

    *hash = h;
    if (word.n > RG_WORDCACHE_BYTES)
        return false;
    for (size_t i = 0; i < WAYS; i++) {
        size_t place = at * WAYS + i;
        if (s->hash[i] != h || s->n_key[i] != word.n ||
            memcmp(c->keys + place * RG_WORDCACHE_BYTES, word.data, word.n))
            continue;
        *ids = c->ids + place * MOST_IDS;
        *n = s->n_ids[i];
        return true;
    }
    return false;
}

void rg_wordcache_put(rg_wordcache *c, rg_string word, uint64_t hash, const int32_t *ids, size_t n)
{
    size_t at = (size_t)(hash >> 32) & (c->n_sets - 1), i, place;
    set *s = &c->sets[at];

    if (word.n > RG_WORDCACHE_BYTES || n > MOST_IDS)
        return;
    i = s->turn++ % WAYS;
    place = at * WAYS + i;
    s->hash[i] = hash;
    s->n_key[i] = (uint8_t)word.n;
    s->n_ids[i] = (uint8_t)n;
    memcpy(c->keys + place * RG_WORDCACHE_BYTES, word.data, word.n);
    if (n)
        memcpy(c->ids + place * MOST_IDS, ids, n * sizeof *ids);
}
