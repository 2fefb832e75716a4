/* wordpiece.c -- see wordpiece.h. */
#include "text/wordpiece.h"

#include <string.h>

#include "text/clean.h"
#include "text/internal.h"

enum { STEPS_PER_BYTE = 1024, STEPS_BASE = 1 << 20 }; /* in the tree, for one word */

bool rg_wordpiece_init(rg_wordpiece *m, const rg_vocab *vocab, rg_string prefix,
                       bool (*keep)(const rg_vocab *v, int32_t id), rg_error *err)
{
    uint32_t at = 0;
    size_t i = 0;

    *m = (rg_wordpiece){ .vocab = vocab, .unk = -1, .max_chars = SIZE_MAX };
    if (!rg_trie_init(&m->trie, vocab, keep, err))
        return false;
    while (i < prefix.n && (at = rg_trie_step(&m->trie, at, (unsigned char)prefix.data[i])))
        i++;
    m->inside = at;
    m->has_inside = i == prefix.n;
    return true;
}

void rg_wordpiece_fini(rg_wordpiece *m)
{
    rg_trie_fini(&m->trie);
    *m = (rg_wordpiece){ 0 };
}

static bool allowed(const rg_wordpiece *m, int32_t id, bool plain)
{
    return id >= 0 && !(plain && m->vocab->type[id] == RG_PIECE_SPECIAL);
}

static bool add_unknown(const rg_wordpiece *m, rg_ids *ids, rg_error *err)
{
    if (m->unk < 0)
        return rg_fail(err, RG_E_INPUT, "a word is not in the vocabulary, and neither is what stands for unknown ones");
    return rg_ids_add(ids, m->unk, err);
}

/* More characters than a word may have. */
static bool too_long(const rg_wordpiece *m, rg_string word)
{
    size_t n = 0;

    if (word.n <= m->max_chars)
        return false;
    for (size_t i = 0; i < word.n && n <= m->max_chars; n++)
        i += (size_t)rg_clean_length(word.data + i);
    return n > m->max_chars;
}

bool rg_wordpiece_encode(const rg_wordpiece *m, rg_string word, bool plain, rg_ids *ids, rg_error *err)
{
    size_t steps = STEPS_BASE + word.n * STEPS_PER_BYTE, before = ids->n;

    if (too_long(m, word))
        return add_unknown(m, ids, err);
    for (size_t i = 0; i < word.n;) {
        uint32_t at = i ? m->inside : 0;
        size_t end = i;
        int32_t best = -1;

        for (size_t k = i; (m->has_inside || !i) && k < word.n; k++) {
            at = rg_trie_step(&m->trie, at, (unsigned char)word.data[k]);
            if (!at)
                break;
            if (!steps--)
                return rg_fail(err, RG_E_LIMIT, "the pieces of the vocabulary are too long for a text like this");
            if (allowed(m, m->trie.node[at].id, plain)) {
                best = m->trie.node[at].id;
                end = k + 1;
            }
        }
        if (best < 0) {
            ids->n = before;
            return add_unknown(m, ids, err);
        }
        if (!rg_ids_add(ids, best, err))
            return false;
        i = end;
    }
    return true;
}

bool rg_wordlevel_encode(const rg_wordpiece *m, rg_string word, bool plain, rg_ids *ids, rg_error *err)
{
    int32_t id = rg_vocab_id(m->vocab, word.data, word.n);

    return allowed(m, id, plain) ? rg_ids_add(ids, id, err) : add_unknown(m, ids, err);
}

static bool piece_encode(const rg_tokenizer *t, rg_model_work *w, rg_string word, bool plain, rg_ids *ids,
                         rg_error *err)
{
    (void)w;
    return rg_wordpiece_encode(&t->wordpiece, word, plain, ids, err);
}

static bool level_encode(const rg_tokenizer *t, rg_model_work *w, rg_string word, bool plain, rg_ids *ids,
                         rg_error *err)
{
    (void)w;
    return rg_wordlevel_encode(&t->wordpiece, word, plain, ids, err);
}

static void model_fini(rg_tokenizer *t)
{
    rg_wordpiece_fini(&t->wordpiece);
}

const rg_word_model rg_word_model_wordpiece = { "WordPiece", piece_encode, model_fini };
const rg_word_model rg_word_model_wordlevel = { "WordLevel", level_encode, model_fini };
