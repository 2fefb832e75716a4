/* backend.h -- a back end as a record: what can compute the operations of the seam on this machine, and owns the memory
 * that it computes in.
 *
 * The host owns ids, tables of blocks and the rows that it asked for.  A back end owns weights, state and activations:
 * the host holds handles and never a pointer into them, since they may be in memory that it cannot read.  One back end
 * for each instruction set that the processor has (ops/cpu), and one for a GPU (ops/cuda): a folder and one line in
 * backends.def.  The floors above choose one by name and know no instruction set and no device. */
#ifndef RG_OPS_BACKEND_H
#define RG_OPS_BACKEND_H

#include "base/pool.h"
#include "ops/loops.h"
#include "ops/ops.h"

typedef struct rg_backend rg_backend;

/* ---- state ------------------------------------------------------------------------------------------------------- */

/* What a state keeps: groups of blocks, and the layers' K/V and buffers that lie in a block.  Borrowed for the call. */
typedef struct rg_state_shape {
    int n_groups;
    size_t block_bytes[RG_MAX_GROUPS];
    int32_t n_blocks[RG_MAX_GROUPS];
    const rg_kv *kv; /* [n_kv] of layers that keep K/V of their own */
    int n_kv;
    const rg_buffer *buffer; /* [n_buffers] of layers, those kept per position */
    int n_buffers;
} rg_state_shape;

/* The memory of these blocks, a back end's own. */
typedef struct rg_state_memory rg_state_memory;

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* What a text makes of a step.  What the batch does not ask for is NULL. */
typedef struct rg_outputs {
    rg_act *logits; /* of the wanted rows, [n_logits, vocab] */
    rg_act *hidden; /* of all rows, after the final norm, [n_rows, dim] */
    rg_act *scores; /* of the wanted runs, [n_scores, n_labels] */
    rg_act *soft;   /* of the wanted rows, where the batch has temperatures: features of a later step */
} rg_outputs;

/* Receives the results of a step, in memory of the host.  Called on any of the host's threads, several at once for
 * different i; `thread` is the number of the calling one, below the n_threads of what computes. */
typedef struct rg_sink {
    /* Gets the logits [vocab_size] of the i-th wanted row.  It may overwrite them; they stay until the step ends, or,
     * where the row has a pick, until this returns. */
    void (*logits)(void *arg, int thread, int i, float *logits);
    /* Gets the hidden states of the i-th wanted run's rows, [dim] each, the next one `stride` floats further.  May be
     * NULL if no batch asks for any. */
    void (*hidden)(void *arg, int thread, int i, const float *rows, size_t stride);
    /* Gets, if the batch has temperatures, what the model will read of the i-th wanted row as a feature in a later
     * step.  May be NULL likewise. */
    void (*soft)(void *arg, int thread, int i, const float *soft);
    /* Gets the scores [n_labels] of the i-th wanted run.  May be NULL likewise. */
    void (*scores)(void *arg, int thread, int i, const float *scores);
    void *arg;
} rg_sink;

/* One step: a text, the batch that it computes, and who gets the rows that the batch asks for.  Borrowed, with all that
 * it points to, until the step has been waited for. */
typedef struct rg_step {
    rg_outputs (*text)(const void *model, rg_fwd *f);
    const void *model;
    const rg_batch *batch;
    const rg_reader *reader; /* the lane's, or one around it */
    bool exact, llm_int8, bf16; /* as rg_fwd has them, */
    float attention_sparsity;   /*   and this */
    bool settled;            /* each operation is over before the next one begins: for readers that look at values */
    int n_threads;           /* of the lane's, which run it */
    rg_state_memory *state;
    const rg_sink *sink; /* NULL: nobody wants rows */
} rg_step;

/* The largest sizes of a step, from which a lane's scratch follows. */
typedef struct rg_reader_sizes {
    int max_rows, max_cols, max_experts, max_experts_used, n_threads, max_heads, max_head_dim, max_keys;
    int max_rank; /* of deltas; 0: there are none */
    int max_folded; /* columns of weights that are folded (rg_placed.is_folded); 0: there are none */
    /* Copies of the weights for as many NUMA nodes, where the back end can; 0: none.  The weights are borrowed. */
    int n_nodes;
    const struct rg_weight *weights; /* [n_weights], which are moved to the first node */
    int n_weights;
    const struct rg_weight *head; /* the head: a coarse copy of it may be kept, so that logits which no pick of a
                                   * batch needs are not computed; NULL: no copy is wanted.  Borrowed */
} rg_reader_sizes;

typedef struct rg_lane_options {
    rg_reader_sizes sizes;
    size_t activation_bytes; /* as `measure` found them for the largest step */
    rg_pool *pool;           /* the host's threads, sizes.n_threads at least; borrowed */
} rg_lane_options;

/* What computes steps, one after the other: scratch, activations, threads.  The back end's own struct begins with
 * this. */
typedef struct rg_lane {
    const rg_backend *backend;
    const rg_reader *reader; /* the one that computes */
} rg_lane;

/* ---- for who computes in the host's memory (ops/back) ---- */

