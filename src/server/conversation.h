/* conversation.h -- messages and tools as three APIs write them, checked and brought into one form: that of chat
 * completions with plain texts, which chat templates understand.  Results are new values. */
#ifndef RG_SERVER_CONVERSATION_H
#define RG_SERVER_CONVERSATION_H

#include "server/fields.h"

/* Checked copies; NULL and *e. */
json_t *rg_messages_read(const json_t *messages, rg_refusal *e);

/* *out: the tools to offer, NULL if there are none or tool_choice says none of them. */
bool rg_tools_read(const json_t *tools, const json_t *choice, json_t **out, rg_refusal *e);

/* The same of the Responses API: input and instructions; tools are flat there. */
json_t *rg_input_read(const json_t *input, const json_t *instructions, rg_refusal *e);
bool rg_flat_tools_read(const json_t *tools, const json_t *choice, json_t **out, rg_refusal *e);

/* And of Anthropic's: content blocks, and system apart. */
json_t *rg_blocks_read(const json_t *messages, const json_t *system, rg_refusal *e);
bool rg_anthropic_tools_read(const json_t *tools, const json_t *choice, json_t **out, rg_refusal *e);

/* {messages, tools, and the template's variables}: steals messages; tools and kwargs may be NULL. */
json_t *rg_conversation_new(json_t *messages, json_t *tools, const json_t *kwargs, rg_refusal *e);

#endif
