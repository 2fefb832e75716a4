/* sights.c -- see sights.h.
 *
 * An entry of "attention_patterns" is { "terms": [...], "positions": "absolute" or "cache" }.  A term has a "type" and
 * numbers of its own, and perhaps "heads", the query heads that it is for.  Heads with the same terms become one
 * pattern of ops/sight.h. */
#include "model/arch/sights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRY_TERMS = 32, KEY_ROOM = 256 };

/* An entry being read. */
typedef struct entry {
    const rg_checkpoint *ckpt;
    char at[KEY_ROOM / 2]; /* "attention_patterns.NAME" */
    int n_heads, n_terms;
    rg_sight_term terms[MAX_ENTRY_TERMS];
    uint32_t of_head[RG_SIGHT_HEADS]; /* bit n: the n-th term is for it */
    rg_patterns *out;
} entry;

/* ---- terms ------------------------------------------------------------------------------------------------------- */

/* The number at a key of a term, 1 or more. */
static bool read_size(const entry *e, int i, const char *name, bool required, int32_t *out, rg_error *err)
{
    char key[KEY_ROOM];
    int64_t n = 1;

    snprintf(key, sizeof key, "%s.terms.%d.%s", e->at, i, name);
    int got = rg_config_int(e->ckpt, key, 1, 1 << 30, &n, err);
    if (!got && required)
        return rg_fail(err, RG_E_INPUT, "%s: key '%s' is missing", rg_checkpoint_path(e->ckpt), key);
    *out = (int32_t)n;
    return got >= 0;
}

static int by_value(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* The positions of a global term: those of the layer, which has one list. */
static bool read_positions(const entry *e, int i, rg_error *err)
{
    const int32_t *given = NULL;
    int32_t sorted[RG_MAX_LISTED];
    rg_patterns *p = e->out;
    int kept = 0;
    size_t n = 0;
    char key[KEY_ROOM];

    snprintf(key, sizeof key, "%s.terms.%d.positions", e->at, i);
    int got = rg_meta_ints(e->ckpt, key, &given, &n, err);
    if (got < 0)
        return false;
    if (!got || n > RG_MAX_LISTED)
        return rg_fail(err, RG_E_INPUT, "%s: %s: a list of up to %d positions is wanted", rg_checkpoint_path(e->ckpt),
                       key, RG_MAX_LISTED);
    memcpy(sorted, given, n * sizeof *given);
    qsort(sorted, n, sizeof *sorted, by_value);
    for (size_t k = 0; k < n; k++)
        if (!kept || sorted[k] != sorted[kept - 1])
            sorted[kept++] = sorted[k];
    if (kept && sorted[0] < 0)
        return rg_fail(err, RG_E_INPUT, "%s: %s: position %d is below 0", rg_checkpoint_path(e->ckpt), key, sorted[0]);
    if (p->n_listed && (p->n_listed != kept || memcmp(p->listed, sorted, (size_t)kept * sizeof *sorted)))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s differs from that of another term, which is not supported",
                       rg_checkpoint_path(e->ckpt), key);
    memcpy(p->listed, sorted, (size_t)kept * sizeof *sorted);
    p->n_listed = kept;
    return true;
}

/* The term is for these heads; for all of them without a list. */
static bool read_heads(entry *e, int i, rg_error *err)
{
    const int32_t *heads = NULL;
    size_t n = 0;
    char key[KEY_ROOM];

    snprintf(key, sizeof key, "%s.terms.%d.heads", e->at, i);
    int got = rg_meta_ints(e->ckpt, key, &heads, &n, err);
    if (got < 0)
        return false;
    for (int h = 0; h < e->n_heads && !got; h++)
        e->of_head[h] |= 1u << i;
    for (size_t k = 0; k < n; k++) {
        if (heads[k] < 0 || heads[k] >= e->n_heads)
            return rg_fail(err, RG_E_INPUT, "%s: %s names head %d of %d", rg_checkpoint_path(e->ckpt), key, heads[k],
                           e->n_heads);
        e->of_head[heads[k]] |= 1u << i;
    }
    return true;
}

