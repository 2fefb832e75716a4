/* chat.h -- renders conversations with the checkpoint's own chat template.
 *
 * The template comes from tokenizer_config.json (one, or named ones), chat_template.jinja, chat_template.json or GGUF
 * metadata (tokenizer.chat_template), the variables (bos_token, eos_token, ...) from the same places.  Immutable once
 * open; any thread may render. */
#ifndef RG_TEXT_CHAT_H
#define RG_TEXT_CHAT_H

#include <jansson.h>

#include "ckpt/checkpoint.h"
#include "text/origin.h"

typedef struct rg_chat rg_chat;

/* The template of a checkpoint, or, if it has none, the plain default ("role: content" lines), which says so. */
rg_chat *rg_chat_open(const rg_checkpoint *ckpt, rg_error *err);
/* From a folder, a tokenizer.json (files beside it are looked at) or a checkpoint. */
rg_chat *rg_chat_open_path(const char *path, rg_error *err);
/* Another template in place of the checkpoint's. */
bool rg_chat_use(rg_chat *c, const char *source, size_t n, rg_error *err) RG_MUST_CHECK;
void rg_chat_close(rg_chat *c); /* NULL is fine */

bool rg_chat_is_default(const rg_chat *c); /* the checkpoint has no template */

/* Render a conversation: a JSON list of messages, or an object with "messages", and optionally "tools", "documents",
 * "add_generation_prompt" and extra template variables.  Refused here: messages that are not a list of objects, a
 * message without a known role, content that is neither text nor a list of parts nor null.  Appends to out. */
bool rg_chat_render(const rg_chat *c, const json_t *conversation, bool generation_prompt, int64_t now_s, rg_text *out,
                    rg_error *err) RG_MUST_CHECK;

#endif
