/* medusa.h -- Medusa heads of a model that is not trained itself (Medusa-1, Cai et al. 2024).
 *
 * Head k = 0, 1, ... reads what enters the model's head, after the final norm, and predicts the id k + 2 places on:
 * logits = W2 (h + silu(W1 h + b)).  W1 and b begin as 0 and W2 as the model's head, so that every head begins as that.
 * The loss is the sum of weight^(k + 1) times the mean cross-entropy of head k over its own targets. */
#ifndef RG_TRAIN_MEDUSA_H
#define RG_TRAIN_MEDUSA_H

#include "train/objective.h"

typedef struct rg_medusa rg_medusa;

/* Heads of a model; all of its masters are frozen, and borrowed.  weight: 0.8 in the paper, 1: all heads count alike.
 * NULL and *err: the model has no such head, or no memory. */
rg_medusa *rg_medusa_new(rg_masters *m, int n_heads, double weight, rg_error *err);
void rg_medusa_free(rg_medusa *d); /* NULL is fine */
rg_objective rg_medusa_objective(rg_medusa *d);
/* A tensor of head k: "0.linear.weight", "0.linear.bias", "1.weight".  Values and gradients, [*n]. */
bool rg_medusa_tensor(rg_medusa *d, int k, const char *name, float **w, float **g, size_t *n);
/* Losses of the heads of the last batch, [n_heads], unweighted. */
const double *rg_medusa_losses(const rg_medusa *d);
/* The authors' layout: medusa_lm_head.safetensors and config.json, for the model at `base`. */
bool rg_medusa_write(const rg_medusa *d, const char *dir, const char *base, rg_type type, rg_error *err) RG_MUST_CHECK;

#endif
