/* bpe_train.h -- a byte-level BPE vocabulary from texts (Sennrich et al. 2016), by a fixed rule.
 *
 * Texts are cut into words by llama 3's pattern; special tokens stand outside.  Ids: the special tokens, the 256
 * bytes in the order of the characters that stand for them, then the merges.  Each merge is of the pair of
 * neighbours that is the most frequent in all words; of equal ones that with the lowest ids (the tokenizers
 * library's rule).  It ends at the size that is asked for, or when every word is one piece. */
#ifndef RG_TEXT_BPE_TRAIN_H
#define RG_TEXT_BPE_TRAIN_H

#include "base/buf.h"

enum { RG_BPE_LEAST = 256, RG_BPE_SPECIAL = 64 };

typedef struct rg_bpe_training rg_bpe_training;

rg_bpe_training *rg_bpe_training_new(rg_error *err);
void rg_bpe_training_free(rg_bpe_training *t); /* NULL is fine */
/* Count the words of a text, which may be a part of one that is cut between words.  False and *err: no memory, or more
 * than 2^30 different words. */
bool rg_bpe_training_add(rg_bpe_training *t, const char *text, size_t n, rg_error *err) RG_MUST_CHECK;
/* Merge until there are `size` ids, special tokens included, and write the tokenizer as tokenizer.json; the first
 * special token stands in front of texts.  *got: how many ids there are. */
bool rg_bpe_training_end(rg_bpe_training *t, int size, const char *const *special, int n_special, rg_buf *json,
                         int *got, rg_error *err) RG_MUST_CHECK;

#endif
