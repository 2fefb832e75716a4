/* learn.h -- the family of a served model, found by asking its chat template and its vocabulary.
 *
 * The template renders short conversations with a tool, a call and its result; what they show decides.  Relies on
 * ridge.h. */
#ifndef RG_SERVER_TALK_LEARN_H
#define RG_SERVER_TALK_LEARN_H

#include "ridge.h"
#include "server/talk/answer.h"
#include "server/talk/derived.h"

typedef struct rg_talk_use {
    const rg_talk *talk;
    const rg_talk_form *form; /* what a grammar of calls writes */
    bool thinks;              /* the model may reason: its vocabulary or its template has the marks for it */
    bool shows_tools;         /* the template tells the model which tools there are, */
    bool shows_calls;         /*   and which calls and results there were */
    bool close_ends;          /* the mark behind the calls ends an answer */
    rg_talk_derived *made;       /* talk, where the template shows marks that no family has; else NULL */
} rg_talk_use;

/* name: of a family (rg_talk_named), or NULL: it is found.  The engine shows the family's marks from now on. */
void rg_talk_learn(rg_talk_use *use, rg_engine *engine, const char *name);
void rg_talk_forget(rg_talk_use *use);
/* The same of a rendered conversation alone, without an engine; for tests. */
void rg_talk_learn_from(rg_talk_use *use, const char *rendered);

/* True if calls in this form have no mark of their own. */
bool rg_talk_is_bare(const rg_talk_use *use);
/* Where an answer begins after this prompt.  *think: which of the family's marks opened its reasoning; -1: the prompt
 * has ended it. */
rg_talk_start rg_talk_start_after(const rg_talk *talk, const char *prompt, int *think);
/* A text of the assistant's that goes on: is its reasoning open at the end, and which mark opened it? */
bool rg_talk_leaves_thought(const rg_talk *talk, const char *text, int *think);

#endif
