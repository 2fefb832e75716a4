/* shelf.h -- grammars that were asked for lately, compiled, with all the masks that they remember.
 *
 * Many requests bring the same schema: it is compiled once, and a mask that one answer needed is there for the next.
 * Of bounded memory: what was asked for the longest ago goes first; who uses it still, keeps it.  Safe to use from any
 * thread. */
#ifndef RG_GRAMMAR_SHELF_H
#define RG_GRAMMAR_SHELF_H

#include "grammar/grammar.h"

typedef struct rg_grammar_shelf rg_grammar_shelf;

rg_grammar_shelf *rg_grammar_shelf_new(const rg_grammar_vocab *v, rg_error *err);
void rg_grammar_shelf_free(rg_grammar_shelf *s); /* NULL is fine; before the vocabulary */

/* As rg_grammar_compile: the caller has a reference. */
rg_grammar *rg_grammar_shelf_get(rg_grammar_shelf *s, rg_grammar_kind kind, const char *text, size_t n, rg_error *err);

#endif