/* y[r, 16 i + j] = the sum over k of x[r, k] panel i [k][j], for m rows of x: the exact product of f32, which may be
 * added to y, and whose operands may be matrices as they lie; or, of rows that were rounded to bf16 (host_round), with
 * panels rounded likewise and sums in f32, cols being a multiple of 32. */
typedef struct rg_host_product {
    const float *x, *panels; /* panels: [n_panels] of [cols][16], panel_floats apart */
    size_t column_floats;    /* floats from one column of a panel to the next; 16 for rounded rows */
    const uint16_t *rounded; /* NULL: x */
    float *y;
    size_t ldx, ldy, panel_floats;
    int m, n_panels, cols;
    bool turned, add; /* not of rounded rows: x lies as [cols][m], ldx apart; y += the product */
} rg_host_product;

/* ---- the record -------------------------------------------------------------------------------------------------- */

/* Kinds of arithmetic of products. */
typedef enum rg_arithmetic {
    RG_ARITHMETIC_F32, RG_ARITHMETIC_BF16, RG_ARITHMETIC_INT8, RG_ARITHMETIC_COUNT
} rg_arithmetic;

struct rg_backend {
    const char *name;    /* as --isa has it: "ref", ... */
    const void *kernels; /* the back end's own */
    bool by_name;        /* "auto" passes it over: it cannot compute every model yet */
    bool reads_host;     /* its operations read the host's memory: vectors (rg_weight.vec) are not placed besides */

    /* True if it has a fast recipe for weights of this type. */
    bool (*is_fast)(const rg_backend *b, rg_type weights);

    /* State: blocks are numbered from 0 in each group and start as zeros; numbers are within bounds, which the caller
     * checks.  NULL and *err: no memory.  One thread at a time, between steps. */
    rg_state_memory *(*state_new)(const rg_backend *b, const rg_state_shape *shape, rg_error *err);
    void (*state_free)(rg_state_memory *m); /* NULL is fine */
    void (*state_copy)(rg_state_memory *m, int group, int32_t from, int32_t to);
    void (*state_save)(const rg_state_memory *m, int group, int32_t block, void *to); /* block_bytes */
    void (*state_load)(rg_state_memory *m, int group, int32_t block, const void *from);
    void (*state_fill)(rg_state_memory *m, int group, int32_t block, int byte);
    /* What one position of a block keeps, of all layers of the group, to a position of this or another block. */
    void (*state_move)(rg_state_memory *m, int group, int32_t from_block, int from, int32_t to_block, int to);
    /* K/V in 4 bits: make the closed part of a sequence's block from its open part (kv.h); `block` is the number in the
     * tables. */
    void (*state_close)(rg_state_memory *m, const int32_t *const tables[RG_MAX_GROUPS], int32_t block);

    /* True if it can compute every operation of this step; *bytes is raised to the memory that its activations take.
     * It reads only text, model and batch of the step and computes nothing.  False and *err: what it cannot compute. */
    bool (*measure)(const rg_backend *b, const rg_step *step, size_t *bytes, rg_error *err);
    /* NULL and *err: no memory. */
    rg_lane *(*open)(const rg_backend *b, const rg_lane_options *o, rg_error *err);
    void (*close)(rg_lane *lane); /* NULL is fine */
    /* Compute a step.  It may go on after submit returns; when wait returns it is over, the state holds all its rows,
     * and the sink has been called for each that is wanted.  One step at a time; cannot fail; allocates nothing. */
    void (*submit)(rg_lane *lane, const rg_step *step);
    void (*wait)(rg_lane *lane);

    /* Weights.  Place what is described, all of it zeros; vectors only where reads_host is false.  NULL and *err: the
     * format is none of matrices, rows are no whole blocks of it, or there is no memory. */
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

    /* Arithmetic on the host's memory, by the calling thread. */
    void (*host_multiply)(const rg_backend *b, const rg_host_product *p);
    void (*host_round)(const rg_backend *b, uint16_t *to, const float *x, size_t n); /* f32 to bf16, to nearest even */
    void (*host_activate)(const rg_backend *b, rg_activation act, float *y, const float *x, size_t n); /* y = act(x) */
    const rg_loops *(*host_loops)(const rg_backend *b);

    /* For measuring.  About n multiply-adds of a kind from registers, by one thread; returns how many were done; 0: it
     * has no such arithmetic.  Read n bytes of the host's memory as fast as it goes; returns a number that depends on
     * all of them.  A lane's activations where the host can reach them, to fill and to touch; NULL: it cannot. */
    double (*work)(const rg_backend *b, rg_arithmetic kind, double n);
    uint64_t (*stream)(const rg_backend *b, const void *p, size_t n);
    void *(*activations)(rg_lane *lane, size_t *bytes);
};

/* "auto" (the best), or a name.  NULL and *err if it is unknown or this machine lacks it.  Static. */
const rg_backend *rg_backend_find(const char *name, rg_error *err);
/* The i-th that this machine has, best last; NULL past the end.  The 0-th is "ref", the definition in scalar C. */
const rg_backend *rg_backend_nth(int i);

void rg_placed_free(rg_placed *w); /* NULL is fine */

#endif
