/* internal.h -- what a tokenizer is made of, for the files of this floor that build it. */
#ifndef RG_TEXT_INTERNAL_H
#define RG_TEXT_INTERNAL_H

#include <jansson.h>

#include "text/added.h"
#include "text/bpe.h"
#include "text/detok.h"
#include "text/normalize.h"
#include "text/postprocess.h"
#include "text/pretok.h"
#include "text/tokenizer.h"
#include "text/unigram.h"
#include "text/vocab.h"
#include "text/wordpiece.h"

/* Memory of one call, reused from word to word. */
typedef struct rg_model_work {
    rg_bpe_work bpe;
    rg_unigram_work unigram;
} rg_model_work;

void rg_model_work_fini(rg_model_work *w);

/* Makes ids of a word, which is clean and not empty.  plain: no special piece comes of it, but for the unknown
 * token. */
typedef struct rg_word_model {
    const char *type; /* as tokenizer.json calls it */
    bool (*encode)(const rg_tokenizer *t, rg_model_work *w, rg_string word, bool plain, rg_ids *ids, rg_error *err);
    void (*fini)(rg_tokenizer *t); /* of a part that is zeroed, half filled or whole */
} rg_word_model;

extern const rg_word_model rg_word_model_bpe, rg_word_model_unigram, rg_word_model_wordpiece, rg_word_model_wordlevel;

struct rg_tokenizer {
    rg_vocab vocab;
    rg_added_set raw;        /* looked for in the text as it came */
    rg_added_set normalized; /* looked for after normalising */
    rg_normalizer normalizer;
    rg_pretok pretok;
    const rg_word_model *model; /* which of these it has; NULL: none yet */
    rg_bpe bpe;
    rg_unigram unigram;
    rg_wordpiece wordpiece; /* WordLevel too */
    char *affix;            /* bpe's prefix and suffix */
    rg_around around, pair; /* of a text, and of a pair of texts; pair.n 0: this tokenizer takes none */
    rg_detok detok;
    int32_t bos, eos; /* -1: none */
    const char *kind;
    rg_spelling spelling; /* of tables that are the tokenizer's own */
};

/* Fill a zeroed tokenizer whose bos and eos are -1.  What is half filled is freed by rg_tokenizer_close. */
bool rg_tokenizer_read_json(rg_tokenizer *t, const char *text, size_t n, rg_error *err);
bool rg_tokenizer_read_config(rg_tokenizer *t, const char *text, size_t n, rg_error *err); /* bos and eos alone */
bool rg_tokenizer_read_gguf(rg_tokenizer *t, const rg_checkpoint *ckpt, rg_error *err);

/* The parts of tokenizer.json that are steps; vocabulary and model are json_tokenizer.c's.
 * v: the part, or JSON null.  A part or option that ridge does not have is refused by name. */
bool rg_json_normalizer(rg_normalizer *z, const json_t *v, rg_error *err);
bool rg_json_pretok(rg_pretok *p, const json_t *v, rg_error *err);
bool rg_json_detok(rg_detok *d, const json_t *v, rg_error *err);
bool rg_json_around(rg_around *single, rg_around *pair, const json_t *v, rg_error *err);

#endif