static bool read_term(entry *e, int i, rg_error *err)
{
    static const char *const types[] = { "full", "window", "stride", "block", "summary", "first", "global", NULL };
    static const rg_term_kind kinds[] = { RG_TERM_ALL, RG_TERM_WINDOW, RG_TERM_STRIDE, RG_TERM_CHUNK, RG_TERM_SUMMARY,
                                          RG_TERM_FIRST, RG_TERM_LISTED };
    rg_sight_term *t = &e->terms[i];
    char key[KEY_ROOM];
    int which = -1;

    snprintf(key, sizeof key, "%s.terms.%d.type", e->at, i);
    if (!rg_config_choice(e->ckpt, key, types, &which, err))
        return false;
    if (which < 0)
        return rg_fail(err, RG_E_INPUT, "%s: key '%s' is missing", rg_checkpoint_path(e->ckpt), key);
    *t = (rg_sight_term){ kinds[which], 1, 1 };
    switch (t->kind) {
    case RG_TERM_ALL: break;
    case RG_TERM_WINDOW:
        if (!read_size(e, i, "size", true, &t->size, err) || !read_size(e, i, "dilation", false, &t->step, err))
            return false;
        break;
    case RG_TERM_SUMMARY:
        if (!read_size(e, i, "size", true, &t->size, err) || !read_size(e, i, "columns", true, &t->step, err))
            return false;
        t->step = t->step < t->size ? t->step : t->size;
        break;
    case RG_TERM_STRIDE:
    case RG_TERM_CHUNK:
    case RG_TERM_FIRST: {
        const char *name = t->kind == RG_TERM_STRIDE ? "stride" : t->kind == RG_TERM_CHUNK ? "size" : "count";

        if (!read_size(e, i, name, true, &t->size, err))
            return false;
        break;
    }
    case RG_TERM_LISTED:
        if (!read_positions(e, i, err))
            return false;
        break;
    }
    return read_heads(e, i, err);
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

/* Heads that have the same terms share a pattern. */
static bool share_patterns(const entry *e, rg_error *err)
{
    rg_patterns *p = e->out;
    uint32_t terms[RG_MAX_PATTERNS];

    for (int h = 0; h < e->n_heads; h++) {
        int k = 0;

        while (k < p->n_patterns && terms[k] != e->of_head[h])
            k++;
        if (k == RG_MAX_PATTERNS || __builtin_popcount(e->of_head[h]) > RG_MAX_TERMS)
            return rg_fail(err, RG_E_LIMIT, "%s: %s: heads of more than %d patterns, or of more than %d terms",
                           rg_checkpoint_path(e->ckpt), e->at, RG_MAX_PATTERNS, RG_MAX_TERMS);
        p->of_head[h] = (uint8_t)k;
        if (k < p->n_patterns)
            continue;
        terms[p->n_patterns++] = e->of_head[h];
        for (int i = 0; i < e->n_terms; i++)
            if (e->of_head[h] >> i & 1)
                p->patterns[k].terms[p->patterns[k].n_terms++] = e->terms[i];
    }
    return true;
}

/* StreamingLLM: the cache holds the first keys and a window, and positions count its places. */
static bool read_cache(const entry *e, cache_places *places, rg_error *err)
{
    static const char *const choices[] = { "absolute", "cache", NULL };
    const rg_pattern *p = &e->out->patterns[0];
    const rg_sight_term *a = &p->terms[0], *b = &p->terms[1];
    char key[KEY_ROOM];
    int which;

    snprintf(key, sizeof key, "%s.positions", e->at);
    if (!rg_config_choice(e->ckpt, key, choices, &which, err))
        return false;
    if (which != 1)
        return true;
    if (p->n_terms == 2 && a->kind == RG_TERM_WINDOW)
        a = &p->terms[1], b = &p->terms[0];
    if (e->out->n_patterns != 1 || p->n_terms != 2 || a->kind != RG_TERM_FIRST || b->kind != RG_TERM_WINDOW ||
        b->step != 1 || (int64_t)a->size + b->size > RG_MAX_LAST)
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "%s: %s is 'cache', which is supported of one 'first' and one 'window' for all heads alone",
                       rg_checkpoint_path(e->ckpt), key);
    *places = (cache_places){ a->size, a->size + b->size - 1 };
    return true;
}

/* Read the pattern of layer i, whose type has this name and is the type of no earlier layer. */
static bool read_entry(rg_config *c, const rg_checkpoint *ckpt, const char *name, int i, rg_error *err)
{
    entry e = { .ckpt = ckpt, .n_heads = c->n_heads, .out = &c->patterns[c->n_patterns] };
    char key[KEY_ROOM];
    size_t n = 0;

    snprintf(e.at, sizeof e.at, "attention_patterns.%.40s", name);
    snprintf(key, sizeof key, "%s.terms", e.at);
    int got = rg_meta_length(ckpt, key, &n, err);
    if (got < 0)
        return false;
    if (!got)
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "%s: layer_types.%d is '%.40s', which is not supported (supported: 'full_attention', "
                       "'sliding_attention', and names of attention_patterns)",
                       rg_checkpoint_path(ckpt), i, name);
    if (c->n_patterns == RG_MAX_LAYER_PATTERNS || n > MAX_ENTRY_TERMS || c->n_heads > RG_SIGHT_HEADS)
        return rg_fail(err, RG_E_LIMIT, "%s: %s: %zu terms of %d heads, as the %dth pattern; at most %d, %d and %d",
                       rg_checkpoint_path(ckpt), e.at, n, c->n_heads, c->n_patterns + 1, MAX_ENTRY_TERMS,
                       RG_SIGHT_HEADS, RG_MAX_LAYER_PATTERNS);
    e.n_terms = (int)n;
    for (int k = 0; k < e.n_terms; k++)
        if (!read_term(&e, k, err))
            return false;
    c->layer[i].pattern = c->n_patterns++;
    return share_patterns(&e, err) && read_cache(&e, RG_LAYER_OWN_EDIT(c, i, cache_places), err);
}

