/* tokenizer.h -- text to ids and back, as the checkpoint's own tokenizer does it.
 *
 * Read from a tokenizer.json or from GGUF metadata into one shape: added tokens are cut out first, the rest is
 * normalised, split by the pre-tokenizer and given to the model (BPE by merge ranks or by scores, Unigram, WordPiece or
 * WordLevel), and a template adds the tokens around it.  Immutable once open; every function may be called from any
 * thread.  Cost grows linearly (times a logarithm) with the text, whatever the text.  Knows no tensors. */
#ifndef RG_TEXT_TOKENIZER_H
#define RG_TEXT_TOKENIZER_H

#include "base/spell.h"
#include "ckpt/checkpoint.h"
#include "text/provenance.h"

typedef struct rg_tokenizer rg_tokenizer;

/* The tokenizer of a checkpoint: tokenizer.json beside a Hugging Face one, the tokenizer.ggml.* keys of GGUF.  NULL
 * with err->code RG_OK if it has none; NULL and *err if it has one that cannot be used. */
rg_tokenizer *rg_tokenizer_open(const rg_checkpoint *ckpt, rg_error *err);
/* The same for a model whose embedding has so many rows: a tokenizer with more ids cannot be used. */
rg_tokenizer *rg_tokenizer_open_for(const rg_checkpoint *ckpt, int32_t n_rows, rg_error *err);
/* From a tokenizer.json, a folder that has one, or a checkpoint. */
rg_tokenizer *rg_tokenizer_open_path(const char *path, rg_error *err);
void rg_tokenizer_close(rg_tokenizer *t); /* NULL is fine */

typedef struct rg_ids {
    int32_t *id;
    size_t n, room;
} rg_ids;

void rg_ids_fini(rg_ids *ids);

/* Append the ids of text[0, n).  flags as rg_encode_flags (ridge.h).  False: no memory, or over 2^31 ids. */
bool rg_tokenizer_encode(const rg_tokenizer *t, const char *text, size_t n, unsigned flags, rg_ids *ids,
                         rg_error *err) RG_MUST_CHECK;
/* The same for a text with provenance: foreign text cannot produce special tokens (provenance.h). */
bool rg_tokenizer_encode_text(const rg_tokenizer *t, const rg_text *text, unsigned flags, rg_ids *ids,
                              rg_error *err) RG_MUST_CHECK;

/* A pair of texts, as the tokenizer puts them together for models that compare two (rerankers).  *second: where the ids
 * of token type 1 begin, which belong to the second text; 0: all are of type 0.  False also where the tokenizer's
 * template for pairs is not supported. */
bool rg_tokenizer_encode_pair(const rg_tokenizer *t, const rg_string text[2], unsigned flags, rg_ids *ids,
                              int32_t *second, rg_error *err) RG_MUST_CHECK;

int32_t rg_tokenizer_size(const rg_tokenizer *t);
int32_t rg_tokenizer_bos(const rg_tokenizer *t); /* -1: none */
int32_t rg_tokenizer_eos(const rg_tokenizer *t);
bool rg_tokenizer_is_special(const rg_tokenizer *t, int32_t id);
bool rg_tokenizer_adds_bos(const rg_tokenizer *t); /* encoding puts one in front */

/* The spelling of ids: text for ids as they come, as bytes that need not be whole characters; in the end the same as
 * rg_tokenizer_decode without special tokens.  Valid as long as t. */
const rg_spelling *rg_tokenizer_spelling(const rg_tokenizer *t);
/* True if the spelling gives that text: false if the decoder looks at the text as a whole. */
bool rg_tokenizer_streams(const rg_tokenizer *t);
/* An id's piece as the vocabulary writes it; valid as long as t. */
rg_string rg_tokenizer_piece(const rg_tokenizer *t, int32_t id);

/* The text of ids, special tokens shown unless skip_special: as the tokenizers library decodes.  rg_free it. */
char *rg_tokenizer_decode(const rg_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, size_t *n_text,
                          rg_error *err);

/* What it is, for people: "byte-level BPE", "SentencePiece BPE", "Unigram", "WordPiece", "WordLevel". */
const char *rg_tokenizer_kind(const rg_tokenizer *t);

#endif
