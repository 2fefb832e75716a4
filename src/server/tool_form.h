/* tool_form.h -- how the served model writes a call of a tool, and a grammar of such calls.
 *
 * A template is asked once: a conversation that ends with a call is rendered, and what stands around the call's name
 * and arguments is the form.  It is taken only if answer.h reads such a call back; else the form is a JSON object
 * alone, which answer.h reads as well.  Relies on the grammar kind RG_GRAMMAR_GBNF with %json. */
#ifndef RG_SERVER_TOOL_FORM_H
#define RG_SERVER_TOOL_FORM_H

#include <jansson.h>

#include "base/buf.h"
#include "server/answer.h"
#include "server/fields.h"

enum { RG_FORM_TEXT_MAX = 192 };

typedef struct rg_tool_form {
    bool xml;       /* Qwen3-Coder's way: a tag for each argument */
    bool closes;    /* a call has an end of its own, so that another may follow */
    char before[RG_FORM_TEXT_MAX], between[RG_FORM_TEXT_MAX], after[RG_FORM_TEXT_MAX]; /* of name and arguments */
} rg_tool_form;

void rg_tool_form_find(rg_tool_form *form, const rg_engine *engine);
/* The form that a rendered conversation shows, which ends with a call of rg_probe_name; for tests. */
void rg_tool_form_learn(rg_tool_form *form, const char *rendered);
extern const char rg_probe_name[], rg_probe_key[];

/* What the answer must be so that it calls one of these tools (in the form of chat completions); many: or several. */
typedef struct rg_call_rules {
    const json_t *tools;
    bool many;
    const char *name; /* of the field that asks for it, a literal; NULL: tool_choice */
} rg_call_rules;

/* The GBNF text of it, as a constraint, in place of *c.  False and *e. */
bool rg_tool_form_constrain(const rg_tool_form *form, const rg_call_rules *rules, rg_constraint *c, rg_refusal *e);

/* End an answer that had to call one of these tools.  If it was cut within a call, the call is given as far as it goes
 * and marked as cut, never as text; if not even the tool's name is certain, it is dropped. */
void rg_tool_form_end(const rg_tool_form *form, const json_t *tools, rg_answer *a);
/* The same of an answer that may also be something else: what does not begin as a call is text. */
void rg_tool_form_end_either(const rg_tool_form *form, const json_t *tools, rg_answer *a);

/* A call is a JSON object without a mark. */
bool rg_tool_form_is_bare(const rg_tool_form *form);

#endif
