/* folds.h -- where a scale per channel can move from the matrices that read an activation into what makes it: found by
 * watching the model's text, so that no architecture is named here. */
#ifndef RG_SHRINK_FOLDS_H
#define RG_SHRINK_FOLDS_H

#include "shrink/shrink.h"

enum { RG_MAX_FOLDS = 32, RG_MAX_FOLD_READERS = 8 };

/* Dividing the rows of `before` (a norm's vector, or a matrix) by s, and multiplying the columns of the readers by s,
 * changes nothing. */
typedef struct rg_fold {
    const rg_weight *before, *bias; /* bias: divided too; NULL: none */
    const rg_weight *reader[RG_MAX_FOLD_READERS];
    int n_readers;
} rg_fold;

/* Find the folds of a layer, in the order in which the model computes them: *n of them.  False and *err: no memory. */
bool rg_folds_find(const rg_model *m, int layer, rg_fold to[RG_MAX_FOLDS], int *n, rg_error *err) RG_MUST_CHECK;

/* True if all that a fold changes can be written anew: matrices that are coded, vectors that are stored as they are. */
bool rg_fold_is_possible(const rg_layer_work *l, const rg_fold *f);
/* Divide by s before, multiply by it behind: in the layer's matrices, its folded vectors, and what is known of
 * inputs. */
bool rg_fold_in(rg_layer_work *l, const rg_fold *f, const float *s, rg_error *err) RG_MUST_CHECK;
/* Call `move` for each fold of the layer into a norm that is possible; nth: its place among all folds. */
bool rg_folds_of_norms(rg_layer_work *l, bool (*move)(rg_layer_work *l, const rg_fold *f, int nth, rg_error *err),
                       rg_error *err) RG_MUST_CHECK;
rg_matrix *rg_matrix_of(const rg_layer_work *l, const rg_weight *w, int64_t mat); /* NULL: it is not coded */

#endif
