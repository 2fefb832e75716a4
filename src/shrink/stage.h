/* stage.h -- a model run one layer at a time: the layer's weights alone are in memory, in f32, and may be changed; what
 * its matrices read can be seen.
 *
 * A reader in front of the one that computes leaves out the operations of other layers.  What is alive between two
 * layers (the rows, and what else the model made outside its layers) is kept for each sample of the calibration text,
 * put in place where the layer begins, and taken where it ends.  So no model needs a second text for this. */
#ifndef RG_SHRINK_STAGE_H
#define RG_SHRINK_STAGE_H

#include "model/model.h"

typedef struct rg_stage rg_stage;

typedef struct rg_stage_options {
    const rg_backend *backend;
    int n_threads;
    const int32_t *ids; /* [n_samples, ctx], borrowed */
    int n_samples, ctx; /* n_samples 0: no pass will be made, weights are read alone */
    bool logits;        /* rg_stage_loss will be called */
    bool thresholds;    /* rg_stage_set_threshold will be called */
} rg_stage_options;

/* NULL and *err: encoders have none; or the checkpoint cannot be opened, or no memory. */
rg_stage *rg_stage_open(const rg_checkpoint *ckpt, const rg_stage_options *o, rg_error *err);
void rg_stage_close(rg_stage *s); /* NULL is fine */
const rg_model *rg_stage_model(const rg_stage *s);
rg_pool *rg_stage_pool(const rg_stage *s);

/* Read the weights of a layer; another one's are freed.  Rows must stand before it. */
bool rg_stage_enter(rg_stage *s, int layer, rg_error *err) RG_MUST_CHECK;
/* Rows that one matrix of the layer read, in one sample.  Matrices of one operation read the same. */
typedef struct rg_read {
    const rg_weight *w[3]; /* n_w of them */
    int n_w;
    int64_t mat;       /* of those that are stacked */
    bool takes_zeros;  /* its product obeys thresholds */
    int64_t n, cols;
    const float *rows; /* [n, cols] */
} rg_read;

/* One pass of all samples through the layer that was entered. */
typedef struct rg_pass {
    void *arg;
    /* What matrices read, after each sample; rows are valid during the call.  NULL: nobody asks.  False: stop. */
    bool (*read)(void *arg, int sample, const rg_read *reads, int n, rg_error *err);
    int n_samples; /* only the first so many, which does not go with advance; 0: all */
    /* Stop each sample where what reads this weight has reached the rows [ctx, columns], and show them; where it never
     * does, since the model's stream is of another shape, nothing is shown. */
    const rg_weight *until;
    void (*reached)(void *arg, int sample, const float *rows, int64_t n);
    /* Shows the rows before the layer and after it. */
    void (*through)(void *arg, int sample, const float *before, const float *after, int64_t n, int64_t cols);
    bool skip;    /* the layer computes nothing: what comes out is what came in */
    bool advance; /* the rows that come out stand before the next layer from now on */
} rg_pass;
bool rg_stage_pass(rg_stage *s, const rg_pass *p, rg_error *err) RG_MUST_CHECK;
/* Rows stand before the first layer again. */
void rg_stage_restart(rg_stage *s);
/* Mean of -log p of each id that follows another in its sample; rows stand behind the last layer. */
bool rg_stage_loss(rg_stage *s, double *loss, rg_error *err) RG_MUST_CHECK;

/* Weights of the layer: a matrix of a weight [rows, cols], or a vector. */
void rg_stage_get(const rg_stage *s, const rg_weight *w, int64_t mat, float *to);
void rg_stage_put(rg_stage *s, const rg_weight *w, int64_t mat, const float *from);
void rg_stage_put_vector(rg_stage *s, const rg_weight *w, const float *from);
/* Values that the weight's product reads count as 0 from now on if their magnitude is t or less; t 0: none does. */
void rg_stage_set_threshold(rg_stage *s, const rg_weight *w, float t);

#endif
