/* dense.h -- the dense layers behind the pooling of an embedder: their weights, and what they make of a pooled state.
 *
 * Read from the folders that modules.json names, each with a config.json and model.safetensors or pytorch_model.bin.
 * They are small, and are kept and multiplied in f32. */
#ifndef RG_MODEL_DENSE_H
#define RG_MODEL_DENSE_H

#include "model/embedding.h"

typedef struct rg_dense {
    float *w[RG_MAX_EMBED_STEPS]; /* [out, in] of each step; NULL: it is no dense layer */
    float *b[RG_MAX_EMBED_STEPS]; /* [out]; NULL: none */
} rg_dense;

/* False and *err: no memory.  Weights that are missing or of another shape refuse embeddings (e->refusal). */
bool rg_dense_open(rg_dense *d, rg_embedding *e, const rg_checkpoint *ckpt, rg_error *err) RG_MUST_CHECK;
void rg_dense_close(rg_dense *d);

/* Floats of scratch for rg_dense_apply. */
size_t rg_dense_room(const rg_embedding *e);
/* The e->dim numbers that the steps make of a pooled state [n_poolings * dim], in scratch.  Sums are in double, in
 * rising order. */
const float *rg_dense_apply(const rg_dense *d, const rg_embedding *e, const float *pooled, float *scratch);

#endif
