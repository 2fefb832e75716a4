/* cache.c -- see cache.h. */
#include "grammar/cache.h"

#include <pthread.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum {
    ENTRIES = 64,
    CACHE_BYTES = 128 << 20,
};

typedef struct entry {
    rg_grammar *g;
    rg_grammar_source source; /* its texts are one allocation, at source.text; in a lookup they are the caller's */
    uint64_t hash, used;      /* used: count of lookups at its last use */
} entry;

struct rg_grammar_cache {
    const rg_grammar_vocab *v;
    pthread_mutex_t lock;
    entry entry[ENTRIES];
    int n_entries;
    uint64_t n_asked;
};

rg_grammar_cache *rg_grammar_cache_new(const rg_grammar_vocab *v, rg_error *err)
{
    rg_grammar_cache *c = rg_zalloc(sizeof *c);

    if (!c)
        return rg_fail_memory(err, sizeof *c), NULL;
    c->v = v;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void drop(rg_grammar_cache *c, int i)
{
    rg_grammar_unref(c->entry[i].g);
    rg_free((char *)(uintptr_t)c->entry[i].source.text);
    c->entry[i] = c->entry[--c->n_entries];
}

void rg_grammar_cache_free(rg_grammar_cache *c)
{
    if (!c)
        return;
    while (c->n_entries)
        drop(c, 0);
    pthread_mutex_destroy(&c->lock);
    rg_free(c);
}

static const char *after_of(const rg_grammar_source *s)
{
    return s->after ? s->after : "";
}

static uint64_t hash_of(const rg_grammar_source *s)
{
    return rg_hash(s->text, s->n, rg_hash(after_of(s), strlen(after_of(s)), (uint64_t)s->kind));
}

static bool is_source(const rg_grammar_source *a, const rg_grammar_source *b)
{
    return a->kind == b->kind && a->n == b->n && !memcmp(a->text, b->text, a->n) && !strcmp(after_of(a), after_of(b));
}

/* A reference to the grammar of this source; NULL: it is not in the cache. */
static rg_grammar *look_for(rg_grammar_cache *c, const entry *want)
{
    for (int i = 0; i < c->n_entries; i++) {
        entry *e = &c->entry[i];

        if (e->hash == want->hash && is_source(&e->source, &want->source)) {
            e->used = ++c->n_asked;
            rg_grammar_ref(e->g);
            return e->g;
        }
    }
    return NULL;
}

static int oldest(const rg_grammar_cache *c)
{
    int i = 0;

    for (int k = 1; k < c->n_entries; k++)
        if (c->entry[k].used < c->entry[i].used)
            i = k;
    return i;
}

/* Grammars grow as they are used, so the memory of all is added up whenever one is asked for. */
static void make_room(rg_grammar_cache *c, int n_wanted)
{
    for (;;) {
        size_t bytes = 0;

        for (int i = 0; i < c->n_entries; i++)
            bytes += c->entry[i].source.n + rg_grammar_bytes(c->entry[i].g);
        if (c->n_entries + n_wanted <= ENTRIES && (bytes <= CACHE_BYTES || c->n_entries <= 1))
            return;
        drop(c, oldest(c));
    }
}

/* Copy the texts of a source into one allocation. */
static bool own_source(rg_grammar_source *s)
{
    size_t n_after = strlen(after_of(s)) + 1;
    char *texts = rg_alloc_tail(n_after, s->n, 1);

    if (!texts)
        return false;
    if (s->n)
        memcpy(texts, s->text, s->n);
    memcpy(texts + s->n, after_of(s), n_after);
    s->text = texts;
    s->after = texts + s->n;
    return true;
}

/* Add a grammar that was just compiled.  If another thread added the same one first, that one is returned, so that
 * masks are shared. */
static rg_grammar *keep(rg_grammar_cache *c, entry *e)
{
    rg_grammar *other = look_for(c, e);

    if (other) {
        rg_grammar_unref(e->g);
        return other;
    }
    if (own_source(&e->source)) { /* no memory: it is not kept */
        rg_grammar_ref(e->g);
        make_room(c, 1);
        e->used = ++c->n_asked;
        c->entry[c->n_entries++] = *e;
    }
    return e->g;
}

rg_grammar *rg_grammar_cache_get(rg_grammar_cache *c, const rg_grammar_source *source, rg_error *err)
{
    entry want = { .source = *source, .hash = hash_of(source) };
    rg_grammar *g;

    pthread_mutex_lock(&c->lock);
    g = look_for(c, &want);
    if (g)
        make_room(c, 0);
    pthread_mutex_unlock(&c->lock);
    if (g)
        return g;
    want.g = rg_grammar_compile(c->v, source, err);
    if (!want.g)
        return NULL;
    rg_grammar_prepare(want.g);
    pthread_mutex_lock(&c->lock);
    g = keep(c, &want);
    pthread_mutex_unlock(&c->lock);
    return g;
}
