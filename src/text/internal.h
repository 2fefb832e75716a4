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
#include "text/vocab.h"

struct rg_tokenizer {
    rg_vocab vocab;
    rg_added_set raw;        /* looked for in the text as it came */
    rg_added_set normalized; /* looked for after normalising */
    rg_normalizer normalizer;
    rg_pretok pretok;
    rg_bpe bpe;
    rg_around around;
    rg_detok detok;
    int32_t bos, eos; /* -1: none */
    const char *kind;
    char *stream; /* rg_tokenizer_bytes */
    uint32_t *stream_offset;
};

/* Fill a zeroed tokenizer whose bos and eos are -1.  What is half filled is freed by rg_tokenizer_close. */
bool rg_tokenizer_read_json(rg_tokenizer *t, const char *text, size_t n, rg_error *err);
bool rg_tokenizer_read_config(rg_tokenizer *t, const char *text, size_t n, rg_error *err); /* bos and eos alone */
bool rg_tokenizer_read_gguf(rg_tokenizer *t, const rg_checkpoint *ckpt, rg_error *err);

/* The two halves of tokenizer.json: parts that are steps (json_steps.c), and vocabulary and model (json_tokenizer.c).
 * v: the part, or JSON null.  A part or option that ridge does not have is refused by name. */
bool rg_json_normalizer(rg_normalizer *z, const json_t *v, rg_error *err);
bool rg_json_pretok(rg_pretok *p, const json_t *v, rg_error *err);
bool rg_json_detok(rg_detok *d, const json_t *v, rg_error *err);
bool rg_json_around(rg_around *a, const json_t *v, rg_error *err);

/* Members of an object, by type: false and *err if there and of another type; absent or null leaves *out alone. */
bool rg_json_bool(const json_t *v, const char *key, bool *out, rg_error *err);
bool rg_json_int(const json_t *v, const char *key, int64_t *out, rg_error *err);
bool rg_json_string(const json_t *v, const char *key, rg_string *out, rg_error *err);

#endif
