/* grammar.c -- see grammar.h: compiling, and where an answer stands. */
#include "grammar/grammar.h"

#include <math.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "grammar/mask.h"
#include "grammar/source.h"

enum { STATE_FRAMES = 2048 };

struct rg_grammar {
    atomic_int refs;
    const rg_grammar_vocab *v;
    rg_form form;
    rg_masks *masks;
};

struct rg_grammar_state {
    rg_grammar *g;
    rg_stacks stacks;
    rg_heads heads, next[2];
    uint64_t *bits;
    bool lost;
    bool scratch; /* g is borrowed, and may change */
};

static void free_grammar(rg_grammar *g)
{
    if (!g)
        return;
    rg_masks_free(g->masks);
    rg_form_fini(&g->form);
    rg_free(g);
}

uint32_t rg_source(rg_form *f, rg_grammar_kind kind, const char *text, size_t n, rg_writing how)
{
    if (n > RG_SOURCE_BYTES) {
        rg_form_fail(f, RG_E_LIMIT, "a grammar of %zu bytes, of at most %d", n, RG_SOURCE_BYTES);
        return RG_NEVER;
    }
    switch (kind) {
    case RG_GRAMMAR_GBNF: return rg_gbnf(f, text, n);
    case RG_GRAMMAR_REGEX: return rg_pattern(f, text, n, how, true);
    case RG_GRAMMAR_CHOICE: return rg_choice(f, text, n);
    case RG_GRAMMAR_JSON: return rg_any_json(f);
    case RG_GRAMMAR_JSON_SCHEMA: return rg_schema(f, text, n);
    case RG_GRAMMAR_LARK: return rg_lark(f, text, n, how);
    }
    rg_form_fail(f, RG_E_USAGE, "there is no grammar of kind %d", (int)kind);
    return RG_NEVER;
}

/* The free text before the grammar, if any, and the grammar, or either of two. */
static uint32_t read_source(rg_form *f, const rg_grammar_source *s)
{
    uint32_t root = rg_source(f, s->kind, s->text, s->n, RG_WRITE_UTF8), before;

    if (s->other && !f->failed) {
        uint32_t way[] = { root, rg_source(f, s->other->kind, s->other->text, s->other->n, RG_WRITE_UTF8) };
        root = rg_form_alt(f, way, RG_LEN(way));
    }
    if (!s->after || f->failed)
        return root;
    before = rg_until(f, s->after, strlen(s->after));
    return RG_SEQ(f, before, rg_form_rep(f, rg_form_str(f, "\n"), 0, 2), root);
}

/* True if an answer can begin, and all alternatives of its beginning can be followed. */
static bool check_beginning(rg_grammar *g, rg_error *err)
{
    rg_grammar_state *s = rg_grammar_start(g, err);
    bool some = false, lost = false;

    if (!s)
        return false;
    for (unsigned byte = 0; byte < 256; byte++) {
        if (!rg_set_has(&g->v->spelled, byte))
            continue;
        rg_step(&g->form, &s->stacks, s->heads.id, s->heads.n, (uint8_t)byte, &s->next[0]);
        some |= s->next[0].n > 0;
        lost |= s->stacks.lost;
        rg_stacks_reset(&s->stacks);
        s->heads.id[0] = rg_stacks_push(&s->stacks, g->form.root, 0, RG_STACK_END);
    }
    some |= rg_grammar_complete(s);
    rg_grammar_stop(s);
    if (lost)
        return rg_fail(err, RG_E_LIMIT, "the grammar is too ambiguous: its answers can begin in more ways than are "
                       "followed at once (%d, found among %d parts of the grammar)", RG_HEADS, RG_LOOKS);
    return some || rg_fail(err, RG_E_INPUT, "nothing can satisfy the grammar");
}

rg_grammar *rg_grammar_compile(const rg_grammar_vocab *v, const rg_grammar_source *source, rg_error *err)
{
    rg_grammar *g = rg_zalloc(sizeof *g);
    rg_error why;

    if (!g)
        return rg_fail_memory(err, sizeof *g), NULL;
    atomic_init(&g->refs, 1);
    g->v = v;
    if (!rg_form_init(&g->form, &why))
        goto fail;
    g->form.open_objects = source->open_objects;
    g->form.root = read_source(&g->form, source);
    if (!rg_form_refine(&g->form, &v->spelled))
        goto fail;
    g->masks = rg_masks_new(&g->form, v);
    if (!g->masks) {
        rg_form_fail(&g->form, RG_E_MEMORY, "out of memory for the masks of a grammar");
        goto fail;
    }
    if (!check_beginning(g, &why))
        goto fail;
    g->form.err = NULL;
    return g;

fail:
    rg_fail(err, why.code, "%s", why.text);
    free_grammar(g);
    return NULL;
}

void rg_grammar_ref(rg_grammar *g)
{
    atomic_fetch_add(&g->refs, 1);
}

void rg_grammar_unref(rg_grammar *g)
{
    if (g && atomic_fetch_sub(&g->refs, 1) == 1)
        free_grammar(g);
}

size_t rg_grammar_bytes(const rg_grammar *g)
{
    return sizeof *g + rg_form_bytes(&g->form) + rg_masks_bytes(g->masks);
}

/* ---- an answer --------------------------------------------------------------------------------------------------- */

static rg_grammar_state *new_state(const rg_grammar_vocab *v, rg_error *err)
{
    rg_grammar_state *s = rg_zalloc(sizeof *s);

    if (s) {
        s->bits = rg_array(rg_vocab_words(v), sizeof *s->bits);
        if (!rg_stacks_init(&s->stacks, STATE_FRAMES) || !s->bits) {
            rg_stacks_fini(&s->stacks);
            rg_free(s->bits);
            rg_free(s);
            s = NULL;
        }
    }
    if (!s)
        rg_fail_memory(err, sizeof *s);
    return s;
}

