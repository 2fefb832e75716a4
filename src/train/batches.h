/* batches.h -- batches as a safetensors file gives them: tensors of whole numbers, of any width. */
#ifndef RG_TRAIN_BATCHES_H
#define RG_TRAIN_BATCHES_H

#include "ckpt/checkpoint.h"

/* A tensor of whole numbers. */
typedef struct rg_int_tensor {
    int n_dims;
    int64_t shape[RG_MAX_DIMS];
    int64_t n;
    int32_t *at; /* NULL: there is none; rg_free it */
} rg_int_tensor;

/* 1: read; 0: the file has no tensor of that name; -1: *err says why it cannot be read. */
int rg_int_tensor_read(const rg_checkpoint *c, const char *name, rg_int_tensor *out, rg_error *err);

/* Batches [steps, micro, rows, length]; tensors of fewer dimensions have 1 in front. */
typedef struct rg_exact_batches {
    int64_t steps, micro, rows, length;
    int32_t *ids, *document, *targets; /* document and targets: NULL where the file has none */
} rg_exact_batches;

bool rg_exact_batches_read(rg_exact_batches *b, const char *path, rg_error *err) RG_MUST_CHECK;
void rg_exact_batches_fini(rg_exact_batches *b);

#endif
