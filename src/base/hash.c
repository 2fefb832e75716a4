/* hash.c -- libxxhash behind our names, and a seeded open-addressing dictionary. */
#include "base/hash.h"

#include <pthread.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* the state's type, so that it comes from our allocator */
#include <xxhash.h>

#include "base/mem.h"
#include "base/rng.h"

uint64_t rg_hash(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}

uint64_t rg_hash_pieces(const void *p, size_t n)
{
    const char *at = p;
    uint64_t h = 0;

    for (size_t piece; n; n -= piece, at += piece) {
        piece = n < RG_HASH_PIECE ? n : RG_HASH_PIECE;
        h = rg_hash(at, piece, h);
    }
    return h;
}

uint64_t rg_xxh64(const void *p, size_t n, uint64_t seed)
{
    return XXH64(p, n, seed);
}

struct rg_hasher {
    XXH64_state_t state;
};

rg_hasher *rg_hasher_new(void)
{
    rg_hasher *h = rg_zalloc(sizeof *h);

    if (h)
        XXH64_reset(&h->state, 0);
    return h;
}

void rg_hasher_add(rg_hasher *h, const void *p, size_t n)
{
    if (n)
        XXH64_update(&h->state, p, n);
}

uint64_t rg_hasher_value(const rg_hasher *h)
{
    return XXH64_digest(&h->state);
}

void rg_hasher_free(rg_hasher *h)
{
    rg_free(h);
}

typedef struct slot {
    const char *key; /* NULL: empty */
    size_t n;
    uint32_t hash;
    int value;
} slot;

struct rg_dict {
    slot *slots; /* n_slots, a power of two, at most three quarters taken */
    size_t n_slots, n_used;
};

static uint64_t dict_seed;

static void draw_dict_seed(void)
{
    dict_seed = rg_seed();
}

static uint32_t key_hash(const char *key, size_t n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, draw_dict_seed);
    return (uint32_t)XXH3_64bits_withSeed(key, n, dict_seed);
}

rg_dict *rg_dict_new(size_t n_expected)
{
    rg_dict *d;
    size_t n_slots = 16;

    if (n_expected > SIZE_MAX / 8)
        return NULL;
    while (n_slots / 4 * 3 < n_expected)
        n_slots *= 2;
    d = rg_zalloc(sizeof *d);
    if (!d)
        return NULL;
    d->n_slots = n_slots;
    d->slots = rg_array(n_slots, sizeof *d->slots);
    if (!d->slots)
        return rg_free(d), NULL;
    return d;
}

void rg_dict_free(rg_dict *d)
{
    if (!d)
        return;
    rg_free(d->slots);
    rg_free(d);
}

/* The key's slot, or the empty one where it would go. */
static slot *find(slot *slots, size_t n_slots, const char *key, size_t n, uint32_t hash)
{
    size_t i = hash & (n_slots - 1);

    while (slots[i].key && !(slots[i].hash == hash && slots[i].n == n && !memcmp(slots[i].key, key, n)))
        i = (i + 1) & (n_slots - 1);
    return &slots[i];
}

static bool grow(rg_dict *d)
{
    size_t n_slots = d->n_slots * 2;
    slot *slots = rg_array(n_slots, sizeof *slots);

    if (!slots)
        return false;
    for (size_t i = 0; i < d->n_slots; i++) {
        const slot *s = &d->slots[i];
        if (s->key)
            *find(slots, n_slots, s->key, s->n, s->hash) = *s;
    }
    rg_free(d->slots);
    d->slots = slots;
    d->n_slots = n_slots;
    return true;
}

bool rg_dict_put(rg_dict *d, const char *key, size_t n, int value)
{
    uint32_t hash = key_hash(key, n);
    slot *s = find(d->slots, d->n_slots, key, n, hash);

    RG_ASSERT(value >= 0);
    if (!s->key && d->n_used + 1 > d->n_slots / 4 * 3) {
        if (!grow(d))
            return false;
        s = find(d->slots, d->n_slots, key, n, hash);
    }
    d->n_used += !s->key;
    *s = (slot){ key, n, hash, value };
    return true;
}

int rg_dict_get(const rg_dict *d, const char *key, size_t n)
{
    const slot *s = find(d->slots, d->n_slots, key, n, key_hash(key, n));

    return s->key ? s->value : -1;
}
