/* unigram.h -- the Unigram model: of all ways to write a word as pieces, the one whose scores have the largest sum.
 *
 * Kudo, "Subword Regularization" (2018): the path is found by Viterbi's algorithm, byte after byte.  Sums are
 * double, in the order of the text, and ties go to the path that was found first, as in the published
 * implementations. */
#ifndef RG_TEXT_UNIGRAM_H
#define RG_TEXT_UNIGRAM_H

#include "text/tokenizer.h"
#include "text/trie.h"

typedef struct rg_unigram {
    const rg_vocab *vocab;
    rg_trie trie;
    double *score; /* [vocab->n] */
    double unk_score;
    int32_t unk; /* -1: a character that is in no piece cannot be encoded */
    int32_t byte[256];
    bool byte_fallback;
} rg_unigram;

/* Take over the scores; the vocabulary is complete, and outlives u.  lowest: the score of the worst piece. */
bool rg_unigram_init(rg_unigram *u, const rg_vocab *vocab, double *scores, double lowest,
                     bool (*keep)(const rg_vocab *v, int32_t id), rg_error *err);
void rg_unigram_fini(rg_unigram *u);

/* Memory of one call. */
typedef struct rg_unigram_work {
    struct rg_unigram_node *node;
    size_t room;
} rg_unigram_work;

void rg_unigram_work_fini(rg_unigram_work *w);

bool rg_unigram_encode(const rg_unigram *u, rg_unigram_work *w, rg_string word, bool plain, rg_ids *ids, rg_error *err);

#endif
