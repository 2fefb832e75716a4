/* share.h -- what each of several ranks has of a model: rows, columns and matrices of weights, heads of K/V and states.
 *
 * The tables of architectures say how a weight is split (rg_weight_spec.split).  Q, K, V and O are cut between K/V
 * heads, the matrices of an MLP between blocks of the format of the one that reads the others, experts by their number,
 * the vocabulary by rows.  The model's text is then run without computing: a weight that it needs whole (or that is too
 * small to cut) stays whole on every rank; one whose columns meet an operation on heads is cut between these; and the
 * states of recurrences are cut as their operations are. */
#ifndef RG_MODEL_SHARE_H
#define RG_MODEL_SHARE_H

#include "model/model.h"
#include "ops/ranks/shard.h"

/* Give the declared weights of m their parts for o->link's rank. */
bool rg_share_weights(rg_model *m, const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err) RG_MUST_CHECK;
/* Once m->state is declared: what its link's rank keeps of it. */
bool rg_share_state(rg_model *m, rg_error *err) RG_MUST_CHECK;

/* What a person should know of how n ranks share a model. */
typedef struct rg_shared {
    uint64_t split_bytes, whole_bytes;  /* of matrices as stored: that ranks share, and that each rank has */
    int n_layers_kv, n_layers_kv_split; /* layers that keep K/V, and those whose heads ranks share */
    uint64_t state_split_bytes, state_whole_bytes; /* of recurrent states of a sequence, likewise */
} rg_shared;
/* rg_shard.state_here, of a model. */
const rg_buffer *rg_share_state_here(const void *model, const rg_buffer *whole, int64_t units, size_t common);
rg_shared rg_share_count(const rg_model *m);
/* Add to the model's notes what each rank has all of. */
bool rg_share_note(rg_model *m, rg_error *err) RG_MUST_CHECK;
/* Exchanges of a step of so many rows, with logits of so many of them. */
bool rg_share_exchanges(const rg_model *m, int n_rows, int n_logits, rg_exchanges *out, rg_error *err) RG_MUST_CHECK;

#endif
