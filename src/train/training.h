/* training.h -- a training run: step after step, and what is kept of it on disk.
 *
 * A checkpoint holds weights, moments, the number of steps, the place in the data and the settings.  It is written
 * beside the old one, flushed and renamed, so there is always a whole one; a run that is resumed from it goes on with
 * the same bits, for any number of threads. */
#ifndef RG_TRAIN_TRAINING_H
#define RG_TRAIN_TRAINING_H

#include "train/adamw.h"
#include "train/feed.h"
#include "train/objective.h"
#include "train/stand_in.h"

typedef struct rg_training rg_training;

typedef struct rg_training_options {
    rg_masters *masters;
    const rg_stand_in *stand_in; /* what is trained in their place; NULL: they are */
    rg_feed *feed;
    const rg_objective *objective; /* NULL: rg_next_ids */
    const rg_train_settings *settings;
    const rg_backend *backend;
    rg_pool *pool;
    int n_threads;
} rg_training_options;

/* Everything is borrowed.  NULL and *err: no memory. */
rg_training *rg_training_new(const rg_training_options *o, rg_error *err);
void rg_training_free(rg_training *t); /* NULL is fine */

/* What a step came to: the loss before its update, the norm before clipping. */
typedef struct rg_training_step {
    int64_t step; /* the first one is 1 */
    double loss, grad_norm, lr;
    int64_t n_targets, n_tokens;
    double seconds;
} rg_training_step;

bool rg_training_next(rg_training *t, rg_training_step *out, rg_error *err) RG_MUST_CHECK;
int64_t rg_training_done(const rg_training *t); /* steps */

/* An objective's loss of texts as the model now is, the mean over the positions that count; no gradients. */
bool rg_training_loss(rg_training *t, const rg_objective *o, const rg_texts *texts, double *loss,
                      rg_error *err) RG_MUST_CHECK;

bool rg_training_save(const rg_training *t, const char *path, rg_error *err) RG_MUST_CHECK;
/* 1: it goes on from the checkpoint; 0: there is none; -1: *err, which names a setting that differs, or what is wrong
 * with the file. */
int rg_training_resume(rg_training *t, const char *path, rg_error *err);

#endif
