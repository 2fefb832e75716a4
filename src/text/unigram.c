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

static bool make_room(rg_unigram_work *w, size_t n, rg_error *err)
{
    if (n <= w->room)
        return true;
    n = n < 256 ? 256 : n;
    rg_free(w->node);
    w->room = 0;
    w->node = rg_alloc(n * sizeof *w->node);
    if (!w->node)
        return rg_fail_memory(err, n * sizeof *w->node);
    w->room = n;
    return true;
}

static void offer(node *to, double score, size_t from, int32_t id)
{
    if (to->id == NONE || score > to->score)
        *to = (node){ score, (uint32_t)from, id };
}

static bool forward(const rg_unigram *u, node *best, rg_string word, bool plain, rg_error *err)
{
    size_t steps = STEPS_BASE + word.n * STEPS_PER_BYTE;

    for (size_t i = 0; i < word.n;) {
        size_t length = (size_t)rg_clean_length(word.data + i);
        double here = best[i].score;
        bool single = false;
        uint32_t at = 0;

        for (size_t k = i; k < word.n && (at = rg_trie_step(&u->trie, at, (unsigned char)word.data[k])); k++) {
            int32_t id = u->trie.node[at].id;
            if (!steps--)
                return rg_fail(err, RG_E_LIMIT, "the pieces of the vocabulary are too long for a text like this");
            if (id < 0 || (plain && u->vocab->type[id] == RG_PIECE_SPECIAL))
                continue;
            offer(&best[k + 1], u->score[id] + here, i, id);
            single |= k + 1 - i == length;
        }
        if (!single)
            offer(&best[i + length], u->unk_score + here, i, u->unk);
        i += length;
    }
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

bool rg_unigram_encode(const rg_unigram *u, rg_unigram_work *w, rg_string word, bool plain, rg_ids *ids, rg_error *err)
{
    uint32_t next = 0;
    node *best;

    if (word.n > INT32_MAX)
        return rg_fail(err, RG_E_LIMIT, "a word of %zu bytes, more than %d", word.n, INT32_MAX);
    if (!make_room(w, word.n + 1, err))
        return false;
    best = w->node;
    for (size_t i = 0; i <= word.n; i++)
        best[i] = (node){ 0, 0, NONE };
    if (!forward(u, best, word, plain, err))
        return false;
    for (uint32_t at = (uint32_t)word.n; at;) { /* the links turned round: to where the next piece ends */
        uint32_t from = best[at].from;
        best[at].from = next;
        next = at;
        at = from;
    }
    best[0].from = next;
    for (uint32_t at = 0; at < word.n;) {
        uint32_t to = best[at].from, from = at;
        int32_t id = best[to].id;
        at = to;
        if (id != u->unk) {
            if (!rg_ids_add(ids, id, err))
                return false;
            continue;
        }
        while (at < word.n && best[best[at].from].id == u->unk) /* unknown neighbours are one */
            at = best[at].from;
        if (!add_unknown(u, (rg_string){ word.data + from, at - from }, plain, ids, err))
            return false;
    }
    return true;
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
