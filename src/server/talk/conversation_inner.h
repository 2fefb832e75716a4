/* conversation_inner.h -- what conversation.c and history.c share: reading messages and their parts. */
#ifndef RG_SERVER_TALK_CONVERSATION_INNER_H
#define RG_SERVER_TALK_CONVERSATION_INNER_H

#include "server/talk/conversation.h"

enum { RG_MAX_MESSAGES = 16384 };

/* The name of a field for a refusal, such as "messages[3].content"; field may be NULL. */
const char *rg_param_at(char out[64], const char *list, size_t i, const char *field);
/* True if s is one of these words.  NULL ends the list. */
bool rg_is_among(const char *s, const char *const *words);

/* A text, or a list of parts that are texts, joined by line ends; NULL and *e. */
json_t *rg_content_read(const json_t *v, const char *param, rg_refusal *e);
/* The same, where parts that are no texts are shown as one, or what they are, with a warning. */
json_t *rg_content_show(const json_t *v, const char *param, rg_conversation *talk, rg_refusal *e);
/* The i-th message of chat completions, checked and copied; NULL and *e.  talk NULL: all its parts must be texts. */
json_t *rg_message_read(const json_t *m, size_t i, rg_conversation *talk, rg_refusal *e);
/* Offer the tools of a list of the Responses API that are not offered yet. */
bool rg_flat_tools_add(const json_t *tools, rg_conversation *talk, rg_refusal *e);
/* A call of a tool as it stands in a message; NULL: no memory. */
json_t *rg_history_call(const json_t *id, const json_t *name, const json_t *arguments);
/* True if these may be a call's arguments: JSON in a text, an object, or nothing. */
bool rg_history_takes(const json_t *arguments);
/* The message's reasoning, under the two names that templates read; false: no memory. */
bool rg_message_set_reasoning(json_t *m, json_t *text);

#endif
