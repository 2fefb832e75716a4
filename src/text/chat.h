/* chat.h -- renders conversations with the checkpoint's own chat template.
 *
 * The templates come from the checkpoint's files or GGUF metadata (templates.h), the variables (bos_token, eos_token,
 * ...) from the same places.  A conversation is brought into the form that the template takes (chat_form.h).  A
 * template that cannot be used fails when it is rendered, not when the checkpoint is opened.  Immutable once open and
 * chosen; any thread may render. */
#ifndef RG_TEXT_CHAT_H
#define RG_TEXT_CHAT_H

#include <jansson.h>

#include "ckpt/checkpoint.h"
#include "text/provenance.h"

typedef struct rg_chat rg_chat;

/* The template of a checkpoint, or, if it has none, the plain default ("role: content" lines), which says so. */
rg_chat *rg_chat_open(const rg_checkpoint *ckpt, rg_error *err);
/* From a folder, a tokenizer.json (files beside it are looked at) or a checkpoint. */
rg_chat *rg_chat_open_path(const char *path, rg_error *err);
/* Another template in place of the checkpoint's, for all conversations: a text; or one of the checkpoint's by name, or
 * a file.  False and *err: it cannot be used, or there is none; the one before stays in use. */
bool rg_chat_use(rg_chat *c, const char *source, size_t n, rg_error *err) RG_MUST_CHECK;
bool rg_chat_choose(rg_chat *c, const char *name_or_file, rg_error *err) RG_MUST_CHECK;
void rg_chat_close(rg_chat *c); /* NULL is fine */

bool rg_chat_is_default(const rg_chat *c); /* the checkpoint has no template */
/* The text of the template in use; NULL: the checkpoint has none, or it cannot be used.  Valid until another one is put
 * in its place. */
const char *rg_chat_source(const rg_chat *c);
/* Why the template in use cannot be used: what it is, its line and what is wrong there; NULL: it can. */
const char *rg_chat_problem(const rg_chat *c);
/* Letters and digits of the ids of calls that the template demands; 0: they may be anything. */
int rg_chat_id_chars(const rg_chat *c);

/* Render a conversation: a JSON list of messages, or an object with "messages", and optionally "tools", "documents",
 * "add_generation_prompt" and extra template variables.  Refused here: messages that are not a list of objects, a
 * message without a known role, content that is neither text nor a list of parts nor null.  Appends to out. */
bool rg_chat_render(const rg_chat *c, const json_t *conversation, bool generation_prompt, int64_t now_s, rg_text *out,
                    rg_error *err) RG_MUST_CHECK;

#endif
