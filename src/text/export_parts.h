/* export_parts.h -- what export.c and export_words.c share: a tokenizer.json on its way to GGUF's keys. */
#ifndef RG_TEXT_EXPORT_PARTS_H
#define RG_TEXT_EXPORT_PARTS_H

#include <jansson.h>

#include "base/hash.h"
#include "text/export.h"

/* GGUF's types of tokens. */
enum { RG_TOKEN_NORMAL = 1, RG_TOKEN_UNKNOWN, RG_TOKEN_CONTROL, RG_TOKEN_USER, RG_TOKEN_UNUSED, RG_TOKEN_BYTE };

typedef struct rg_export {
    rg_ckpt_writer *w;
    const rg_checkpoint *from;
    char *warning;
    const json_t *root, *model;
    int n;             /* tokens that are written */
    rg_string *tokens; /* their texts: the document's, or a buffer's */
    int32_t *types;
    float *scores;
    bool *made;        /* a merge makes it */
    rg_dict *ids;
    rg_string *merges;
    size_t n_merges;
} rg_export;

/* The tokenizer cannot be expressed: says so in the warning, without an error.  Returns false. */
bool rg_export_cannot(rg_export *x, const char *what);
/* Details that are lost, in words, or "": added to the warning; not a refusal. */
void rg_export_note(rg_export *x, const char *what);

const char *rg_export_text(const json_t *object, const char *key); /* "": it has none */
bool rg_export_is(const json_t *object, const char *type);
static inline bool rg_export_absent(const json_t *v)
{
    return !v || json_is_null(v);
}

/* Ids that a template puts in front of one text and after it, -1: none; false: more than one of either. */
bool rg_export_template(const json_t *post, int64_t *before, int64_t *after);
/* What all models have: tokens, their types, and what is put around a text. */
bool rg_export_common(rg_export *x, const char *model, const char *pre, int32_t *bos, rg_error *err);

/* export_words.c */
bool rg_export_unigram(rg_export *x, int32_t *bos, rg_error *err);
bool rg_export_wordpiece(rg_export *x, int32_t *bos, rg_error *err);

#endif
