/* sparsity.h -- inputs of matrices that count as zero, so that the columns that they meet need not be read: thresholds
 * from a file, and activations that are zero by themselves.
 *
 * A threshold applies to every row (ops.h), so what a row gives does not depend on its company; only whether the bytes
 * of columns are skipped does, which a step of one row does where a matrix is packed for it (pack.h). */
#ifndef RG_MODEL_SPARSITY_H
#define RG_MODEL_SPARSITY_H

#include "model/model.h"

typedef struct rg_sparsity rg_sparsity;

/* The thresholds of a text as `ridge shrink sparsity` writes it: {"thresholds": {name of a matrix: threshold, ...}}; n
 * bytes, `name` for messages.  NULL and *err: it is none. */
rg_sparsity *rg_sparsity_parse(const char *name, const char *text, size_t n, rg_error *err);
/* Read the thresholds of a file.  "zeros": there are none, and only what is zero by itself is skipped. */
rg_sparsity *rg_sparsity_read(const char *how, rg_error *err);
void rg_sparsity_free(rg_sparsity *s); /* NULL is fine */

/* Give weights that were declared, and not yet bound, their thresholds, and have those packed for skipping whose inputs
 * have one or are made by ReLU or its square.  declared: the same model without weights.  False and *err: a threshold
 * is of no plain matrix of this model. */
bool rg_sparsity_mark(const rg_sparsity *s, rg_weight_set *weights, const rg_model *declared,
                      rg_error *err) RG_MUST_CHECK;

#endif