static bool read_window(rg_config *c, const rg_checkpoint *ckpt, int i, rg_error *err)
{
    static const rg_key row = { offsetof(rg_config, window), KEY_INT, "sliding_window", NULL, 0, .least = 1 };

    if (!rg_config_keys(c, ckpt, &row, 1, err))
        return false;
    c->layer[i].window = c->window;
    return c->window || rg_fail(err, RG_E_INPUT, "%s: layer_types.%d is 'sliding_attention', but sliding_window is "
                                "missing", rg_checkpoint_path(ckpt), i);
}

bool finish_sights(rg_config *c, const rg_checkpoint *ckpt, int in_cache, rg_error *err)
{
    const rg_string *types;
    size_t n = 0;
    int got = rg_meta_strings(ckpt, "layer_types", &types, &n, err);

    if (got <= 0)
        return got == 0;
    if (!require_length(c, ckpt, "layer_types", n, err))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        char key[48];
        const char *name = NULL;
        int same = 0;

        while (types[same].n != types[i].n || memcmp(types[same].data, types[i].data, types[i].n))
            same++;
        snprintf(key, sizeof key, "layer_types.%d", i);
        if (rg_meta_string(ckpt, key, &name, err) < 0)
            return false;
        if (same < i) {
            c->layer[i].window = c->layer[same].window;
            c->layer[i].pattern = c->layer[same].pattern;
            *RG_LAYER_OWN_EDIT(c, i, cache_places) = *RG_LAYER_OWN(c, same, cache_places);
        } else if (!strcmp(name, "sliding_attention")) {
            if (!read_window(c, ckpt, i, err))
                return false;
        } else if (strcmp(name, "full_attention") && !read_entry(c, ckpt, name, i, err)) {
            return false;
        }
        c->layer[i].kind = RG_LAYER_OWN(c, i, cache_places)->first ? in_cache : c->layer[i].kind;
    }
    return true;
}

rg_act *attention_in_cache(rg_fwd *f, const rg_layer *l, const qkv *p)
{
    const cache_places *places = RG_LAYER_OWN(l->c, l->index, cache_places);
    rg_attend_params params = attend_params(l);
    rg_act *q = rg_act_new(f, "first_q", p->q->cols);

    rg_activate(f, q, p->q, RG_IDENTITY);
    rg_rotate_until(f, q, l->rope, l->c->head_dim, 0, places->last);
    rotate(f, l, p);
    params.first_q = q;
    params.n_first = places->first;
    return attention_by(f, l, p, &params);
}

/* ---- shared K/V -------------------------------------------------------------------------------------------------- */

bool finish_kv_layers(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const int32_t *source = NULL;
    bool shares = false;
    int64_t factor = 1;
    size_t n = 0;

    if (rg_config_flag(ckpt, "use_cla", &shares, err) < 0 ||
        rg_config_int(ckpt, "cla_share_factor", 1, INT32_MAX, &factor, err) < 0 ||
        rg_meta_ints(ckpt, "kv_source_layers", &source, &n, err) < 0)
        return false;
    if (source && !require_length(c, ckpt, "kv_source_layers", n, err))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        int from = source ? source[i] : shares ? (int)(i - i % factor) : i;

        if (from < 0 || from > i || (from < i && c->layer[from].kv_layer >= 0))
            return rg_fail(err, RG_E_INPUT, "%s: kv_source_layers.%d is %d, which is no earlier layer with K/V",
                           rg_checkpoint_path(ckpt), i, from);
        c->layer[i].kv_layer = from < i ? from : -1;
    }
    return true;
}

bool require_plain_sights(const rg_config *c, rg_error *err)
{
    for (int i = 0; i < c->n_layers; i++) {
        const rg_layer_config *l = &c->layer[i];

        if (l->window || l->pattern >= 0 || l->kv_layer >= 0)
            return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for %s of this architecture (layer %d)",
                           l->kv_layer >= 0 ? "shared K/V" : "windows and patterns of attention", i);
    }
    return true;
}
