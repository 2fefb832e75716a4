/* grammar_pipe.c -- grammars for a script that compares them with others': a line of JSON in, a line out.
 *
 * In: { "kind": "gbnf" | "regex" | "choice" | "json" | "schema" | "lark", "source": text, "open": bool, "texts": [...],
 * "generate": n, "seed": n }; open: open_objects.
 * Out: { "error": text, "code": n }, or { "accepts": [true, ...], "texts": [...] }: which texts are whole answers, and n
 * answers found by taking allowed ids at random.  The vocabulary is all bytes and a few words. */
#define _GNU_SOURCE
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "grammar/grammar.h"

static const char *const words[] = { "\":", "\",", "\"}", "{\"", "true", "null", "\": ", "\", \"", "}}", "]}", "}]", "[[", "1,",
        ", ",
                                     "10", "-1", "ab", "abc", "a\"", "\\u00", "\xc3\xa9", "\xe2\x82", "e\"}" };
enum { N = 256 + (int)RG_LEN(words) };
static char data[1024];
static uint32_t offset[N + 1];

static void make_vocab(void)
{
    for (int i = 0; i < N; i++) {
        size_t n = i < 256 ? 1 : strlen(words[i - 256]);
        if (i < 256)
            data[offset[i]] = (char)i;
        else
            memcpy(data + offset[i], words[i - 256], n);
        offset[i + 1] = offset[i] + (uint32_t)n;
    }
}

static bool accepts(rg_grammar *g, const char *s, size_t n)
{
    rg_grammar_state *st = rg_grammar_start(g, NULL);
    bool ok = true;

    for (size_t i = 0; ok && i < n; i++)
        ok = rg_grammar_advance(st, (unsigned char)s[i]);
    ok = ok && rg_grammar_complete(st);
    rg_grammar_stop(st);
    return ok;
}

/* An answer by allowed ids at random, or NULL if it has become too long.  Structure is preferred, so that it ends. */
static char *generate(rg_grammar *g, rg_rng *r, size_t *n)
{
    rg_grammar_state *st = rg_grammar_start(g, NULL);
    rg_buf b;
    bool ended = false;

    rg_buf_init(&b, 1 << 16);
    for (int step = 0; step < 4000 && !ended; step++) {
        float logits[N + 1] = { 0 };
        int32_t end = N - 1, best = -1;
        float top = -INFINITY;
        bool may_end = rg_grammar_complete(st);
        rg_grammar_mask(st, logits, N, &end, 1, true);
        for (int i = 0; i < N; i++) {
            bool close = i == '"' || i == '}' || i == ']' || i == N - 1;
            if (logits[i] == -INFINITY)
                continue;
            logits[i] = rg_rng_unit(r) + (close && step > 60 ? 0.9f : 0.0f) - (i > 126 && i < 256 ? 0.2f : 0.0f);
            if (logits[i] > top)
                top = logits[i], best = i;
        }
        if (best == N - 1 && may_end) {
            ended = true;
        } else if (best < 0 || !rg_grammar_advance(st, best)) {
            fprintf(stderr, "stuck after %zu bytes: %.*s\n", b.n, (int)b.n, b.data ? b.data : "");
            break;
        } else {
            rg_buf_add(&b, data + offset[best], offset[best + 1] - offset[best]);
        }
    }
    rg_grammar_stop(st);
    *n = b.n;
    char *out = ended ? malloc(b.n + 1) : NULL;
    if (out)
        memcpy(out, b.data ? b.data : "", b.n);
    rg_buf_fini(&b);
    return out;
}

static json_t *answer(const rg_grammar_vocab *v, json_t *q)
{
    static const char *const kinds[] = { "gbnf", "regex", "choice", "json", "schema", "lark" };
    const char *kind = json_string_value(json_object_get(q, "kind"));
    json_t *source = json_object_get(q, "source"), *text, *out = json_object(), *list = json_array();
    rg_rng r = { .seed = (uint64_t)json_integer_value(json_object_get(q, "seed")) };
    int k = 0;
    rg_error err;
    rg_grammar *g;
    size_t i;

    while (k < 5 && strcmp(kinds[k], kind))
        k++;
    g = rg_grammar_compile(v, &(rg_grammar_source){ (rg_grammar_kind)k, json_string_value(source),
                                                json_string_length(source),
                                                .open_objects = json_is_true(json_object_get(q, "open")) }, &err);
    if (!g) {
        json_object_set_new(out, "error", json_string(err.text));
        json_object_set_new(out, "code", json_integer(err.code));
        json_decref(list);
        return out;
    }
    json_array_foreach(json_object_get(q, "texts"), i, text)
        json_array_append_new(list, json_boolean(accepts(g, json_string_value(text), json_string_length(text))));
    json_object_set_new(out, "accepts", list);
    list = json_array();
    for (json_int_t n = json_integer_value(json_object_get(q, "generate")); n > 0; n--) {
        size_t bytes;
        char *s = generate(g, &r, &bytes);
        json_t *t = s ? json_stringn(s, bytes) : json_null();
        json_array_append_new(list, t ? t : json_string("NOT UTF-8"));
        free(s);
    }
    json_object_set_new(out, "texts", list);
    rg_grammar_unref(g);
    return out;
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    rg_grammar_vocab *v;

    make_vocab();
    v = rg_grammar_vocab_new(data, offset, N, NULL);
    while ((n = getline(&line, &room, stdin)) > 0) {
        json_t *q = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL), *out = q ? answer(v, q) : json_object();
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(q);
    }
    free(line);
    rg_grammar_vocab_free(v);
    return 0;
}
