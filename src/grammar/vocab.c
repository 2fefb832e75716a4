/* vocab.c -- see vocab.h and grammar.h. */
#include "grammar/vocab.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/utf8.h"
#include "grammar/object.h"

enum { LONGEST = 255, SCRATCH_FRAMES = 1 << 15 };

static void free_scratch(rg_mask_scratch *w)
{
    if (!w)
        return;
    pthread_mutex_destroy(&w->lock);
    rg_stacks_fini(&w->stacks);
    rg_free(w->config);
    rg_free(w->heads);
    rg_free(w->row);
    rg_free(w->slot);
    rg_free(w->bits);
    rg_free(w);
}

static rg_mask_scratch *new_scratch(uint32_t n_words)
{
    rg_mask_scratch *w = rg_zalloc(sizeof *w);

    if (!w)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    w->config = rg_array(RG_CONFIGS, sizeof *w->config);
    w->heads = rg_array(RG_CONFIG_HEADS, sizeof *w->heads);
    w->row = rg_array((size_t)RG_CONFIGS * 256, sizeof *w->row);
    w->slot = rg_array(RG_CONFIG_SLOTS, sizeof *w->slot);
    w->bits = rg_array(n_words, sizeof *w->bits);
    if (!rg_stacks_init(&w->stacks, SCRATCH_FRAMES) || !w->config || !w->heads || !w->row || !w->slot || !w->bits) {
        free_scratch(w);
        return NULL;
    }
    return w;
}

static bool make_scratches(rg_grammar_vocab *v)
{
    int n = rg_cores() < RG_MASK_SCRATCHES ? rg_cores() : RG_MASK_SCRATCHES;

    for (; v->n_scratches < n; v->n_scratches++)
        if (!(v->scratch[v->n_scratches] = new_scratch(rg_vocab_words(v))))
            return false;
    return true;
}

rg_mask_scratch *rg_mask_scratch_take(const rg_grammar_vocab *v)
{
    for (int i = 0; i < v->n_scratches; i++)
        if (!pthread_mutex_trylock(&v->scratch[i]->lock))
            return v->scratch[i];
    pthread_mutex_lock(&v->scratch[0]->lock);
    return v->scratch[0];
}

void rg_mask_scratch_give(rg_mask_scratch *w)
{
    pthread_mutex_unlock(&w->lock);
}

typedef struct text {
    const unsigned char *s;
    uint32_t n;
    int32_t id;
} text;

static int by_bytes(const void *a, const void *b)
{
    const text *x = a, *y = b;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);

    if (!order)
        order = (x->n > y->n) - (x->n < y->n);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

/* Which bytes there are by themselves.  True: all that characters beyond ASCII can have. */
static bool find_spelled(rg_grammar_vocab *v)
{
    for (int32_t i = 0; i < v->n; i++)
        if (v->offset[i + 1] - v->offset[i] == 1) {
            unsigned char c = (unsigned char)v->data[v->offset[i]];
            rg_set_add(&v->spelled, c, c);
        }
    for (unsigned c = 0x80; c <= 0xF4; c++)
        if (c != 0xC0 && c != 0xC1 && !rg_set_has(&v->spelled, c))
            return false;
    return true;
}

/* The ids that can come, sorted by their bytes; *n_bytes: of all together. */
static uint32_t list_texts(rg_grammar_vocab *v, text *t, size_t *n_bytes)
{
    bool all = find_spelled(v);
    uint32_t n = 0;

    *n_bytes = 0;
    if (!all)
        for (int i = 2; i < 4; i++)
            v->spelled.bit[i] = 0; /* of whole characters alone */
    for (int32_t i = 0; i < v->n; i++) {
        const char *s = v->data + v->offset[i];
        uint32_t bytes = v->offset[i + 1] - v->offset[i];

        v->same[i] = RG_UNUSABLE;
        if (!bytes || bytes > LONGEST || (!all && !rg_utf8_valid(s, bytes)))
            continue;
        for (uint32_t k = 0; !all && k < bytes; k++)
            if ((unsigned char)s[k] >= 0x80)
                rg_set_add(&v->spelled, (unsigned char)s[k], (unsigned char)s[k]);
        v->same[i] = -1;
        t[n++] = (text){ (const unsigned char *)s, bytes, i };
        *n_bytes += bytes;
        v->longest = (int)bytes > v->longest ? (int)bytes : v->longest;
    }
    qsort(t, n, sizeof *t, by_bytes);
    return n;
}

static void build(rg_grammar_vocab *v, const text *t, uint32_t n)
{
    uint32_t path[LONGEST + 1] = { 0 }, depth = 0;

    v->piece[0] = (rg_piece){ .id = -1 };
    v->n_pieces = 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = 0;

        while (i && same < t[i].n && same < t[i - 1].n && t[i].s[same] == t[i - 1].s[same])
            same++;
        for (; depth > same; depth--)
            v->piece[path[depth]].skip = v->n_pieces;
        for (; depth < t[i].n; depth++) {
            path[depth + 1] = v->n_pieces;
            v->piece[v->n_pieces++] = (rg_piece){ .id = -1, .byte = t[i].s[depth], .depth = (uint8_t)(depth + 1) };
        }
        v->same[t[i].id] = v->piece[path[depth]].id;
        v->piece[path[depth]].id = t[i].id;
    }
    for (; depth > 0; depth--)
        v->piece[path[depth]].skip = v->n_pieces;
    v->piece[0].skip = v->n_pieces;
}

