/* adamw.h -- AdamW (Loshchilov & Hutter 2019) on masters, with clipping by the global norm.
 *
 * In this order: the norm over all trained tensors; gradients times min(1, clip / (norm + 1e-6)); weights that
 * decay times 1 - lr * weight_decay; moments; w -= lr * (m / (1 - beta1^s)) / (sqrt(v / (1 - beta2^s)) + eps).
 * Tensors of two and more dimensions decay, but not the rates of recurrences (A_log, D, dt), whatever their shape. */
#ifndef RG_TRAIN_ADAMW_H
#define RG_TRAIN_ADAMW_H

#include "ops/back/back.h"
#include "train/masters.h"
#include "train/settings.h"

/* A tensor that is updated: its values and gradients, which are borrowed, as the name is, and its moments. */
typedef struct rg_adamw_tensor {
    const char *name;
    int n_dims;
    int64_t shape[RG_MAX_DIMS];
    float *w, *g, *m, *v;
    size_t n;
    double rate; /* times the learning rate; 0: 1 */
    bool keeps;  /* it never decays */
    bool decays; /* set by rg_adamw_add */
} rg_adamw_tensor;

typedef struct rg_adamw {
    rg_adamw_tensor *tensors;
    int n, room;
    int64_t step; /* updates so far */
} rg_adamw;

/* True if a tensor of this name and so many dimensions decays. */
bool rg_adamw_decays(const char *name, int n_dims);
/* Add a tensor: all but its moments, which begin as 0, and `decays`, which its name and `keeps` say.  False and *err:
 * no memory. */
bool rg_adamw_add(rg_adamw *a, const rg_adamw_tensor *t, rg_error *err) RG_MUST_CHECK;
bool rg_adamw_add_master(rg_adamw *a, const rg_master *m, rg_error *err) RG_MUST_CHECK;
/* All masters that are not frozen. */
bool rg_adamw_add_masters(rg_adamw *a, rg_masters *m, rg_error *err) RG_MUST_CHECK;
void rg_adamw_close(rg_adamw *a);

/* The global norm of all gradients, summed in double in a fixed order. */
double rg_adamw_norm(const rg_adamw *a, const rg_back_lane *lane);
/* One update by the rate lr; norm: as rg_adamw_norm gave it. */
void rg_adamw_update(rg_adamw *a, const rg_back_lane *lane, const rg_train_settings *s, double lr, double norm);

#endif
