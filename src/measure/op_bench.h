/* op_bench.h -- where single operations are timed: threads, the reader that computes, and weights, a batch and state of
 * no model.
 *
 * A case is a few lines of seam, usually one operation.  One thread at a time calls these functions. */
#ifndef RG_MEASURE_OP_BENCH_H
#define RG_MEASURE_OP_BENCH_H

#include "ops/backend.h"

enum {
    RG_BENCH_ROWS = 128,     /* of a batch, at most */
    RG_BENCH_COLS = 4096,    /* of an activation, at most */
    RG_BENCH_CONTEXT = 1024, /* positions of the sequence */
    RG_BENCH_HEADS = 64, RG_BENCH_LATENT = 576, /* of queries, and columns of a head, at most */
    RG_BENCH_VECTOR = 1 << 14,
    RG_BENCH_TAPS = 4, RG_BENCH_STATES = 16, RG_BENCH_STATE_DIM = 64, /* of a recurrence */
};

typedef struct rg_op_bench rg_op_bench;
/* The operations of a case, run by every thread. */
typedef void rg_op_case(rg_fwd *f, const rg_op_bench *b);

struct rg_op_bench {
    /* What cases read; set by the caller. */
    rg_weight weight;      /* from rg_op_bench_weights */
    rg_weight norm;
    rg_rope rope;
    rg_kv kv;
    rg_buffer tail, scan, recurrence; /* of recurrences over b->width channels */
    int n_heads, width;    /* of queries; columns of an activation */
    float *vector;         /* [RG_BENCH_VECTOR] -1, -0.5, -1, ...: norms, frequencies, taps, a recurrence's A */

    bool exact;            /* recipe */

    /* The rest is op_bench.c's. */
    rg_pool *pool;
    const rg_backend *backend;
    rg_lane *lane;
    int n_threads;
    void *activations;     /* the lane's memory for them, */
    size_t used_bytes;     /* what the case takes of it */
    uint64_t (*stamp)[2];  /* [n_threads * turns] when a thread began and ended one */
    rg_placed *placed;     /* the matrix; */
    rg_placed **copies;    /* [n_copies] the same values at other places: each turn reads the next copy; NULL: none */
    int n_copies, next_copy;
    rg_state_memory *state; /* of the batch; NULL: not needed yet */
    size_t block_bytes;    /* of state */
    int batch_blocks, n_blocks, first_block; /* the batch has some of all blocks, and every turn reads the next ones */
    rg_span spans[RG_BENCH_ROWS];
    rg_batch batch;
    int32_t *ints, *table; /* of the batch */
    rg_op_case *run;
    int n_turns, n_repeats; /* a turn is the case so often */
};

rg_op_bench *rg_op_bench_open(const rg_backend *backend, int n_threads, rg_error *err);
void rg_op_bench_close(rg_op_bench *b); /* NULL is fine */

/* The batch becomes the last `rows` of the first `end` positions of one sequence, which has no state; or whose state
 * has blocks of so many bytes: those of b->kv, b->tail, b->scan or b->recurrence, or 0. */
void rg_op_bench_batch(rg_op_bench *b, int rows, int end);
bool rg_op_bench_batch_on(rg_op_bench *b, int rows, int end, size_t block_bytes, rg_error *err) RG_MUST_CHECK;
/* The batch becomes the last of `end` positions, at most a block, of each of so many sequences. */
bool rg_op_bench_streams(rg_op_bench *b, int n, int end, size_t block_bytes, rg_error *err) RG_MUST_CHECK;
/* Until the next batch every turn reads the state at another place, all of them together at most so many bytes. */
bool rg_op_bench_spread_state(rg_op_bench *b, size_t bytes, rg_error *err) RG_MUST_CHECK;
/* b->weight becomes a matrix of plausible values.  False: no memory. */
bool rg_op_bench_weights(rg_op_bench *b, rg_type type, int64_t rows, int64_t cols, rg_error *err) RG_MUST_CHECK;
/* Until the next matrix every turn reads another copy of this one, all of them together so many bytes. */
bool rg_op_bench_spread(rg_op_bench *b, size_t bytes, rg_error *err) RG_MUST_CHECK;

/* Seconds of a case: the lower quartile of some turns. */
double rg_op_bench_seconds(rg_op_bench *b, rg_op_case *run);
/* Seconds of a case of one row among others of its kind, by the time of a run of them: what a step takes for it, in
 * which threads meet only where several of them compute. */
double rg_op_bench_among_others(rg_op_bench *b, rg_op_case *run);
/* Values that a case makes (rg_counted.cells), by the reader that counts. */
double rg_op_bench_cells(const rg_op_bench *b, rg_op_case *run);
/* Seconds of a step with nothing in it: to wake the threads and to wait for them. */
double rg_op_bench_empty_step(rg_op_bench *b);

/* ---- the cases (op_cases.c) ---- */

/* With b->weight; over b->width columns; with b->kv and b->n_heads; with b->tail, b->scan, b->recurrence. */
rg_op_case rg_case_linear, rg_case_gated, rg_case_embed;
rg_op_case rg_case_rmsnorm, rg_case_add, rg_case_act_mul, rg_case_softcap, rg_case_gather, rg_case_rotate;
rg_op_case rg_case_turn_back; /* two rotations, by other angles each */
rg_op_case rg_case_kv_store, rg_case_attention, rg_case_mla_attention;
rg_op_case rg_case_conv, rg_case_scan, rg_case_linear_attention;

#endif
