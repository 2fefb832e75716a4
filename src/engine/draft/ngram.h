/* ngram.h -- prompt lookup: where did the last ids stand before, and what followed?  A pure function. */
#ifndef RG_ENGINE_DRAFT_NGRAM_H
#define RG_ENGINE_DRAFT_NGRAM_H

#include <stdint.h>

/* The first place of ids [n] where the last `size` ids stand and something follows them, size from max_size down to 1.
 * Returns the index of what follows, and n if there is no such place. */
int32_t rg_ngram_find(const int32_t *ids, int32_t n, int32_t max_size);

#endif
