/* templates.h -- the chat templates of a checkpoint: every one that it brings, by name.
 *
 * A Hugging Face folder has chat_template.jinja and additional_chat_templates/NAME.jinja; or, where neither is there,
 * the chat_template of tokenizer_config.json, or else of chat_template.json: a text, a list of {name, template}, or an
 * object of templates by name.  GGUF has tokenizer.chat_template and tokenizer.chat_template.NAME.  The one without a
 * name is called "default".  Knows nothing of what stands in a template. */
#ifndef RG_TEXT_TEMPLATES_H
#define RG_TEXT_TEMPLATES_H

#include "ckpt/checkpoint.h"

enum { RG_MAX_TEMPLATES = 256 };

/* Where the files of a tokenizer are: beside a checkpoint, or in a folder without one. */
typedef struct rg_text_place {
    const rg_checkpoint *ckpt; /* NULL: in dir */
    const char *dir;
} rg_text_place;

/* A file's text, to be freed with rg_free; NULL without an error: there is no such file. */
char *rg_text_place_read(const rg_text_place *p, const char *name, size_t *n, rg_error *err);

typedef struct rg_template {
    char *name;
    char *source; /* [n]; NULL: it is malformed, as `problem` says */
    size_t n;
    char *where;  /* its file or key, for messages */
    const char *problem;
} rg_template;

/* Owns its texts. */
typedef struct rg_templates {
    rg_template all[RG_MAX_TEMPLATES];
    int n;
} rg_templates;

/* *t need not be initialised; call rg_templates_fini on it, after failure too.  False: no memory, a file that cannot be
 * read or is no JSON, or too many. */
bool rg_templates_read(rg_templates *t, const rg_text_place *p, rg_error *err) RG_MUST_CHECK;
void rg_templates_fini(rg_templates *t);
const rg_template *rg_templates_find(const rg_templates *t, const char *name); /* NULL: none */

#endif
