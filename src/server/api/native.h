/* native.h -- what llama-server's own endpoints share: prompts in all its forms, its names for samplers, adapters by
 * number, and the settings that its answers repeat.
 *
 * Its requests are those of completions with more fields; one engine answers both. */
#ifndef RG_SERVER_API_NATIVE_H
#define RG_SERVER_API_NATIVE_H

#include "server/call.h"

/* Bring the body into the names of fields.def: texts in logit_bias become ids, n_predict below -1 no limit. */
bool rg_native_adapt(rg_call *c, rg_refusal *e);

/* samplers, and lora: what of the fields follows from them. */
bool rg_native_read(rg_call *c, rg_refusal *e);

/* The prompts of the shape's input field: a text, a list of ids, a list of ids and texts, {prompt_string: text},
 * {content: parts of text}; or a list of these.  *is_list: it was such a list. */
bool rg_native_prompts(rg_call *c, bool *is_list, rg_refusal *e);

/* "generation_settings": how a call chooses tokens; of a call that is not there (NULL), the defaults. */
void rg_native_settings(rg_buf *b, const char *key, const rg_served *s, const rg_call *c);

#endif