rg_grammar_state *rg_grammar_scratch(const rg_grammar_state *like, rg_error *err)
{
    rg_grammar_state *s = new_state(like->g->v, err);

    if (s)
        s->scratch = true;
    return s;
}

rg_grammar_state *rg_grammar_start(rg_grammar *g, rg_error *err)
{
    rg_grammar_state *s = new_state(g->v, err);

    if (!s)
        return NULL;
    rg_grammar_ref(g);
    s->g = g;
    s->heads.n = 1;
    s->heads.id[0] = rg_stacks_push(&s->stacks, g->form.root, 0, RG_STACK_END);
    return s;
}

void rg_grammar_stop(rg_grammar_state *s)
{
    if (!s)
        return;
    if (!s->scratch)
        rg_grammar_unref(s->g);
    rg_stacks_fini(&s->stacks);
    rg_free(s->bits);
    rg_free(s);
}

void rg_grammar_copy(rg_grammar_state *to, const rg_grammar_state *from)
{
    RG_ASSERT(to->g == from->g || to->scratch);
    to->g = from->g;
    rg_stacks_copy(&to->stacks, &from->stacks);
    to->heads = from->heads;
    to->lost = from->lost;
}

void rg_grammar_prepare(rg_grammar *g)
{
    rg_grammar_state *s = rg_grammar_start(g, NULL);

    if (s) /* without memory, the first answer makes the mask */
        rg_masks_find(g->masks, &s->stacks, &s->heads, s->bits);
    rg_grammar_stop(s);
}

bool rg_grammar_advance(rg_grammar_state *s, int32_t id)
{
    const rg_grammar_vocab *v = s->g->v;
    const rg_heads *from = &s->heads;
    bool lost = false;

    if (id < 0 || id >= v->n || v->same[id] == RG_UNUSABLE)
        return false;
    if (s->stacks.n > STATE_FRAMES / 2)
        rg_stacks_compact(&s->stacks, &s->heads);
    for (uint32_t i = v->offset[id], turn = 0; i < v->offset[id + 1]; i++, turn ^= 1) {
        rg_step(&s->g->form, &s->stacks, from->id, from->n, (uint8_t)v->data[i], &s->next[turn]);
        from = &s->next[turn];
        lost |= s->stacks.lost;
        if (!from->n)
            return false;
    }
    s->heads = *from;
    s->lost |= lost;
    return true;
}

bool rg_grammar_lost(const rg_grammar_state *s)
{
    return s->lost;
}

void rg_grammar_lose(rg_grammar_state *s)
{
    s->lost = true;
}

bool rg_grammar_complete(const rg_grammar_state *s)
{
    for (uint32_t i = 0; i < s->heads.n; i++)
        if (rg_stack_may_end(&s->g->form, &s->stacks, s->heads.id[i], RG_STACK_END))
            return true;
    return false;
}

static bool any_bit(const rg_grammar_state *s)
{
    uint64_t any = 0;

    for (uint32_t i = 0, n = rg_vocab_words(s->g->v); i < n; i++)
        any |= s->bits[i];
    return any != 0;
}

static void find_mask(rg_grammar_state *s)
{
    if (!rg_masks_find(s->g->masks, &s->stacks, &s->heads, s->bits))
        s->lost = true;
}

bool rg_grammar_stuck(rg_grammar_state *s)
{
    if (!rg_grammar_complete(s))
        return false;
    find_mask(s);
    return !any_bit(s);
}

/* Ban the logits of one word of bits.  Most bits of a word are alike, so the loop visits the rarer ones. */
static void ban(float *logits, uint64_t allowed)
{
    float kept[64];
    int n = 0;

    if (__builtin_popcountll(allowed) > 32) {
        for (uint64_t b = ~allowed; b; b &= b - 1)
            logits[__builtin_ctzll(b)] = -INFINITY;
        return;
    }
    for (uint64_t b = allowed; b; b &= b - 1)
        kept[n++] = logits[__builtin_ctzll(b)];
    for (int i = 0; i < 64; i++)
        logits[i] = -INFINITY;
    n = 0;
    for (uint64_t b = allowed; b; b &= b - 1)
        logits[__builtin_ctzll(b)] = kept[n++];
}

void rg_grammar_mask(rg_grammar_state *s, float *logits, int32_t n, const int32_t *ends, int32_t n_ends,
                     bool may_end)
{
    uint32_t n_words = rg_vocab_words(s->g->v), total = (uint32_t)n, w = 0;
    bool any;

    find_mask(s);
    for (int32_t i = 0; i < n_ends; i++)
        if (ends[i] >= 0 && ends[i] < s->g->v->n)
            s->bits[ends[i] >> 6] &= ~(1ULL << (ends[i] & 63));
    any = any_bit(s);
    if (!any || (may_end && rg_grammar_complete(s)))
        for (int32_t i = 0; i < n_ends; i++)
            if (ends[i] >= 0 && ends[i] < s->g->v->n)
                s->bits[ends[i] >> 6] |= 1ULL << (ends[i] & 63);
    for (; w < n_words && (w + 1) * 64 <= total; w++)
        if (s->bits[w] != UINT64_MAX)
            ban(logits + w * 64, s->bits[w]);
    for (uint32_t i = w * 64; i < total; i++)
        if (i >= n_words * 64 || !(s->bits[i >> 6] >> (i & 63) & 1))
            logits[i] = -INFINITY;
}
