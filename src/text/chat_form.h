/* chat_form.h -- which forms of a conversation a chat template takes, and bringing conversations into them.
 *
 * Templates differ in what they expect: content as a text or as a list of parts, arguments of calls as an object or as
 * JSON in a text, ids of calls of nine letters and digits.  A template is asked once: short conversations are rendered
 * in each form, and the first form that shows what it should is the template's.  What a template takes stays as it is.
 * Knows no server: a conversation is JSON in the form of chat completions. */
#ifndef RG_TEXT_CHAT_FORM_H
#define RG_TEXT_CHAT_FORM_H

#include <jansson.h>

#include "text/jinja.h"

/* Roles whose messages templates read differently; any other role is taken for the user's. */
typedef enum rg_chat_role { RG_ROLE_USER, RG_ROLE_SYSTEM, RG_ROLE_ASSISTANT, RG_ROLE_TOOL, RG_N_ROLES } rg_chat_role;

typedef struct rg_chat_form {
    bool no_text[RG_N_ROLES];  /* content as a text is lost, and as a list of parts it is not */
    bool no_parts[RG_N_ROLES]; /* the other way round */
    bool text_arguments;       /* arguments of calls are JSON in a text, else an object */
    int id_chars;              /* ids of calls have so many letters and digits; 0: they may be anything */
} rg_chat_form;

/* Ask a template; variables: the checkpoint's.  False: no memory. */
bool rg_chat_form_learn(rg_chat_form *f, const rg_jinja *template, const json_t *variables,
                        rg_error *err) RG_MUST_CHECK;

/* The messages in the template's form, in a new list; those that need no change are shared with the given one.  Ids of
 * calls change alike everywhere: a call and its result keep the same id, two calls different ones.  A call without an
 * id gets one where the template demands ids of a form, and so does its result.  NULL and *err: no memory. */
json_t *rg_chat_form_fit(const rg_chat_form *f, const json_t *messages, rg_error *err);

#endif
