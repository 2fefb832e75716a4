/* mask.h -- which ids may come next, remembered.
 *
 * What comes next depends on the top of a stack, and on what is below only for ids that reach down to it.  So a mask is
 * remembered for a frame (ids that stay above the one below it) together with the places in the tree of ids where that
 * frame is left; these lead on to what the frame below allows there, and so on down the stack, each link of the chain
 * remembered for itself.  A frame that can be left at nearly any place is taken together with the one below it.  (After
 * the token mask cache of XGrammar, arXiv 2411.15100.)  Counts that are far from their bounds are alike.
 *
 * Safe to use from any thread, and masks are made side by side.  Memory is reserved when made, and all is forgotten
 * when it is full. */
#ifndef RG_GRAMMAR_MASK_H
#define RG_GRAMMAR_MASK_H

#include "grammar/vocab.h"

typedef struct rg_masks rg_masks;

rg_masks *rg_masks_new(const rg_form *f, const rg_grammar_vocab *v);
void rg_masks_free(rg_masks *m); /* NULL is fine */

size_t rg_masks_bytes(rg_masks *m); /* of memory, at most so far */

/* Set bits, a bit per id, to what any of the stacks allows.  False: some way to go on was left out for want of room, so
 * bits may be missing. */
bool rg_masks_find(rg_masks *m, const rg_stacks *s, const rg_heads *heads, uint64_t *bits);

#endif
