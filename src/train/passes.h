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
    /* Of a model whose rows see their block: each text is there twice, as it is and then with masks.  Rows of the
     * second half stand at the places of the first, and see their own block of it and the blocks before of the first
     * half. */
    bool twice;
} rg_texts;

/* The targets of plain texts: the next id of the same document; to [rows, length].  Returned: how many there are. */
int64_t rg_texts_targets(const rg_texts *t, int32_t *to);
int64_t rg_texts_count(const rg_texts *t); /* targets that are there */

/* What is to be made of logits.  rows(arg, ...) gets those of n positions of the batch, the first being number
 * `first` (row * length + position), and puts the gradient of the loss in their place; nll [n] gets the loss of each,
 * 0 where there is none.  By one thread; it may use the lane's.  False: *err says why there is no loss. */
typedef struct rg_loss {
    bool (*rows)(void *arg, rg_back_lane *lane, int64_t first, rg_mat *logits, double *nll, rg_error *err);
    void *arg;
} rg_loss;

/* A loss of what layers give.  layer(arg, ...) gets the output of a layer at positions from `first` on, and adds the
 * gradient by it to grad (NULL: the loss alone is wanted).  Layers come in falling order; of a forward pass alone,
 * all come too. */
typedef struct rg_layer_loss {
    bool (*layer)(void *arg, rg_back_lane *lane, int layer, int64_t first, const rg_mat *out, rg_mat *grad,
                  rg_error *err);
    void *arg;
} rg_layer_loss;

/* Cross-entropy with the targets of a batch, in nats, times their weights.  The loss is `scale` times the sum:
 * 1 / the number of targets of a whole step. */
typedef struct rg_cross_entropy {
    const int32_t *targets;
    double scale;
    const float *weight; /* by position, times `scale`; NULL: 1 */
} rg_cross_entropy;
rg_loss rg_cross_entropy_of(const rg_cross_entropy *c);

typedef struct rg_passes_options {
    int n_threads;
    int max_tokens;    /* of a piece, at least; one row is never cut; 0: a number that suits caches */
    rg_pool *pool;     /* n_threads at least, borrowed */
    bool bf16;         /* products of bf16 with sums in f32 */
    size_t tape_bytes; /* for tapes of all layers; where it does not suffice layers run twice; 0: 4 GB */
} rg_passes_options;

typedef struct rg_passes rg_passes;
/* masters and their model are borrowed.  NULL and *err: no memory. */
rg_passes *rg_passes_new(rg_masters *m, const rg_backend *backend, const rg_passes_options *o, rg_error *err);
/* Of a model that is not trained, with its weights as they are stored: forward alone. */
rg_passes *rg_passes_of_model(const rg_model *m, const rg_backend *backend, const rg_passes_options *o, rg_error *err);
void rg_passes_free(rg_passes *p); /* NULL is fine */
rg_back_lane *rg_passes_lane(rg_passes *p);

/* Gets the gradient of what enters layer `layer` (-1: the head, after the final norm) at positions from `first` on. */
typedef void rg_passes_see(void *arg, int layer, int64_t first, const rg_mat *grad);

typedef struct rg_passes_run {
    const rg_texts *texts;
    const rg_loss *loss;
    const rg_layer_loss *inner; /* or NULL */
    /* Not NULL: the loss has balance_weight times that of balance.h, of all rows of the batch, which is computed as one
     * piece; *balance becomes that loss, without its weight. */
    double *balance, balance_weight;
    bool forward_only;          /* the loss alone: no gradients */
    double *nll;                /* [rows, length], or NULL */
    rg_passes_see *see;         /* or NULL */
    void *see_arg;
} rg_passes_run;

/* *sum: the sum of nll.  Gradients are added to those of the model's weights (rg_masters_pull brings them home).  False
 * and *err: an id is not in the vocabulary, a text is longer than the model allows, an operation cannot be
 * differentiated, a number is not finite, or there is no memory. */
bool rg_passes_compute(rg_passes *p, const rg_passes_run *run, double *sum, rg_error *err) RG_MUST_CHECK;

/* ---- a network that drafts ---- */

/* Its rows read features of its target beside tokens.  With n_steps > 1 each row is continued as a draft would be: the
 * row of step k = 1, 2, ... has what the network made of it in step k - 1 in place of a feature, and the gradient flows
 * back through that. */
typedef struct rg_chain_run {
    const rg_texts *texts; /* rows and documents; ids are those of step 0, targets are not read */
    int n_steps;
    const int32_t *ids;    /* [n_steps, rows * length] that the rows of each step read */
    const float *features; /* [rows * length, feature_cols] of step 0 */
    int feature_cols;
    const rg_loss *loss;        /* [n_steps] */
    const rg_layer_loss *inner; /* of the network's output: layer 0, once for each step, the last one first; or NULL */
    bool forward_only;
    double *sums; /* [n_steps] the sum of the nll of each step */
} rg_chain_run;

/* Gradients are added to those of the network's weights.  False and *err: as rg_passes_compute. */
bool rg_passes_chain(rg_passes *p, const rg_chain_run *r, rg_error *err) RG_MUST_CHECK;

/* ---- forward alone, a piece at a time ---- */

/* Run the layers for the piece of whole rows in which a position lies; *first and *n: the positions of the piece.  What
 * follows is of this piece, until the next call or rg_passes_compute. */
bool rg_passes_enter(rg_passes *p, const rg_texts *t, int64_t position, int64_t *first, int *n,
                     rg_error *err) RG_MUST_CHECK;
/* Logits of to->rows positions from number `first` of the batch on, all of the piece; to [rows, vocab_size]. */
void rg_passes_logits(rg_passes *p, int64_t first, const rg_mat *to);
/* What enters the head, after the final norm: to [rows, dim].  False and *err: the model's layers are of another width
 * than its head. */
bool rg_passes_hidden(rg_passes *p, int64_t first, const rg_mat *to, rg_error *err) RG_MUST_CHECK;
/* What a layer gave, [n, dim], -1: the embedding; valid as long as the piece. */
const rg_mat *rg_passes_output(const rg_passes *p, int layer);

/* ---- one layer alone ---- */

typedef struct rg_layer_run {
    const rg_texts *texts; /* targets are not read */
    int layer;
    const rg_mat *in, *out;    /* [rows * length, dim] what enters, and what it gives */
    const rg_layer_loss *loss; /* of what it gives; NULL: forward alone */
} rg_layer_run;
/* Gradients are added to those of the layer's weights.  False and *err: as rg_passes_compute; also of a layer that
 * reads more than what enters it (K and V of another layer, embeddings of its own). */
bool rg_passes_layer(rg_passes *p, const rg_layer_run *r, rg_error *err) RG_MUST_CHECK;

#endif
