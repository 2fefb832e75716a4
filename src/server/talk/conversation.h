/* conversation.h -- messages and tools as three APIs write them, checked and brought into one form: that of chat
 * completions with plain texts, which chat templates understand.  Results are new values. */
#ifndef RG_SERVER_TALK_CONVERSATION_H
#define RG_SERVER_TALK_CONVERSATION_H

#include "server/talk/constraint.h"

typedef struct rg_served rg_served;

/* What a model is to go on from. */
typedef struct rg_conversation {
    /* Set before it is read: where histories are kept, of whom, and the id of what answers. */
    rg_served *served;
    const char *owner, *id;
    /* Responses API: the request's own items, how many items came before them, and which response or conversation had
     * those. */
    json_t *items, *previous, *conversation;
    size_t n_history;
    json_t *all;       /* {messages, tools, and the template's variables} */
    json_t *tools;     /* what is offered, in the form of chat completions; NULL: none */
    json_t *must;      /* of those, what the answer must call one of; NULL: it need not */
    json_t *kinds;     /* by the name that a tool is offered by, unless it is a function of this name: what it is to the
                    *   client, {kind, name, namespace}; kind is an index into rg_tool_kinds.  NULL: none */
    char warning[600]; /* what was left out or changed, for a header of the answer; "": nothing */
    bool may_cut;      /* its oldest turns may be left out if it is too long */
    bool no_tools;     /* none is to be offered */
    bool one_call;     /* and not more than one */
    bool continued;    /* the answer goes on from the last message, which is the assistant's and a text */
} rg_conversation;

void rg_conversation_fini(rg_conversation *talk);
/* Add to the warning. */
void rg_conversation_warn(rg_conversation *talk, const char *fmt, ...) RG_PRINTF(2, 3);

/* How an API's body says it; on failure too, rg_conversation_fini. */
typedef bool rg_conversation_reader(const json_t *body, rg_conversation *talk, rg_refusal *e);

bool rg_chat_conversation(const json_t *body, rg_conversation *talk, rg_refusal *e); /* of chat completions */

/* Can the answer go on from the last message of {messages, ...}? */
bool rg_conversation_can_continue(const json_t *all);

/* What a system says in the middle of {messages, ...} becomes a part of the turn where it stands: of the message before
 * it, or of the user's after it.  False: there is nothing of the kind, or no memory. */
bool rg_conversation_fold(json_t *all);

/* How many calls of tools its messages have. */
int rg_conversation_n_calls(const json_t *all);

/* Checked copies; NULL and *e. */
json_t *rg_messages_read(const json_t *messages, rg_refusal *e);

/* Into talk: the tools to offer, unless tool_choice says none, and which of them must be called. */
bool rg_tools_read(const json_t *body, rg_conversation *talk, rg_refusal *e);

/* The same of the Responses API: input and instructions; tools are flat there.  Items may add tools to the talk's. */
json_t *rg_input_read(const json_t *items, const json_t *instructions, rg_conversation *talk, rg_refusal *e);
bool rg_flat_tools_read(const json_t *body, rg_conversation *talk, rg_refusal *e);

/* The same for Anthropic's API, which has messages of content blocks, and the system text apart. */
json_t *rg_blocks_read(const json_t *messages, const json_t *system, rg_conversation *talk, rg_refusal *e);
bool rg_anthropic_tools_read(const json_t *body, rg_conversation *talk, rg_refusal *e);

/* {messages, tools, and the template's variables}: steals messages; tools and kwargs may be NULL. */
json_t *rg_conversation_new(json_t *messages, json_t *tools, const json_t *kwargs, rg_refusal *e);

#endif
