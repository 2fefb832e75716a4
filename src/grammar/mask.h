/* mask.h -- which ids may come next, cached.
 *
 * Which ids may come next depends mostly on the top frame of a stack; frames below matter only for ids whose bytes
 * leave the top frame.  So a mask is cached per frame: the ids that stay within it, and the places in the tree of ids
 * where it is left.  From these places the next frame continues, and so on down the stack: a chain of links, each
 * cached by itself.  A frame that can be left at nearly any place is taken together with the one below it.  (After the
 * token mask cache of XGrammar, arXiv 2411.15100.) Repetition counts that are far from their bounds share one mask.
 *
 * Safe to use from any thread; several threads can make masks at the same time.  Memory is reserved at the beginning.
 * When it is full, all masks are forgotten. */
#ifndef RG_GRAMMAR_MASK_H
#define RG_GRAMMAR_MASK_H

#include "grammar/vocab.h"

typedef struct rg_masks rg_masks;

rg_masks *rg_masks_new(const rg_form *f, const rg_grammar_vocab *v);
void rg_masks_free(rg_masks *m); /* NULL is fine */

size_t rg_masks_bytes(rg_masks *m); /* the most memory used so far */

/* Set bits, a bit per id, to what any of the stacks allows.  False: some alternatives were left out for want of room,
 * so bits may be missing. */
bool rg_masks_find(rg_masks *m, const rg_stacks *s, const rg_heads *heads, uint64_t *bits);

#endif
