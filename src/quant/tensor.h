/* tensor.h -- what a stored tensor is: a format, a shape, and where its bytes lie.  Knows no file. */
#ifndef RG_QUANT_TENSOR_H
#define RG_QUANT_TENSOR_H

#include "quant/quant.h"

enum { RG_MAX_DIMS = 4, RG_FILE_COMPOSED = -1, RG_FILE_MEMORY = -2 };

typedef struct rg_tensor {
    const char *name;
    rg_type type;
    int n_dims;
    int64_t shape[RG_MAX_DIMS]; /* outermost first, as Hugging Face writes it: [rows, cols]; unused: 1 */
    uint64_t offset;            /* of its first byte in its file */
    uint64_t bytes;
    int file;                   /* which file of a sharded checkpoint; RG_FILE_COMPOSED: made of others, and offset
                                 *   says which: always [rows, cols]; RG_FILE_MEMORY: values of the caller's, of
                                 *   which it says which */
    const int32_t *order;       /* [cols] the column that stands at each place of a stored row; NULL: place k has column
                                 *   k.  Owned by the checkpoint */
} rg_tensor;

/* Values in t, cols (the last dimension), rows (all the others). */
int64_t rg_tensor_count(const rg_tensor *t);
int64_t rg_tensor_cols(const rg_tensor *t);
int64_t rg_tensor_rows(const rg_tensor *t);

/* n_rows of its rows, as they are stored, to [n_rows, cols] in f32, columns where they belong. */
void rg_tensor_decode(const rg_tensor *t, const void *rows, int64_t n_rows, float *to);

/* "[320, 64]" into out. Returns out. */
char *rg_shape_text(const int64_t *shape, int n_dims, char out[96]);

#endif
