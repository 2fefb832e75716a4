/* tape.h -- the reader that tapes: it wraps the reader that computes, keeps of every operation what its backward needs,
 * and walks what it kept from the back.
 *
 * Of an operation it keeps a deep copy of the parameters, the activations and columns that it read and wrote, and the
 * values that its kind needs (ops/back).  An activation is written many times, in place and through views: its values
 * are kept by version, and each version once.  Its gradient lies in one matrix, which a walk changes as it goes back:
 * where an operation wrote, the gradient becomes 0 before it; where it added, it stays; where it changed a value in
 * place, it is changed in place.  So no architecture needs anything of its own.
 *
 * Values and gradients lie in an arena of the tape, in the host's memory.  K and V, which other layers may read, lie
 * apart and outlive a layer's tape, and so do their gradients. */
#ifndef RG_TRAIN_TAPE_H
#define RG_TRAIN_TAPE_H

#include "train/balance.h"

typedef struct rg_tape rg_tape;

/* Where a weight's values lie, row-major, and what its gradient is added to; NULL: it is not wanted. */
typedef void rg_tape_find(void *arg, const rg_weight *w, const float **values, float **grad);

/* The lane is borrowed.  first NULL: a tape by itself; else one more of the same step, with the K and V of the first,
 * which is freed last.  NULL and *err: no memory. */
rg_tape *rg_tape_new(rg_back_lane *lane, rg_tape_find *find, void *find_arg, rg_tape *first, rg_error *err);
void rg_tape_free(rg_tape *t); /* NULL is fine */
/* The reader around the one that computes; steps through it are settled. */
const rg_reader *rg_tape_wrap(rg_tape *t, const rg_reader *inner);

/* Forget all operations, activations and, of a tape by itself, K/V: another step's batch begins. */
void rg_tape_begin(rg_tape *t, const rg_batch *batch);
/* Begin the tape of one step of a chain (ops/back).  The first step may have a tape of its own, or all steps read the K
 * and V of another tape; the chain outlives the walk.  K and V of the steps before stay. */
void rg_tape_begin_chain(rg_tape *t, const rg_batch *batch, const rg_back_chain *chain);
/* Where the gradient of the batch's features is added to; until the next step begins. */
void rg_tape_features(rg_tape *t, const rg_mat *grad);
/* Where steps of all tapes of this one's kind put what routers read and chose; NULL: nowhere. */
void rg_tape_routes(rg_tape *t, rg_routes *to);
size_t rg_tape_bytes(const rg_tape *t); /* of the values that are kept now */
/* Forget operations and activations; those that follow are taped, or only their K and V are kept. */
void rg_tape_reset(rg_tape *t, bool on);

/* Within a step's text, by all its threads alike, before the first operation: activation a has this gradient, which is
 * the caller's memory. */
void rg_tape_carry(rg_tape *t, const rg_fwd *f, const rg_act *a, const rg_mat *grad);
/* At the end of a text, by thread 0: the gradient of a, which an operation wrote, will be this, the caller's. */
void rg_tape_seed(rg_tape *t, const rg_fwd *f, const rg_act *a, const rg_mat *grad);

/* Walk from the back.  note(arg, layer, grad) is called at the places that the model names, with their gradient.  False
 * and *err: an operation cannot be differentiated (its name is in the message), or there was no memory. */
typedef void rg_tape_note(void *arg, int layer, const rg_mat *grad);
bool rg_tape_walk(rg_tape *t, rg_tape_note *note, void *arg, rg_error *err) RG_MUST_CHECK;

#endif