/* True if every plain character can be written. */
static bool spells_text(const rg_grammar_vocab *v)
{
    for (unsigned c = 0x20; c <= 0xF4; c++)
        if (c != 0xC0 && c != 0xC1 && !rg_set_has(&v->spelled, c))
            return false;
    return true;
}

/* Add the ids of a place whose text of plain characters has been read up to here. */
static void add_text(rg_grammar_vocab *v, uint32_t place, uint32_t *n)
{
    for (int32_t id = v->piece[place].id; id >= 0; id = v->same[id]) {
        v->text_id[(*n)++] = (uint32_t)id;
        v->text_bits[id >> 6] |= 1ULL << (id & 63);
    }
}

static int32_t some_id(const rg_grammar_vocab *v, uint32_t place)
{
    while (v->piece[place].id < 0)
        place++; /* every place has an id below it */
    return v->piece[place].id;
}

/* Find the texts of plain characters.  False: no memory. */
static bool find_text(rg_grammar_vocab *v)
{
    uint8_t lex[LONGEST + 1] = { RG_LEX_TEXT }, since[LONGEST + 1] = { 0 }; /* by depth: state, bytes of a character */
    uint32_t n = 0;

    if (!spells_text(v))
        return true;
    v->text_id = rg_array((size_t)v->n + 1 /* fits: n is an int */, sizeof *v->text_id);
    v->text_before = rg_array((size_t)v->n_pieces + 1 /* fits: pieces are in memory */, sizeof *v->text_before);
    v->text_bits = rg_array(rg_vocab_words(v), sizeof *v->text_bits);
    v->text_place = rg_array(v->n_pieces, 1);
    v->text_stop = rg_array(v->n_pieces, sizeof *v->text_stop);
    if (!v->text_id || !v->text_before || !v->text_bits || !v->text_place || !v->text_stop)
        return false;
    v->text_place[0] = 1;
    for (uint32_t i = 1; i < v->n_pieces; i++) {
        const rg_piece *p = &v->piece[i];
        int had = lex[p->depth - 1], now = had == RG_LEX_STATES ? RG_LEX_STATES : rg_lex(had, p->byte);
        bool ends = had == RG_LEX_TEXT && (p->byte == '"' || p->byte == '\\');

        v->text_before[i] = n;
        lex[p->depth] = (uint8_t)(ends ? RG_LEX_STATES : now);
        since[p->depth] = (uint8_t)(had == RG_LEX_TEXT ? 1 : since[p->depth - 1] + 1);
        v->text_place[i] = !ends && now == RG_LEX_TEXT;
        if (v->text_place[i])
            add_text(v, i, &n);
        else if (ends || (now != RG_LEX_STATES && p->id >= 0))
            v->text_stop[v->n_text_stops++] =
                    (rg_text_stop){ i, some_id(v, i), ends ? 0 : since[p->depth] };
    }
    v->text_before[v->n_pieces] = n;
    return true;
}

rg_grammar_vocab *rg_grammar_vocab_new(const char *data, const uint32_t *offset, int32_t n, rg_error *err)
{
    rg_grammar_vocab *v = rg_zalloc(sizeof *v);
    text *t = rg_array((size_t)n, sizeof *t);
    size_t n_bytes = 0;
    uint32_t n_texts;

    if (!v || !t)
        goto fail;
    *v = (rg_grammar_vocab){ .data = data, .offset = offset, .n = n };
    v->same = rg_array((size_t)n, sizeof *v->same);
    if (!v->same || !make_scratches(v))
        goto fail;
    n_texts = list_texts(v, t, &n_bytes);
    if (n_bytes >= UINT32_MAX / sizeof *v->piece) {
        rg_fail(err, RG_E_LIMIT, "a vocabulary of %zu bytes", n_bytes);
        goto refused;
    }
    v->piece = rg_zalloc_tail(sizeof *v->piece, n_bytes, sizeof *v->piece);
    if (!v->piece)
        goto fail;
    build(v, t, n_texts);
    if (!find_text(v))
        goto fail;
    rg_free(t);
    return v;

fail:
    rg_fail_memory(err, (size_t)n * sizeof *t + n_bytes * sizeof(rg_piece));
refused:
    rg_free(t);
    rg_grammar_vocab_free(v);
    return NULL;
}

void rg_grammar_vocab_free(rg_grammar_vocab *v)
{
    if (!v)
        return;
    for (int i = 0; i < v->n_scratches; i++)
        free_scratch(v->scratch[i]);
    rg_free(v->piece);
    rg_free(v->text_id);
    rg_free(v->text_before);
    rg_free(v->text_bits);
    rg_free(v->text_place);
    rg_free(v->text_stop);
    rg_free(v->same);
    rg_free(v);
}
