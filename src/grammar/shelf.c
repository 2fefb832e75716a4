/* shelf.c -- see shelf.h. */
#include "grammar/shelf.h"

#include <pthread.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum {
    PLACES = 64,
    SHELF_BYTES = 128 << 20,
};

typedef struct book {
    rg_grammar *g;
    rg_grammar_kind kind;
    uint64_t hash, used; /* used: when it was asked for last, by count */
    char *text;
    size_t n;
} book;

struct rg_grammar_shelf {
    const rg_grammar_vocab *v;
    pthread_mutex_t lock;
    book book[PLACES];
    int n_books;
    uint64_t n_asked;
};

rg_grammar_shelf *rg_grammar_shelf_new(const rg_grammar_vocab *v, rg_error *err)
{
    rg_grammar_shelf *s = rg_zalloc(sizeof *s);

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->v = v;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static void take_out(rg_grammar_shelf *s, int i)
{
    rg_grammar_unref(s->book[i].g);
    rg_free(s->book[i].text);
    s->book[i] = s->book[--s->n_books];
}

void rg_grammar_shelf_free(rg_grammar_shelf *s)
{
    if (!s)
        return;
    while (s->n_books)
        take_out(s, 0);
    pthread_mutex_destroy(&s->lock);
    rg_free(s);
}

/* The grammar of this source, which the caller then has too; NULL: it is not here. */
static rg_grammar *look_for(rg_grammar_shelf *s, const book *want)
{
    for (int i = 0; i < s->n_books; i++) {
        book *b = &s->book[i];

        if (b->hash == want->hash && b->kind == want->kind && b->n == want->n && !memcmp(b->text, want->text, b->n)) {
            b->used = ++s->n_asked;
            rg_grammar_ref(b->g);
            return b->g;
        }
    }
    return NULL;
}

static int oldest(const rg_grammar_shelf *s)
{
    int i = 0;

    for (int k = 1; k < s->n_books; k++)
        if (s->book[k].used < s->book[i].used)
            i = k;
    return i;
}

/* They grow as they are used, so this is looked at whenever one is asked for. */
static void make_room(rg_grammar_shelf *s, int n_wanted)
{
    for (;;) {
        size_t bytes = 0;

        for (int i = 0; i < s->n_books; i++)
            bytes += s->book[i].n + rg_grammar_bytes(s->book[i].g);
        if (s->n_books + n_wanted <= PLACES && (bytes <= SHELF_BYTES || s->n_books <= 1))
            return;
        take_out(s, oldest(s));
    }
}

/* Put it there too, unless another thread has meanwhile; then that one counts, so that its masks are shared. */
static rg_grammar *put(rg_grammar_shelf *s, book *b)
{
    rg_grammar *other = look_for(s, b);

    if (other) {
        rg_grammar_unref(b->g);
        return other;
    }
    b->text = rg_strndup(b->text, b->n);
    if (b->text) { /* or it is not kept */
        rg_grammar_ref(b->g);
        make_room(s, 1);
        b->used = ++s->n_asked;
        s->book[s->n_books++] = *b;
    }
    return b->g;
}

rg_grammar *rg_grammar_shelf_get(rg_grammar_shelf *s, rg_grammar_kind kind, const char *text, size_t n, rg_error *err)
{
    book want = { .kind = kind, .hash = rg_hash(text, n, (uint64_t)kind), .text = (char *)(uintptr_t)text, .n = n };
    rg_grammar *g;

    pthread_mutex_lock(&s->lock);
    g = look_for(s, &want);
    if (g)
        make_room(s, 0);
    pthread_mutex_unlock(&s->lock);
    if (g)
        return g;
    want.g = rg_grammar_compile(s->v, kind, text, n, err);
    if (!want.g)
        return NULL;
    rg_grammar_prepare(want.g);
    pthread_mutex_lock(&s->lock);
    g = put(s, &want);
    pthread_mutex_unlock(&s->lock);
    return g;
}
