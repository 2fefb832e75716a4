/* pull.h -- a model from the Hugging Face hub, or a server that speaks as it does, into the cache of the Hugging Face
 * libraries, where other programs find it, too.
 *
 * What is chosen: of ORG/NAME:QUANT the GGUF file of that type with all its parts; of ORG/NAME the config, tokenizer
 * and safetensors, or where there are only GGUF files the one that rg_library_find would take.  A file is kept once its
 * hash is right; the model is there once all its files are.  What an earlier call left half is gone on with. */
#ifndef RG_LIBRARY_PULL_H
#define RG_LIBRARY_PULL_H

#include "library/library.h"

typedef struct rg_pull_options {
    const char *endpoint; /* "https://huggingface.co" */
    const char *token;    /* NULL: none */
    const char *hub;      /* the cache; created where it is missing */
    void (*progress)(void *arg, const char *what, double done); /* 0 to 1 of each phase; may be NULL */
    void *arg;
    bool (*stop)(void); /* true: stop; what has come is kept for the next call.  May be NULL */
    double pause_s;     /* before the first try anew (fetch.h) */
} rg_pull_options;

typedef struct rg_pulled {
    rg_library_model found;
    int n_files, n_fetched; /* of the model; of these, those that had to be fetched */
    uint64_t bytes;         /* of the files */
} rg_pulled;

/* "ORG/NAME", "ORG/NAME:QUANT", "ORG/NAME@REVISION:QUANT". */
bool rg_pull(const char *name, const rg_pull_options *o, rg_pulled *out, rg_error *err) RG_MUST_CHECK;

#endif
