/* notation.h -- what the readers of grammars as text (GBNF, Lark) share: where they are, and the rules by name. */
#ifndef RG_GRAMMAR_NOTATION_H
#define RG_GRAMMAR_NOTATION_H

#include "base/hash.h"
#include "grammar/source.h"

/* A rule that was named, in the text or by the reader. */
typedef struct rg_named_rule {
    const char *name; /* [n], in the text */
    size_t n;
    uint32_t ref;
    bool defined;
} rg_named_rule;

typedef struct rg_notation {
    rg_form *f;
    const char *s; /* the text, n bytes, read up to `at` */
    size_t n, at;
    rg_named_rule *rule;
    uint32_t n_rules, room;
    rg_dict *names;
    rg_groups groups;
    bool atom; /* the last item can be repeated */
} rg_notation;

/* A failure is kept in the form. */
void rg_notation_init(rg_notation *t, rg_form *f, const char *text, size_t n);
void rg_notation_fini(rg_notation *t);

/* Refuse what stands here; the message has the line. */
void rg_notation_refuse(rg_notation *t, rg_code code, const char *what);
/* The rule of this name, made if there is none; NULL: there are too many, or there is no memory. */
rg_named_rule *rg_notation_rule(rg_notation *t, const char *name, size_t n);
/* At the end: all rules that are used are defined, and this one is there; its reference.  RG_NEVER: refused. */
uint32_t rg_notation_start(rg_notation *t, const char *name);

void rg_notation_item(rg_notation *t, uint32_t id);
void rg_notation_repeat(rg_notation *t, uint32_t min, uint32_t max);
/* The bytes of the JSON object here; 0: it does not end. */
size_t rg_notation_object(const rg_notation *t);

/* The byte so far ahead; -1: the text ends before it. */
static inline int rg_notation_peek(const rg_notation *t, size_t ahead)
{
    return t->at + ahead < t->n ? (unsigned char)t->s[t->at + ahead] : -1;
}

#endif
