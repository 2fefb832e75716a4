/* backend.h -- a back end as a record: what can compute the operations of the seam on this machine.
 *
 * One for each instruction set that the processor has (ops/cpu); a device would be a folder of its own and one line in
 * backends.def.  The floors above choose one by name and know no instruction set and no device. */
#ifndef RG_OPS_BACKEND_H
#define RG_OPS_BACKEND_H

#include "ops/ops.h"

/* The largest sizes of a step, by which a reader's scratch is sized. */
typedef struct rg_reader_sizes {
    int max_rows, max_cols, max_experts, max_experts_used, n_threads, max_heads, max_head_dim, max_keys;
    int max_rank; /* of deltas; 0: there are none */
    int max_folded; /* columns of weights that are folded (rg_placed.is_folded); 0: there are none */
    /* Copies of the weights for as many NUMA nodes, where the back end can; 0: none.  The weights are borrowed. */
    int n_nodes;
    const struct rg_weight *weights; /* [n_weights], which are moved to the first node */
    int n_weights;
} rg_reader_sizes;

/* Kinds of arithmetic of products. */
typedef enum rg_arithmetic {
    RG_ARITHMETIC_F32, RG_ARITHMETIC_BF16, RG_ARITHMETIC_INT8, RG_ARITHMETIC_COUNT
} rg_arithmetic;

typedef struct rg_backend rg_backend;
struct rg_backend {
    const char *name;    /* as --isa has it: "ref", ... */
    const void *kernels; /* the back end's own */

    /* True if it has a fast recipe for weights of this type. */
    bool (*is_fast)(const rg_backend *b, rg_type weights);
    /* True if it can compute an operation of this layer for any rows.  False and *err: what it cannot. */
    bool (*can)(const rg_backend *b, int layer, const rg_op *op, rg_error *err);
    /* The reader that computes, with scratch of its own; shared by the threads of a step.  NULL and *err: no memory. */
    const rg_reader *(*open)(const rg_backend *b, const rg_reader_sizes *sizes, rg_error *err);
    void (*close)(const rg_reader *r); /* NULL is fine */

    /* Memory that its readers use for activations and state, zeroed.  NULL: not enough memory. */
    void *(*memory_new)(size_t bytes);
    void (*memory_free)(void *p, size_t bytes);

    /* Weights.  Place what is described, all of it zeros.  NULL and *err: the format is none of matrices, rows are no
     * whole blocks of it, or there is no memory. */
    rg_placed *(*weight_new)(const rg_backend *b, const rg_placing *what, rg_error *err);
    void (*weight_free)(rg_placed *w);
    /* Put one row, as the file has it: cols values of w->type, in the matrix's order of columns.  Different
     * threads may put rows of different matrices, or of different runs of 16 rows (0 to 15, 16 to 31, ...). */
    void (*weight_put)(rg_placed *w, int64_t mat, int64_t row, const void *src);
    /* Set the order of columns, [cols], of a matrix that has one. */
    void (*weight_order)(rg_placed *w, int64_t mat, const int32_t *order);
    /* All rows are there: values of F16 are kept as BF16 from now on if that holds each of them.  May be left out. */
    void (*weight_end)(rg_placed *w);
    /* Decode one row to cols floats, columns where they belong: for who quantizes or compares.  Not of a paged one. */
    void (*weight_get)(const rg_placed *w, int64_t mat, int64_t row, float *out);

    /* The image of a matrix, as a file keeps it so that nothing is packed again; not of wide weights.  Its bytes (false
     * and *err: as weight_new); a number that differs between back ends and versions that cannot read each other's
     * images; hand an image to `take`, once; have `fill` fill it, once.  Different matrices may be filled by different
     * threads. */
    bool (*image_bytes)(const rg_backend *b, const rg_placing *what, size_t *bytes, rg_error *err);
    uint64_t (*image_version)(const rg_backend *b);
    bool (*image_save)(const rg_placed *w, int64_t mat, rg_image_take *take, void *arg, rg_error *err);
    bool (*image_load)(rg_placed *w, int64_t mat, rg_image_fill *fill, void *arg, rg_error *err);
    const rg_paging *paging; /* matrices that stay in a file; NULL: they cannot */

    /* For measuring.  About n multiply-adds of a kind from registers, by one thread; returns how many were done; 0: it
     * has no such arithmetic.  Read n bytes as fast as it goes; returns a number that depends on all of them. */
    double (*work)(const rg_backend *b, rg_arithmetic kind, double n);
    uint64_t (*stream)(const rg_backend *b, const void *p, size_t n);
};

/* "auto" (the best), or a name.  NULL and *err if it is unknown or this machine lacks it.  Static. */
const rg_backend *rg_backend_find(const char *name, rg_error *err);
/* The i-th that this machine has, best last; NULL past the end.  The 0-th is "ref", the definition in scalar C. */
const rg_backend *rg_backend_nth(int i);

void rg_placed_free(rg_placed *w); /* NULL is fine */

#endif
