/* results.h -- what a method made of each layer, kept in a folder beside the output until that is written.
 *
 * A file of tensors for each layer, whole or absent.  Included by the files of this floor only. */
#ifndef RG_SHRINK_RESULTS_H
#define RG_SHRINK_RESULTS_H

#include "shrink/shrink.h"

typedef struct rg_results rg_results;

/* The folder "to.work", made or found.  job says what is done: a folder of another job is refused. */
rg_results *rg_results_open(const char *to, uint64_t job, const rg_weight_set *set, rg_error *err);
void rg_results_close(rg_results *r); /* NULL is fine */
/* Remove the folder: the output is there. */
void rg_results_remove(rg_results *r);

bool rg_results_has(const rg_results *r, int layer);
bool rg_results_put(rg_results *r, const rg_layer_work *l, rg_error *err) RG_MUST_CHECK;

/* What was made of matrix `mat` of weight w.  1: codes; 2: plain values, in *values, to be freed; 0: nothing; -1: *err.
 * error and n_rows as in rg_shrunk. */
int rg_results_get(rg_results *r, const rg_weight *w, int64_t mat, rg_coded *coded, float **values, double *error,
                   uint64_t *n_rows, rg_error *err);
/* A folded vector, to be freed; NULL without an error: it was not folded. */
float *rg_results_vector(rg_results *r, const rg_weight *w, rg_error *err);

#endif
