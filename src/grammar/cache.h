/* cache.h -- recently used grammars, compiled, with the masks that they have cached.
 *
 * Many requests bring the same schema: it is compiled once, and the masks of one answer are reused by the next.  Memory
 * is bounded: the least recently used grammar is dropped first; requests that still use it keep their reference.  Safe
 * to use from any thread. */
#ifndef RG_GRAMMAR_CACHE_H
#define RG_GRAMMAR_CACHE_H

#include "grammar/grammar.h"

typedef struct rg_grammar_cache rg_grammar_cache;

rg_grammar_cache *rg_grammar_cache_new(const rg_grammar_vocab *v, rg_error *err);
void rg_grammar_cache_free(rg_grammar_cache *c); /* NULL is fine; before the vocabulary is freed */

/* As rg_grammar_compile: the caller has a reference. */
rg_grammar *rg_grammar_cache_get(rg_grammar_cache *c, const rg_grammar_source *source, rg_error *err);

#endif
