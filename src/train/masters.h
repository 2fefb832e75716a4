/* masters.h -- the tensors that are trained, in f32, and the model that computes with them.
 *
 * A master is a tensor of the checkpoint, under its name there.  The model's weights are made from masters as they are
 * made from a file (parts of fused tensors, turned matrices, load functions), from a checkpoint whose tensors are the
 * masters; so who changes masters pushes them to the model, and gradients of weights are pulled back to masters by the
 * same way.  That way is found by trying: a load function is given numbers that name their places. */
#ifndef RG_TRAIN_MASTERS_H
#define RG_TRAIN_MASTERS_H

#include "model/model.h"

typedef struct rg_master {
    const char *name; /* owned */
    int n_dims;
    int64_t shape[RG_MAX_DIMS];
    size_t n;     /* values */
    float *w, *g; /* values and gradients */
    bool frozen;  /* no gradient is wanted */
} rg_master;

typedef struct rg_masters rg_masters;

/* Of a checkpoint's weights, decoded to f32; or, of a config without weights, of the shapes that it says, all 0.  The
 * checkpoint is borrowed.  NULL and *err: it is no model that can be read, a weight cannot be differentiated, or there
 * is no memory. */
rg_masters *rg_masters_open(const rg_checkpoint *from, const rg_backend *backend, rg_error *err);
/* Of a network that drafts for `target`: of a checkpoint of its own, or (module) the module that the target's own
 * checkpoint brings.  The target is borrowed; what the network has of it (its embedding, its head) is not trained. */
rg_masters *rg_masters_open_network(const rg_checkpoint *from, const rg_model *target, bool module,
                                    const rg_backend *backend, rg_error *err);
/* A new module for a target whose checkpoint brings none, with weights as rg_masters_init makes them; its final norm
 * begins as the target's.  Written, it stands beside the target's tensors.  *err: the target's layers or its head are
 * none that a module can have. */
rg_masters *rg_masters_new_module(const rg_checkpoint *from, const rg_model *target, double deviation, uint64_t seed,
                                  const rg_backend *backend, rg_error *err);
void rg_masters_close(rg_masters *m); /* NULL is fine */

int rg_masters_count(const rg_masters *m);
rg_master *rg_masters_at(rg_masters *m, int i);
rg_master *rg_masters_find(rg_masters *m, const char *name); /* NULL: there is none */
const rg_model *rg_masters_model(const rg_masters *m);

/* True if master i is one matrix of a layer that is multiplied as it is stored. */
bool rg_masters_is_plain_matrix(const rg_masters *m, int i);
/* The layer of such a matrix; -1: it is none. */
int rg_masters_layer(const rg_masters *m, int i);

/* All masters as the tensors of a Hugging Face folder, of this type; the rest of it as the checkpoint has it, of a
 * network that drafts its other tensors too. */
bool rg_masters_write(const rg_masters *m, const char *dir, rg_type type, rg_error *err) RG_MUST_CHECK;

/* Vectors of 1 become 0 where the model adds 1 to them (norms that are stored so). */
bool rg_masters_center(rg_masters *m, rg_error *err) RG_MUST_CHECK;

/* Masters were changed: give the model what they are now; all of it, or the weights of one layer. */
bool rg_masters_push(rg_masters *m, rg_error *err) RG_MUST_CHECK;
bool rg_masters_push_layer(rg_masters *m, int layer, rg_error *err) RG_MUST_CHECK;
/* All gradients become 0. */
void rg_masters_clear(rg_masters *m);
/* Gradients that were added to weights go to their masters; once, after clear. */
bool rg_masters_pull(rg_masters *m, rg_error *err) RG_MUST_CHECK;
/* For a tape (rg_tape_find). */
void rg_masters_weight(void *masters, const rg_weight *w, const float **values, float **grad);

#endif
