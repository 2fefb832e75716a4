/* cache.h -- the grammars that were asked for lately, compiled, with all the masks that they remember.
 *
 * Many requests bring the same schema: it is compiled once, and a mask that one answer needed is there for the next.
 * Memory is bounded: the grammar that was asked for the longest ago is dropped first, and a request that still uses it
 * keeps it.  Safe to use from any thread. */
#ifndef RG_GRAMMAR_CACHE_H
#define RG_GRAMMAR_CACHE_H

#include "grammar/grammar.h"

typedef struct rg_grammar_cache rg_grammar_cache;

rg_grammar_cache *rg_grammar_cache_new(const rg_grammar_vocab *v, rg_error *err);
void rg_grammar_cache_free(rg_grammar_cache *c); /* NULL is fine; before the vocabulary is freed */

/* As rg_grammar_compile: the caller has a reference. */
rg_grammar *rg_grammar_cache_get(rg_grammar_cache *c, const rg_grammar_source *source, rg_error *err);

#endif
