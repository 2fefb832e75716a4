/* cache.c -- see cache.h. */
#include "grammar/cache.h"

#include <pthread.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"

enum {
    ENTRIES = 64,
    CACHE_BYTES = 128 << 20,
    MOST_KEY = INT32_MAX, /* of bytes: longer sources are not compiled */
};

/* What tells sources apart, as bytes: kinds, texts and what they come after. */
typedef struct entry {
    rg_grammar *g;
    rg_buf key;
    uint64_t hash, used; /* used: count of lookups at its last use */
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
    rg_buf_fini(&c->entry[i].key);
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

static bool add_source(rg_buf *key, const rg_grammar_source *s)
{
    uint64_t head[] = { (uint64_t)s->kind, s->n, s->open_objects };

    return rg_buf_add(key, head, sizeof head) && (!s->n || rg_buf_add(key, s->text, s->n));
}

/* False: no memory. */
static bool make_key(rg_buf *key, const rg_grammar_source *s)
{
    rg_buf_init(key, MOST_KEY);
    return add_source(key, s) && (!s->other || add_source(key, s->other)) &&
           (!s->after || rg_buf_add(key, s->after, strlen(s->after)));
}

/* A reference to the grammar of this source; NULL: it is not in the cache. */
static rg_grammar *look_for(rg_grammar_cache *c, const entry *want)
{
    for (int i = 0; i < c->n_entries; i++) {
        entry *e = &c->entry[i];

        if (e->hash == want->hash && e->key.n == want->key.n && !memcmp(e->key.data, want->key.data, e->key.n)) {
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
            bytes += c->entry[i].key.n + rg_grammar_bytes(c->entry[i].g);
        if (c->n_entries + n_wanted <= ENTRIES && (bytes <= CACHE_BYTES || c->n_entries <= 1))
            return;
        drop(c, oldest(c));
    }
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
    rg_grammar_ref(e->g);
    make_room(c, 1);
    e->used = ++c->n_asked;
    c->entry[c->n_entries++] = *e;
    e->key = (rg_buf){ 0 }; /* the cache's now */
    return e->g;
}

rg_grammar *rg_grammar_cache_get(rg_grammar_cache *c, const rg_grammar_source *source, rg_error *err)
{
    entry want = { 0 };
    rg_grammar *g = NULL;

    if (!make_key(&want.key, source)) {
        rg_fail_memory(err, source->n);
        goto done;
    }
    want.hash = rg_hash(want.key.data, want.key.n, 0);
    pthread_mutex_lock(&c->lock);
    g = look_for(c, &want);
    if (g)
        make_room(c, 0);
    pthread_mutex_unlock(&c->lock);
    if (g)
        goto done;
    want.g = rg_grammar_compile(c->v, source, err);
    if (!want.g)
        goto done;
    rg_grammar_prepare(want.g);
    pthread_mutex_lock(&c->lock);
    g = keep(c, &want);
    pthread_mutex_unlock(&c->lock);

done:
    rg_buf_fini(&want.key);
    return g;
}
