/* breaker_texts.c -- see breaker_texts.h. */
#include "api/breaker_texts.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

enum {
    ENTRIES = 16,
    MAX_BYTES = 40, /* of a text */
    MAX_TAIL = 20,  /* ids */
    MAX_BREAKERS = 1 << 22,
};

static const char *const usual[] = { "\n", ":", "\"", "*" };

typedef struct entry {
    rg_breakers *breakers;
    char *key; /* [n_key] the texts, each with its NUL */
    size_t n_key;
    uint64_t used; /* count of lookups at its last use */
} entry;

struct rg_breaker_texts {
    const rg_tokenizer *t;
    pthread_mutex_t lock;
    entry entries[ENTRIES];
    int n_entries;
    uint64_t n_asked;
};

rg_breaker_texts *rg_breaker_texts_new(const rg_tokenizer *t, rg_error *err)
{
    rg_breaker_texts *b = rg_zalloc(sizeof *b);

    if (!b)
        return rg_fail_memory(err, sizeof *b), NULL;
    b->t = t;
    pthread_mutex_init(&b->lock, NULL);
    return b;
}

static void drop(entry *e)
{
    rg_breakers_unref(e->breakers);
    rg_free(e->key);
}

void rg_breaker_texts_free(rg_breaker_texts *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->n_entries; i++)
        drop(&b->entries[i]);
    pthread_mutex_destroy(&b->lock);
    rg_free(b);
}

/* ---- finding them ------------------------------------------------------------------------------------------------ */

typedef struct finder {
    const rg_tokenizer *t;
    rg_breaker *all; /* [n] */
    size_t n, room;
    rg_ids tails;    /* of all texts */
    rg_string text;  /* the one that is looked for */
    int32_t tail[MAX_BYTES], n_tail[MAX_BYTES]; /* of its rest from each byte on; tail -1: not made yet */
    rg_error *err;
} finder;

/* What an id shows in the middle of a text, special tokens too. */
static rg_string text_of(const rg_tokenizer *t, int32_t id)
{
    const rg_spelling *z = rg_tokenizer_spelling(t);
    rg_string s = { NULL, 0 };

    if (id < z->n)
        s = (rg_string){ z->at[0].data + z->at[0].offset[id], z->at[0].offset[id + 1] - z->at[0].offset[id] };
    return !s.n && rg_tokenizer_is_special(t, id) ? rg_tokenizer_piece(t, id) : s;
}

static bool add(finder *f, int32_t head, int32_t tail, int32_t n_tail)
{
    if (f->n == MAX_BREAKERS)
        return rg_fail(f->err, RG_E_LIMIT, "the sequence breakers of DRY are in too many tokens: give fewer or longer "
                       "texts");
    if (f->n == f->room) {
        size_t room = f->room ? 2 * f->room : 256;
        rg_breaker *more = rg_resize_array(f->all, room, sizeof *more);

        if (!more)
            return rg_fail_memory(f->err, room * sizeof *more);
        f->all = more;
        f->room = room;
    }
    f->all[f->n++] = (rg_breaker){ head, tail, n_tail };
    return true;
}

/* The ids of the text from this byte on. */
static bool make_tail(finder *f, size_t from)
{
    size_t start = f->tails.n;

    if (f->tail[from] >= 0)
        return true;
    if (!rg_tokenizer_encode(f->t, f->text.data + from, f->text.n - from, RG_ENCODE_NO_SPECIAL | RG_ENCODE_PLAIN,
                             &f->tails, f->err))
        return false;
    if (f->tails.n > start + MAX_TAIL)
        f->tails.n = start + MAX_TAIL;
    f->tail[from] = (int32_t)start;
    f->n_tail[from] = (int32_t)(f->tails.n - start);
    return true;
}

/* The breakers that begin in this id. */
static bool find_in(finder *f, int32_t id)
{
    const rg_string word = text_of(f->t, id), text = f->text;

    for (size_t at = 0; at < word.n; at++) {
        size_t n = word.n - at < text.n ? word.n - at : text.n;

        if (memcmp(word.data + at, text.data, n) != 0)
            continue;
        if (n == text.n)
            return add(f, id, 0, 0);
        if (!make_tail(f, n) || !add(f, id, f->tail[n], f->n_tail[n]))
            return false;
    }
    return true;
}

static bool find_text(finder *f, const char *text)
{
    f->text = (rg_string){ text, strnlen(text, MAX_BYTES) };
    for (int i = 0; i < MAX_BYTES; i++)
        f->tail[i] = -1;
    for (int32_t id = 0; f->text.n && id < rg_tokenizer_size(f->t); id++)
        if (!find_in(f, id))
            return false;
    return true;
}

static rg_breakers *find_all(const rg_tokenizer *t, const char *const *texts, int32_t n, rg_error *err)
{
    finder f = { .t = t, .err = err };

    for (int32_t i = 0; i < n; i++)
        if (!find_text(&f, texts[i])) {
            rg_free(f.all);
            rg_ids_fini(&f.tails);
            return NULL;
        }
    return rg_breakers_new(f.all, f.n, f.tails.id, err);
}

/* ---- keeping them ------------------------------------------------------------------------------------------------ */

static bool make_key(entry *e, const char *const *texts, int32_t n, rg_error *err)
{
    size_t at = 0;

    e->n_key = 0;
    for (int32_t i = 0; i < n; i++)
        e->n_key += strnlen(texts[i], MAX_BYTES) + 1;
    e->key = rg_alloc(e->n_key);
    if (!e->key)
        return rg_fail_memory(err, e->n_key);
    for (int32_t i = 0; i < n; i++) {
        size_t bytes = strnlen(texts[i], MAX_BYTES);

        memcpy(e->key + at, texts[i], bytes);
        e->key[at + bytes] = 0;
        at += bytes + 1;
    }
    return true;
}

/* A reference to those of a key; NULL: they are not kept. */
static rg_breakers *look_for(rg_breaker_texts *b, const entry *want)
{
    rg_breakers *found = NULL;

    pthread_mutex_lock(&b->lock);
    for (int i = 0; i < b->n_entries && !found; i++) {
        entry *e = &b->entries[i];

        if (e->n_key != want->n_key || memcmp(e->key, want->key, e->n_key) != 0)
            continue;
        e->used = ++b->n_asked;
        found = rg_breakers_ref(e->breakers);
    }
    pthread_mutex_unlock(&b->lock);
    return found;
}

/* Keep a new entry in the place of the one that was not asked for the longest time. */
static void keep(rg_breaker_texts *b, entry made)
{
    int at = 0;

    pthread_mutex_lock(&b->lock);
    if (b->n_entries < ENTRIES)
        at = b->n_entries++;
    else
        for (int i = 1; i < ENTRIES; i++)
            at = b->entries[i].used < b->entries[at].used ? i : at;
    drop(&b->entries[at]);
    made.used = ++b->n_asked;
    b->entries[at] = made;
    pthread_mutex_unlock(&b->lock);
}

rg_breakers *rg_breaker_texts_get(rg_breaker_texts *b, const char *const *texts, int32_t n, rg_error *err)
{
    entry made = { 0 };
    rg_breakers *found;

    if (!texts) {
        texts = usual;
        n = (int32_t)RG_LEN(usual);
    }
    if (!make_key(&made, texts, n, err))
        return NULL;
    found = look_for(b, &made);
    if (!found) {
        made.breakers = find_all(b->t, texts, n, err);
        found = rg_breakers_ref(made.breakers);
        if (found) {
            keep(b, made);
            return found;
        }
    }
    rg_free(made.key);
    return found;
}
