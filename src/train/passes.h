/* passes.h -- forward and backward of a batch of texts: the loss, and gradients that are added to those of weights.
 *
 * A batch is cut into pieces of whole rows.  Of a piece the layers run once, and what enters each is kept; then, from
 * the last layer to the first, a layer runs again with a tape and is walked back.  Where the tapes of all layers fit in
 * memory, they are made as the layers run for the first time.  Head and loss go by blocks of rows,
 * so that logits of a few rows alone are in memory.  Documents of a row are sequences of their own: each is computed as
 * if it were alone.  The same bits for any number of threads. */
#ifndef RG_TRAIN_PASSES_H
#define RG_TRAIN_PASSES_H

#include "train/masters.h"
#include "train/tape.h"

enum { RG_NO_TARGET = -100 };

/* Rows of ids.  Positions of a row with the same document, side by side, are one text. */
typedef struct rg_texts {
    int rows, length;
    const int32_t *ids;      /* [rows, length] */
    const int32_t *document; /* [rows, length]; NULL: one for each row */
    const int32_t *targets;  /* [rows, length]: the id that the position should predict, or RG_NO_TARGET */
} rg_texts;

/* The targets of plain texts: the next id of the same document; to [rows, length].  Returned: how many there are. */
int64_t rg_texts_targets(const rg_texts *t, int32_t *to);
int64_t rg_texts_count(const rg_texts *t); /* targets that are there */

/* What is to be made of logits.  rows(arg, ...) gets those of n positions of the batch, the first being number
 * `first` (row * length + position), and puts the gradient of the loss in their place; nll [n] gets the loss of each,
 * 0 where there is none.  By one thread; it may use the lane's. */
typedef struct rg_loss {
    void (*rows)(void *arg, rg_back_lane *lane, int64_t first, rg_mat *logits, double *nll);
    void *arg;
} rg_loss;

/* Cross-entropy with the targets of a batch, in nats, of which `scale` times the sum is the loss: 1 / the number of
 * targets of a whole step. */
typedef struct rg_cross_entropy {
    const int32_t *targets;
    double scale;
} rg_cross_entropy;
rg_loss rg_cross_entropy_of(const rg_cross_entropy *c);

typedef struct rg_passes_options {
    int n_threads;
    int max_tokens;    /* of a piece, at least; one row is never cut; 0: a number that suits caches */
    rg_pool *pool;     /* n_threads at least, borrowed */
    size_t tape_bytes; /* for tapes of all layers; where it does not suffice layers run twice; 0: 4 GB */
} rg_passes_options;

typedef struct rg_passes rg_passes;
/* masters and their model are borrowed.  NULL and *err: no memory. */
rg_passes *rg_passes_new(rg_masters *m, const rg_backend *backend, const rg_passes_options *o, rg_error *err);
void rg_passes_free(rg_passes *p); /* NULL is fine */

/* Gets the gradient of what enters layer `layer` (-1: the head, after the final norm) at positions from `first` on. */
typedef void rg_passes_see(void *arg, int layer, int64_t first, const rg_mat *grad);

typedef struct rg_passes_run {
    const rg_texts *texts;
    const rg_loss *loss;
    bool forward_only;  /* the loss alone: no gradients */
    double *nll;        /* [rows, length], or NULL */
    rg_passes_see *see; /* or NULL */
    void *see_arg;
} rg_passes_run;

/* *sum: the sum of nll.  Gradients are added to those of the model's weights (rg_masters_pull brings them home).  False
 * and *err: an id is not in the vocabulary, a text is longer than the model allows, an operation cannot be
 * differentiated, a number is not finite, or there is no memory. */
bool rg_passes_compute(rg_passes *p, const rg_passes_run *run, double *sum, rg_error *err) RG_MUST_CHECK;

#endif
