/* force.h -- a grammar of calls as a family writes them, for answers that have to call a tool.
 *
 * Relies on the grammar kind RG_GRAMMAR_GBNF with %json, over answers that show marks
 * (rg_grammar_source.show_marks). */
#ifndef RG_SERVER_TALK_FORCE_H
#define RG_SERVER_TALK_FORCE_H

#include "server/talk/constraint.h"
#include "server/talk/answer.h"

/* What the answer must be so that it calls one of these tools (in the form of chat completions). */
typedef struct rg_call_rules {
    const rg_talk *talk;
    const rg_talk_form *form;
    const json_t *tools;
    const json_t *kinds; /* what tools are to the client (tool_kinds.h): "format" is the grammar of a tool's input */
    bool many;           /* or several */
    bool thinks;         /* reasoning may come first */
    bool may;            /* the answer may be text as well, and arguments without a grammar are free */
    bool close_ends;     /* the mark behind the calls is a token that ends the answer: it need not be written */
    rg_talk_start start;
    int think;        /* which of the family's marks opened the reasoning that the prompt left open */
    const char *name; /* of the field that asks for it, a literal; NULL: tool_choice */
} rg_call_rules;

/* The GBNF text of it, as a constraint, in place of *c, which stays where `may` is set and calls have no mark.  False
 * and *e. */
bool rg_force_calls(const rg_call_rules *rules, rg_constraint *c, rg_refusal *e);

/* What lets the model reason, and open its text, before what c binds: *led, to be rg_constraint_fini'd; without a text
 * where c binds from the first byte.  think: rg_rendered.think; thinks: the model may reason.  False and *e. */
bool rg_force_lead(const rg_talk *talk, rg_talk_start start, int think, bool thinks, const rg_constraint *c,
                   rg_constraint *led, rg_refusal *e);

/* Reasoning between marks: the rest of it, or all of it if it comes. */
void rg_gbnf_thought(rg_buf *b, const rg_talk *talk, rg_talk_start start, int think, bool thinks);
/* Messages with heads: reasoning if it may come, then what opens the message that is bound.  It uses the rule
 * "thoughts", which rg_gbnf_thoughts writes. */
void rg_gbnf_head(rg_buf *b, const rg_talk *talk, rg_talk_start start, bool thinks, const char *open);
void rg_gbnf_thoughts(rg_buf *b, const rg_talk *talk, bool thinks);

/* A text as GBNF writes it, after a blank. */
void rg_gbnf_literal(rg_buf *b, const char *s);
/* Any text up to and with this mark. */
void rg_gbnf_until(rg_buf *b, const char *mark);
/* A value of the schema, in the literals that the form has; root: where its references lead. */
void rg_gbnf_value(rg_buf *b, const rg_talk_form *form, const json_t *root, const json_t *schema, int depth);
/* Arguments with a key each, as Python and special quotes have them, without what is around them all. */
void rg_gbnf_pairs(rg_buf *b, const rg_talk_form *form, const json_t *root, const json_t *schema, int depth);
bool rg_schema_requires(const json_t *schema, const char *key);
/* What the schema refers to; itself, if that is nothing that is known. */
const json_t *rg_schema_resolve(const json_t *root, const json_t *schema);
void rg_gbnf_schema(rg_buf *b, const json_t *schema);
/* A property's schema, with the definitions that it may refer to. */
void rg_gbnf_property(rg_buf *b, const json_t *root, const json_t *property);

#endif
