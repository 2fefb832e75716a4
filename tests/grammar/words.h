/* words.h -- small vocabularies and grammars over them, for the tests of grammars. */
#ifndef RG_TEST_WORDS_H
#define RG_TEST_WORDS_H

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/cache.h"

#define G RG_GRAMMAR_GBNF
#define X RG_GRAMMAR_REGEX
#define C RG_GRAMMAR_CHOICE
#define J RG_GRAMMAR_JSON
#define S RG_GRAMMAR_JSON_SCHEMA
#define SOURCE(kind, text, n) ((rg_grammar_source){ kind, text, n, NULL })

/* ---- vocabularies ---- */

typedef struct words {
    char *data;
    uint32_t *offset;
    int32_t n, room;
    rg_grammar_vocab *v;
} words;

static inline void add_word(words *w, const void *s, size_t n)
{
    if (w->n + 1 >= w->room) {
        w->room = w->room ? 2 * w->room : 1024;
        w->offset = realloc(w->offset, ((size_t)w->room + 1) * sizeof *w->offset);
        w->data = realloc(w->data, (size_t)w->room * 40);
        w->offset[0] = 0;
    }
    memcpy(w->data + w->offset[w->n], s, n);
    w->offset[w->n + 1] = w->offset[w->n] + (uint32_t)n;
    w->n++;
}

/* All bytes (or ASCII), an id without bytes at the end: the answer's end. */
static inline words bytes_and(int n_bytes, const char *const *more, size_t n)
{
    words w = { 0 };
    rg_error err;

    for (int i = 0; i < n_bytes; i++)
        add_word(&w, &(char){ (char)i }, 1);
    for (size_t i = 0; i < n; i++)
        add_word(&w, more[i], strlen(more[i]));
    add_word(&w, "", 0);
    w.v = rg_grammar_vocab_new(w.data, w.offset, w.n, &err);
    assert_ok(w.v, err);
    return w;
}

static inline void free_words(words *w)
{
    rg_grammar_vocab_free(w->v);
    free(w->data);
    free(w->offset);
}

static inline words all_bytes(void)
{
    return bytes_and(256, NULL, 0);
}

static inline rg_grammar *compile(const words *w, rg_grammar_kind kind, const char *source)
{
    rg_error err;
    rg_grammar *g = rg_grammar_compile(w->v, &SOURCE(kind, source, strlen(source)), &err);

    if (!g)
        print_error("%s\n", source);
    assert_ok(g, err);
    return g;
}

static inline bool accepts(rg_grammar *g, const char *s)
{
    rg_grammar_state *st = rg_grammar_start(g, NULL);
    bool ok = true;

    for (; ok && *s; s++)
        ok = rg_grammar_advance(st, (unsigned char)*s);
    ok = ok && rg_grammar_complete(st);
    rg_grammar_stop(st);
    return ok;
}

#endif
