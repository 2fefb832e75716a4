/* fim.h -- fill in the middle: the marks with which code models take a text before and a text after what is wanted. */
#ifndef RG_SERVER_API_FIM_H
#define RG_SERVER_API_FIM_H

#include "server/api/mixed.h"

/* Ask the vocabulary for the marks of each family that is known; f->prefix -1: it has none. */
void rg_fim_learn(rg_fim *f, const rg_engine *engine);

/* A file beside the one that is filled in. */
typedef struct rg_fim_file {
    const char *name, *text;
} rg_fim_file;

typedef struct rg_fim_prompt {
    const char *prefix, *suffix;
    const char *start;        /* text that the answer begins with, after `prefix`; "": none */
    const rg_fim_file *files; /* [n_files] */
    size_t n_files;
} rg_fim_prompt;

/* The prompt as the model's family writes it.  False and *e: the model has no such marks, or no memory. */
bool rg_fim_write(rg_mixed *p, const rg_served *s, const rg_fim_prompt *prompt, rg_refusal *e);
/* It becomes one more prompt of the call. */
bool rg_fim_take(rg_call *c, const rg_fim_prompt *prompt, rg_refusal *e);

#endif
