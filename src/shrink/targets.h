/* targets.h -- which matrices of a model are coded, which tensors they lie in, and what those become.  Included by the
 * files of this floor only. */
#ifndef RG_SHRINK_TARGETS_H
#define RG_SHRINK_TARGETS_H

#include "model/weight_source.h"
#include "shrink/results.h"

typedef struct rg_targets {
    const rg_checkpoint *from;
    const rg_shrink_options *o;
    const rg_config *config;
    const rg_weight_set *set;
    bool *codes;       /* [set->n] this weight's matrices are coded */
    int n_kept;        /* matrices of layers that are not */
    char kept[160];    /* the first of them, and why */
    int *first, *next; /* of each tensor its first weight, of each weight the next one of its tensor; -1: none */
} rg_targets;

bool rg_targets_make(rg_targets *p, const rg_checkpoint *from, const rg_shrink_options *o, const rg_config *c,
                  const rg_weight_set *set, rg_error *err) RG_MUST_CHECK;
void rg_targets_fini(rg_targets *p);

/* The tensor of a matrix. */
const rg_tensor *rg_targets_tensor(const rg_targets *p, int weight, int64_t mat);
/* Rows and columns of what a tensor holds: its own, or the other way round where its family stores matrices so. */
void rg_targets_shape(const rg_targets *p, const rg_tensor *t, int64_t *rows, int64_t *cols);
/* What becomes of a tensor. */
typedef enum rg_becomes { RG_STAYS, RG_CODED, RG_VALUES, RG_VECTOR } rg_becomes;
/* All of it, rows in the tensor's order: codes, or values [rows, cols] to be freed.  False: *err. */
bool rg_targets_result(const rg_targets *p, rg_results *r, const rg_tensor *t, rg_becomes *what, rg_coded *coded,
                    float **values, rg_error *err) RG_MUST_CHECK;
/* The same without reading codes or values. */
rg_becomes rg_targets_becomes(const rg_targets *p, const rg_tensor *t, const bool *folded);

/* Write it.  folded [set->n]: vectors that results have a new value of.  *bytes: of all tensors. */
bool rg_write_hf(const rg_targets *p, rg_results *r, const bool *folded, const char *to, uint64_t *bytes,
                 rg_error *err) RG_MUST_CHECK;
bool rg_write_gguf(const rg_targets *p, rg_results *r, const bool *folded, const char *to, uint64_t *bytes,
                   char warning[RG_CONVERT_WARNING], rg_error *err) RG_MUST_CHECK;

#endif
