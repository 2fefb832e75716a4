/* schema_bench.c -- schemas and their instances for scripts/bench-schemas: a line of JSON in, a line out.
 *
 *   schema_bench VOCABULARY
 *
 * VOCABULARY has one line for each id: its bytes in hexadecimal, or nothing.  The last id is the end of an answer.
 * In: { "schema": text, "open": bool, "masks": bool, "tests": [[id, ...], ...] }, the ids being those of an instance; masks
 * false: no masks are made and timed.
 * Out: { "error": text, "code": n, "compile_us": t } or { "compile_us": t, "first_us": t, "bytes": n, "accepted": [n, ...],
 * "whole": [bool, ...], "mask_us": [t, ...] }: how long compiling and the first mask took, how many ids of each instance
 * were allowed, whether the answer may end after them, and how long each mask took with the step after it. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "grammar/grammar.h"

typedef struct vocab {
    rg_buf bytes;
    uint32_t *offset;
    int32_t n;
    float *fresh, *logits;
    rg_grammar_vocab *of;
} vocab;

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void read_vocab(vocab *v, const char *path)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    if (!f) {
        perror(path);
        exit(1);
    }
    rg_buf_init(&v->bytes, 1 << 28);
    v->offset = calloc(1 << 20, sizeof *v->offset);
    while ((n = getline(&line, &room, f)) > 0 && v->n < (1 << 20) - 1) {
        for (ssize_t i = 0; i + 2 < n; i += 2) {
            char pair[3] = { line[i], line[i + 1], 0 };
            char byte = (char)strtoul(pair, NULL, 16);
            rg_buf_add(&v->bytes, &byte, 1);
        }
        v->offset[++v->n] = (uint32_t)v->bytes.n;
    }
    free(line);
    fclose(f);
    v->fresh = calloc((size_t)v->n, sizeof *v->fresh);
    v->logits = calloc((size_t)v->n, sizeof *v->logits);
    v->of = rg_grammar_vocab_new(v->bytes.data, v->offset, v->n, NULL);
}

/* Follow one instance, with a mask before each id as a sampler would have it. */
static void walk(vocab *v, rg_grammar *g, json_t *ids, bool masks, json_t *out)
{
    rg_grammar_state *s = rg_grammar_start(g, NULL);
    int32_t end = v->n - 1;
    json_int_t n = 0;
    json_t *id;
    size_t i;
    bool ok = true;

    json_array_foreach(ids, i, id) {
        double began;
        int32_t k = (int32_t)json_integer_value(id);
        if (masks)
            memcpy(v->logits, v->fresh, (size_t)v->n * sizeof *v->logits);
        began = now_us();
        if (masks)
            rg_grammar_mask(s, v->logits, v->n, &end, 1, true);
        ok = rg_grammar_advance(s, k);
        if (masks)
            json_array_append_new(json_object_get(out, "mask_us"), json_real(now_us() - began));
        if (masks && ok != (v->logits[k] == 0.0f))
            fprintf(stderr, "mask and step differ at id %d, the %zuth\n", k, i);
        if (!ok)
            break;
        n++;
    }
    json_array_append_new(json_object_get(out, "accepted"), json_integer(n));
    json_array_append_new(json_object_get(out, "whole"), json_boolean(ok && rg_grammar_complete(s)));
    rg_grammar_stop(s);
}

static json_t *answer(vocab *v, json_t *q)
{
    json_t *schema = json_object_get(q, "schema"), *test, *out = json_object();
    rg_error err;
    rg_grammar *g;
    double began = now_us(), made;
    size_t i;

    g = rg_grammar_compile(v->of, &(rg_grammar_source){ .kind = RG_GRAMMAR_JSON_SCHEMA, .text = json_string_value(schema),
                                                     .n = json_string_length(schema),
                                                     .open_objects = json_is_true(json_object_get(q, "open")) }, &err);
    made = now_us();
    json_object_set_new(out, "compile_us", json_real(made - began));
    if (!g) {
        json_object_set_new(out, "error", json_string(err.text));
        json_object_set_new(out, "code", json_integer(err.code));
        return out;
    }
    rg_grammar_prepare(g);
    json_object_set_new(out, "first_us", json_real(now_us() - made));
    json_object_set_new(out, "bytes", json_integer((json_int_t)rg_grammar_bytes(g)));
    json_object_set_new(out, "accepted", json_array());
    json_object_set_new(out, "whole", json_array());
    json_object_set_new(out, "mask_us", json_array());
    json_array_foreach(json_object_get(q, "tests"), i, test)
        walk(v, g, test, !json_is_false(json_object_get(q, "masks")), out);
    rg_grammar_unref(g);
    return out;
}

int main(int argc, char **argv)
{
    vocab v = { 0 };
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    if (argc != 2) {
        fprintf(stderr, "usage: schema_bench VOCABULARY\n");
        return 2;
    }
    read_vocab(&v, argv[1]);
    while ((n = getline(&line, &room, stdin)) > 0) {
        json_t *q = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL), *out = q ? answer(&v, q) : json_object();
        json_dumpf(out, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(q);
    }
    free(line);
    rg_grammar_vocab_free(v.of);
    return 0;
}
