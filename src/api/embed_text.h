/* embed_text.h -- what a checkpoint says of texts that are to be embedded: prompts that stand in front of them, how
 * long they may be, and whether they are in lower case.
 *
 * Read from sentence-transformers' config_sentence_transformers.json and sentence_bert_config.json. */
#ifndef RG_API_EMBED_TEXT_H
#define RG_API_EMBED_TEXT_H

#include "model/embedding.h"
#include "ridge.h"
#include "text/cut.h"

typedef struct rg_embed_prompt {
    char *name, *text;
} rg_embed_prompt;

typedef struct rg_embed_text {
    int32_t max_ids;   /* 0: it does not say */
    bool lower;        /* texts are in lower case */
    bool keep_end;     /* what is too long loses its beginning */
    bool skips_prompt; /* positions of a prompt are not pooled */
    rg_embed_prompt *prompts;
    int n_prompts, chosen; /* chosen: the default one; -1: none */
} rg_embed_text;

/* False and *err: no memory.  Files that cannot be used refuse embeddings (e->refusal). */
bool rg_embed_text_open(rg_embed_text *t, rg_embedding *e, const rg_checkpoint *ckpt, rg_error *err) RG_MUST_CHECK;
void rg_embed_text_close(rg_embed_text *t);

/* Ids of a text: what the checkpoint says, within a context. */
int32_t rg_embed_text_limit(const rg_embed_text *t, int32_t context);
/* As rg_encode_to_embed. */
bool rg_embed_text_encode(const rg_embed_text *t, const rg_tokenizer *tokenizer, rg_string text,
                          const rg_text_options *o, rg_text_ids *out, rg_error *err) RG_MUST_CHECK;
/* How ids are cut: as the options say, or the checkpoint. */
rg_cut rg_embed_text_cut(const rg_embed_text *t, const rg_text_options *o);

#endif
