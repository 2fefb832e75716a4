/* drafting.h -- networks that draft for a model, trained from its hidden states: EAGLE (Li et al. 2024), EAGLE-3 (2025,
 * with its steps of test time), and modules for further tokens (DeepSeek-V3 report, section 2.2).
 *
 * Row t of such a network reads features of row t of the model and the id at t + 1, and guesses the id at t + 2.
 *
 * EAGLE: smooth L1 of the network's output and the model's next feature, the mean over channels, plus 0.1 times the
 * cross-entropy with the model's distribution; even noise on the features; the mean over rows that have a next one.
 * EAGLE-3: the row is continued for some steps, as a draft is.  The loss of step k is the cross-entropy with the
 * model's distribution at t + 1 + k, restricted to the network's own ids, where the model's best id is one of them;
 * divided by all positions, also those that do not count; the sum of weight^k times that.
 * A module: cross-entropy with the id at t + 2.
 *
 * The model is not trained, nor are the embedding and a head that the network has of it. */
#ifndef RG_TRAIN_DRAFTING_H
#define RG_TRAIN_DRAFTING_H

#include "train/objective.h"

typedef enum rg_drafting_kind { RG_DRAFTING_EAGLE, RG_DRAFTING_EAGLE3, RG_DRAFTING_MODULE } rg_drafting_kind;

enum { RG_DRAFTING_STEPS = 16 }; /* at most */

typedef struct rg_drafting_options {
    rg_drafting_kind kind;
    int n_steps;   /* EAGLE-3: 7 in the paper */
    double weight; /* EAGLE-3: of a step beside the one before; 0.8 in the paper */
    double noise;  /* EAGLE: from -noise / 2 to noise / 2 is added to features */
    uint64_t seed; /* of the noise, and of a new module */
    double init_std; /* of a new module's matrices */
} rg_drafting_options;

typedef struct rg_drafting rg_drafting;

/* The network of a checkpoint, or, of a module, the model's own checkpoint: the module is new where that brings none.
 * All is borrowed; the model's masters become frozen.  NULL and *err: the checkpoint holds no such network, or it is
 * none for this model, or no memory. */
rg_drafting *rg_drafting_new(rg_masters *model, const rg_checkpoint *network, const rg_drafting_options *o,
                             const rg_backend *backend, const rg_passes_options *passes, rg_error *err);
void rg_drafting_free(rg_drafting *d);           /* NULL is fine */
rg_masters *rg_drafting_masters(rg_drafting *d); /* the network's, which are trained */
rg_objective rg_drafting_objective(rg_drafting *d);
/* Of the last batch: losses of the steps as defined above, [n_steps], and the shares of rows that count whose best
 * guess was the model's. */
const double *rg_drafting_losses(const rg_drafting *d);
const double *rg_drafting_right(const rg_drafting *d);

/* True if a model's own checkpoint brings a module. */
bool rg_drafting_brings_module(const rg_masters *model, const rg_checkpoint *from);

/* A new network for a model, as a folder in the authors' layout, in f32.  counts [vocab_size] of EAGLE-3: the n_ids ids
 * that stand most often in texts are those that it guesses; NULL: all.  ffn_dim 0: the model's. */
typedef struct rg_drafting_shape {
    rg_drafting_kind kind;
    int ffn_dim, n_ids;
    const int64_t *counts;
    uint64_t seed;
} rg_drafting_shape;
bool rg_drafting_create(const char *dir, const rg_masters *model, const rg_drafting_shape *s,
                        rg_error *err) RG_MUST_CHECK;

#endif
