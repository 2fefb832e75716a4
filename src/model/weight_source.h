/* weight_source.h -- where a weight's values lie in a checkpoint: its names, its tensors, and how they become what the
 * seam needs.
 *
 * Made from a row of an architecture's table and the config.  Both packing and converting weights use it. */
#ifndef RG_MODEL_WEIGHT_SOURCE_H
#define RG_MODEL_WEIGHT_SOURCE_H

#include "model/arch.h"

enum { RG_WEIGHT_NAME = 128, RG_OTHER_NAME = 80 };

typedef struct rg_weight_source {
    const rg_weight_spec *spec;
    const rg_config *c;
    const rg_checkpoint *ckpt; /* NULL: a config alone */
    int layer;                 /* -1: outside the layers */
    bool experts;              /* one tensor per matrix, or per row of a table */
    int n_tensors;             /* that the weight is made of: 1, or one for each matrix or row */
    rg_load_fn *load;          /* NULL: as stored */
    const char *name;          /* NULL: this kind of checkpoint has none */
    char other[RG_OTHER_NAME]; /* instead of it (expert_names.h); "": none */
    bool relaid;               /* and the tensor is laid out in another way than the spec says */
    bool part;                 /* of a tensor that holds other weights too */
    bool transposed;           /* the tensor's matrices are [columns, rows] */
    /* This weight's `rows` rows of each matrix are runs of row_run rows, the first at first_row, of the stored_rows
     * that the tensor's matrices have; of row_step such runs one is this weight's. */
    int64_t rows, cols, first_row, row_run, row_step, stored_rows;
} rg_weight_source;

rg_weight_source rg_weight_source_of(const rg_weight_spec *spec, const rg_config *c, const rg_checkpoint *ckpt,
                                     int layer);

/* The tensor of matrix `expert`, older names included; NULL: there is none, or the weight is derived.  out: what it is
 * called. */
const rg_tensor *rg_weight_source_find(rg_weight_source *s, int expert, char out[RG_WEIGHT_NAME]);
/* The i-th name that the weight's tensor (that of matrix 0) may have, without ".weight"; false: there are not so
 * many. */
bool rg_weight_source_name(const rg_weight_source *s, int i, char out[RG_WEIGHT_NAME]);
/* Of a weight that is `paired`: the row of Hugging Face's matrix that stands at row r of GGUF's.  Of each head, pair
 * i's two are rows i and i + dim / 2. */
int64_t rg_paired_row(const rg_config *c, int64_t r);
/* True if t has the shape of the spec (of one matrix of it where there is a tensor per matrix). */
bool rg_weight_source_check(const rg_weight_source *s, const rg_tensor *t, rg_error *err) RG_MUST_CHECK;
/* Where a row of the weight stands in its tensor's matrix. */
int64_t rg_weight_source_row(const rg_weight_source *s, int64_t row);
/* n rows of the weight from `first` on, counted through all matrices of tensor t, as it stores them. */
bool rg_weight_source_rows(const rg_weight_source *s, const rg_tensor *t, int64_t first, int64_t n, uint8_t *to,
                           rg_error *err) RG_MUST_CHECK;
/* All n values of a vector or a table: of one tensor, or of all of them.  rg_free it. */
float *rg_weight_source_vector(rg_weight_source *s, int64_t n, rg_error *err);
/* The weight's n values through `load` (NULL: as stored), from tensor t, which is read whole.  rg_free it. */
float *rg_weight_source_values(const rg_weight_source *s, const rg_tensor *t, rg_load_fn *load, int64_t n,
                               rg_error *err);

int rg_spec_dims(const rg_weight_spec *spec);
bool rg_spec_is_vector(const rg_weight_spec *spec); /* kept as f32: a vector, or a table */

#endif
