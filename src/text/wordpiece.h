/* wordpiece.h -- the models that look words up: WordPiece, which takes the longest piece from the left again and again,
 * and WordLevel, for which a word is a piece or unknown. */
#ifndef RG_TEXT_WORDPIECE_H
#define RG_TEXT_WORDPIECE_H

#include "text/tokenizer.h"
#include "text/trie.h"

typedef struct rg_wordpiece {
    const rg_vocab *vocab;
    rg_trie trie;
    uint32_t inside;  /* the node that the continuing prefix leads to; 0 with has_inside false: no piece continues */
    bool has_inside;
    int32_t unk;      /* -1: an unknown word cannot be encoded */
    size_t max_chars; /* a longer word is unknown */
} rg_wordpiece;

/* The vocabulary is complete, and outlives m.  WordLevel needs no tree of pieces. */
bool rg_wordpiece_init(rg_wordpiece *m, const rg_vocab *vocab, rg_string prefix,
                       bool (*keep)(const rg_vocab *v, int32_t id), rg_error *err);
void rg_wordpiece_fini(rg_wordpiece *m);

bool rg_wordpiece_encode(const rg_wordpiece *m, rg_string word, bool plain, rg_ids *ids, rg_error *err);
bool rg_wordlevel_encode(const rg_wordpiece *m, rg_string word, bool plain, rg_ids *ids, rg_error *err);

#endif
