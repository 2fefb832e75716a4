/* grammar.h -- what an answer may be: a context-free grammar over bytes, matched id by id.
 *
 * Sources of several kinds (GBNF, a regular expression, a list of choices, JSON, a JSON schema) become one compiled
 * form, under budgets: what is too large, what is ambiguous about its meaning, and every keyword that is not supported
 * is refused by name, never skipped.  A vocabulary (the bytes of each id) is prepared once per engine; which ids may
 * come next is then a bit per id, found once per automaton state and remembered.  Knows no model, no request. */
#ifndef RG_GRAMMAR_GRAMMAR_H
#define RG_GRAMMAR_GRAMMAR_H

#include "base/error.h"

/* The vocabulary as bytes: id's are data[offset[id], offset[id + 1]); a grammar never allows an id without bytes.
 * Borrowed for as long as the result lives. */
typedef struct rg_grammar_vocab rg_grammar_vocab;
rg_grammar_vocab *rg_grammar_vocab_new(const char *data, const uint32_t *offset, int32_t n, rg_error *err);
void rg_grammar_vocab_free(rg_grammar_vocab *v); /* NULL is fine */

/* Compiled: immutable but for its memory of masks, which is safe to use from any thread.  Counted references.  NULL and
 * *err: malformed, unsupported (named), over a budget, or satisfied by nothing that the vocabulary can spell. */
rg_grammar *rg_grammar_compile(const rg_grammar_vocab *v, const rg_grammar_source *source, rg_error *err);
void rg_grammar_ref(rg_grammar *g);
void rg_grammar_unref(rg_grammar *g); /* NULL is fine */
void rg_grammar_prepare(rg_grammar *g); /* make the mask that every answer begins with, so that no step waits for it */
size_t rg_grammar_bytes(const rg_grammar *g); /* of memory that it takes by now, about */

/* Where one answer stands in a grammar.  Its size is fixed, so that a step allocates nothing for it.  Alternatives
 * beyond that room are not followed, and rg_grammar_lost or rg_grammar_advance reports it.  The answer must then end,
 * since something that the grammar allows was left out. */
typedef struct rg_grammar_state rg_grammar_state;
rg_grammar_state *rg_grammar_start(rg_grammar *g, rg_error *err); /* holds a reference to g */
void rg_grammar_stop(rg_grammar_state *s);                        /* NULL is fine */
void rg_grammar_copy(rg_grammar_state *to, const rg_grammar_state *from); /* of one grammar, or to a scratch state */
/* A state into which states of any grammar of that state's vocabulary may be copied; it refers to a grammar only as
 * long as the state that was copied last does. */
rg_grammar_state *rg_grammar_scratch(const rg_grammar_state *like, rg_error *err);

/* Set to -INFINITY the logits [n] of ids that must not come next.  may_end: the ids in ends[0, n_ends) are allowed
 * where the grammar is complete, and nowhere else.  Never bans everything: where the grammar is complete and nothing
 * can follow, the ends are all that is left. */
void rg_grammar_mask(rg_grammar_state *s, float *logits, int32_t n, const int32_t *ends, int32_t n_ends,
                     bool may_end);
/* Advance by this id.  False: the grammar does not allow it, and the state is unchanged. */
bool rg_grammar_advance(rg_grammar_state *s, int32_t id);
bool rg_grammar_complete(const rg_grammar_state *s); /* the answer may end here */
bool rg_grammar_stuck(rg_grammar_state *s);          /* complete, and no id can follow: it ends here */
bool rg_grammar_lost(const rg_grammar_state *s);     /* some alternatives could not be followed, or were missing in a
                                                      *   mask */
void rg_grammar_lose(rg_grammar_state *s);           /* as one that is lost: a copy of it was */

#endif
