/* breaker_texts.h -- DRY's sequence breakers: from texts to ids, by a tokenizer.
 *
 * An id whose text contains a breaker is one by itself.  An id whose text ends with the beginning of one is a head; its
 * tail is what the tokenizer makes of the rest.  Sets that were asked for lately are kept, since clients send the same
 * texts with every request.  Safe to use from any thread. */
#ifndef RG_API_BREAKER_TEXTS_H
#define RG_API_BREAKER_TEXTS_H

#include "engine/breakers.h"
#include "text/tokenizer.h"

typedef struct rg_breaker_texts rg_breaker_texts;

/* t is borrowed. */
rg_breaker_texts *rg_breaker_texts_new(const rg_tokenizer *t, rg_error *err);
void rg_breaker_texts_free(rg_breaker_texts *b); /* NULL is fine */

/* The breakers of texts [n], or, where texts is NULL, of the usual ones ("\n", ":", "\"", "*").  Empty texts are left
 * out; of a long one the first 40 bytes count, and of its tail the first 20 ids.  The caller has a reference. */
rg_breakers *rg_breaker_texts_get(rg_breaker_texts *b, const char *const *texts, int32_t n, rg_error *err);

#endif
