/* unigram.c -- see unigram.h. */
#include "text/unigram.h"

#include <string.h>

#include "base/mem.h"
#include "text/clean.h"
#include "text/internal.h"

#define UNK_PENALTY 10.0

/* Steps in the tree of pieces that a word may cost: pieces of published vocabularies are far shorter. */
enum { STEPS_PER_BYTE = 1024, STEPS_BASE = 1 << 20 };

/* The best way to the byte that it stands at. */
typedef struct rg_unigram_node {
    double score;
    uint32_t from; /* where its last piece starts; on the way back, where the next piece ends */
    int32_t id;    /* of that piece; NONE: there is no way here */
} node;

enum { NONE = -2 };

bool rg_unigram_init(rg_unigram *u, const rg_vocab *vocab, double *scores, double lowest,
                     bool (*keep)(const rg_vocab *v, int32_t id), rg_error *err)
{
    *u = (rg_unigram){ .vocab = vocab, .score = scores, .unk_score = lowest - UNK_PENALTY, .unk = -1 };
    rg_vocab_bytes(vocab, u->byte);
    return rg_trie_init(&u->trie, vocab, keep, err);
}

void rg_unigram_fini(rg_unigram *u)
{
    rg_trie_fini(&u->trie);
    rg_free(u->score);
    *u = (rg_unigram){ 0 };
}

void rg_unigram_work_fini(rg_unigram_work *w)
{
    rg_free(w->node);
    *w = (rg_unigram_work){ 0 };
}

/* A word on its way to ids.  Up to `base` its pieces are final; nodes are from there up to `top`, where the longest
 * piece that was found ends. */
typedef struct path {
    const rg_unigram *u;
    rg_unigram_work *w;
    rg_string word;
    bool plain;
    size_t base, top;
    size_t unknown; /* bytes before base that are unknown, and may go on */
    rg_ids *ids;
    rg_error *err;
} path;

/* Nodes up to the byte `to`. */
static bool reach(path *z, size_t to)
{
    rg_unigram_work *w = z->w;

    if (to - z->base >= w->room) {
        size_t room = w->room ? w->room : 256;
        node *list;
        while (room <= to - z->base)
            room *= 2;
        list = rg_resize_array(w->node, room, sizeof *list);
        if (!list)
            return rg_fail_memory(z->err, room * sizeof *list);
        w->node = list;
        w->room = room;
    }
    while (z->top < to)
        w->node[++z->top - z->base].id = NONE;
    return true;
}

static void offer(node *to, double score, size_t from, int32_t id)
{
    if (to->id == NONE || score > to->score)
        *to = (node){ score, (uint32_t)from, id };
}

/* Every piece that starts at byte i, or the character there as an unknown. */
static bool offer_all(path *z, size_t i, size_t length, size_t *steps)
{
    const rg_unigram *u = z->u;
    double here = z->w->node[i - z->base].score;
    bool single = false;
    uint32_t at = 0;

    for (size_t k = i; k < z->word.n && (at = rg_trie_step(&u->trie, at, (unsigned char)z->word.data[k])); k++) {
        int32_t id = u->trie.node[at].id;
        if (!(*steps)--)
            return rg_fail(z->err, RG_E_LIMIT, "the pieces of the vocabulary are too long for a text like this");
        if (id < 0 || (z->plain && u->vocab->type[id] == RG_PIECE_SPECIAL))
            continue;
        if (k + 1 > z->top && !reach(z, k + 1))
            return false;
        offer(&z->w->node[k + 1 - z->base], u->score[id] + here, i - z->base, id);
        single |= k + 1 - i == length;
    }
    if (single)
        return true;
    if (i + length > z->top && !reach(z, i + length))
        return false;
    offer(&z->w->node[i + length - z->base], u->unk_score + here, i - z->base, u->unk);
    return true;
}

/* An unknown stretch: it may be a piece all the same, or bytes. */
static bool add_unknown(const rg_unigram *u, rg_string s, bool plain, rg_ids *ids, rg_error *err)
{
    int32_t id = rg_vocab_id(u->vocab, s.data, s.n);
    size_t before = ids->n;

    if (id >= 0 && !(plain && u->vocab->type[id] == RG_PIECE_SPECIAL))
        return rg_ids_add(ids, id, err);
    for (size_t i = 0; u->byte_fallback && i < s.n;) {
        int length = rg_clean_length(s.data + i), stray = rg_clean_stray(s.data + i, length);
        for (int k = 0; k < (stray >= 0 ? 1 : length); k++) {
            int32_t byte = u->byte[stray >= 0 ? stray : (unsigned char)s.data[i + (size_t)k]];
            if (byte < 0)
                goto unknown; /* one is missing: none is used */
            if (!rg_ids_add(ids, byte, err))
                return false;
        }
        i += (size_t)length;
    }
    if (ids->n > before)
        return true;

unknown:
    ids->n = before;
    if (u->unk < 0)
        return rg_fail(err, RG_E_INPUT, "a character is in no piece of the vocabulary, and there is no unk_id");
    return rg_ids_add(ids, u->unk, err);
}

static bool end_unknown(path *z, size_t at)
{
    rg_string s = { z->word.data + at - z->unknown, z->unknown };

    z->unknown = 0;
    return !s.n || add_unknown(z->u, s, z->plain, z->ids, z->err);
}

/* No piece crosses the byte at the top, so the best path up to it is part of the best path of the word. */
static bool settle(path *z)
{
    node *best = z->w->node;
    uint32_t n = (uint32_t)(z->top - z->base), next = 0;

    for (uint32_t at = n; at;) { /* the links turned round: to where the next piece ends */
        uint32_t from = best[at].from;
        best[at].from = next;
        next = at;
        at = from;
    }
    best[0].from = next;
    for (uint32_t at = 0, to; at < n; at = to) {
        to = best[at].from;
        if (best[to].id == z->u->unk) /* unknown neighbours are one */
            z->unknown += to - at;
        else if (!end_unknown(z, z->base + at) || !rg_ids_add(z->ids, best[to].id, z->err))
            return false;
    }
    best[0] = (node){ .score = best[n].score, .id = NONE };
    z->base = z->top;
    return true;
}

bool rg_unigram_encode(const rg_unigram *u, rg_unigram_work *w, rg_string word, bool plain, rg_ids *ids, rg_error *err)
{
    path z = { .u = u, .w = w, .word = word, .plain = plain, .ids = ids, .err = err };
    size_t steps = STEPS_BASE + word.n * STEPS_PER_BYTE;

    if (word.n > INT32_MAX)
        return rg_fail(err, RG_E_LIMIT, "a word of %zu bytes, more than %d", word.n, INT32_MAX);
    if (!reach(&z, 0))
        return false;
    w->node[0] = (node){ .id = NONE };
    for (size_t i = 0; i < word.n;) {
        size_t length = (size_t)rg_clean_length(word.data + i);
        if (!offer_all(&z, i, length, &steps))
            return false;
        i += length;
        if (i == z.top && !settle(&z))
            return false;
    }
    return end_unknown(&z, word.n);
}

static bool model_encode(const rg_tokenizer *t, rg_model_work *w, rg_string word, bool plain, rg_ids *ids,
                         rg_error *err)
{
    return rg_unigram_encode(&t->unigram, &w->unigram, word, plain, ids, err);
}

static void model_fini(rg_tokenizer *t)
{
    rg_unigram_fini(&t->unigram);
}

const rg_word_model rg_word_model_unigram = { "Unigram", model_encode, model_fini };
