/* back.h -- the backward operations: for each kind of operation of the seam, how the gradient of what it wrote becomes
 * the gradients of what it read.
 *
 * One entry for each kind in a table (back.c); a kind without one cannot be differentiated, and rg_back_can says so by
 * name.  All of it is f32 in the host's memory, computed on the host's threads; products and exponentials go to the
 * back end's kernels.  Work is cut by fixed numbers of rows and sums are added in a fixed order, so that a gradient has
 * the same bits for any number of threads.  Knows no tape and no model. */
#ifndef RG_OPS_BACK_BACK_H
#define RG_OPS_BACK_BACK_H

#include "ops/backend.h"

/* A matrix of f32 in the host's memory: rows `ld` floats apart. */
typedef struct rg_mat {
    float *at; /* NULL: there is none */
    size_t ld;
    int rows, cols;
} rg_mat;

static inline float *rg_mat_row(const rg_mat *m, int row)
{
    return m->at + (size_t)row * m->ld;
}

/* ---- what computes ---- */

enum { RG_BACK_PIECES = 24 };

/* A loss of what routers choose: by * the sum over experts of share_e p_e is added for each row of each router, p being
 * its probabilities. */
typedef struct rg_back_balance {
    const double *share; /* [n_experts] */
    double by;           /* 0: no such loss */
} rg_back_balance;

/* The threads, the kernels, and scratch that lives as long as one operation. */
typedef struct rg_back_lane {
    const rg_backend *backend;
    rg_pool *pool;
    int n_threads;
    bool bf16;   /* operands of products with weights are rounded to bf16, sums are in f32 */
    bool failed; /* an operation got no memory; those after it do nothing */
    rg_back_balance balance;
    /* Pieces of scratch, each at least as large as the one before; `piece` is the one that is being handed out. */
    float *room[RG_BACK_PIECES];
    size_t room_floats[RG_BACK_PIECES], used;
    int piece;
} rg_back_lane;

/* pool: n_threads at least, borrowed. */
void rg_back_lane_open(rg_back_lane *l, const rg_backend *backend, rg_pool *pool, int n_threads);
void rg_back_lane_close(rg_back_lane *l);

/* Call part(arg, i, thread) for i = 0 .. n - 1, on any of the threads; what a part computes depends on i alone. */
void rg_back_each(const rg_back_lane *l, int n, void (*part)(void *arg, int i, int thread), void *arg);

/* ---- one operation ---- */

/* K and V that one layer stores and this and other layers read: of every row of the step, in the order of its rows.
 * Gradients are summed over all who read; of latents v is not used, k [rows, k_dim] holds both parts. */
typedef struct rg_back_kv {
    rg_mat k, v, dk, dv;
} rg_back_kv;

/* Rows that go on from those of an earlier step: row r of step k = 1, 2, ... stands k places behind row r of the first
 * step in its text.  It sees what row r of the first step saw, and row r of the steps from 1 to k; no other row of
 * those.  K and V of all steps lie one behind the other. */
typedef struct rg_back_chain {
    int step; /* 0: the first */
    int n_steps;
    const rg_batch *first; /* the batch of the first step */
} rg_back_chain;

/* An operation to be walked back.  Values are those it met: of `out` what it wrote, or, of a kind that changes its
 * output in place, what stood there before; not kept where the kind does not need them (rg_back_kind). */
typedef struct rg_back {
    rg_back_lane *lane;
    const rg_op *op;       /* its activations are handles without values: rows and cols alone mean something */
    const rg_batch *batch; /* every span begins its sequence */
    rg_mat out[3], in[7];
    rg_mat d_out[3];          /* the gradient of what was written; in place: becomes that of what stood there before */
    rg_mat d_in[7];           /* gradients, added to */
    bool write_in[7];         /* of a kind with RG_BACK_WRITES: d_in[i] holds anything, and is written instead */
    const float *w[3], *b[3]; /* values of weights and biases, row-major, NULL where there is none */
    float *dw[3], *db[3];     /* gradients, added to; NULL: not wanted */
    const rg_back_kv *kv;
    const rg_back_chain *chain; /* NULL: the step goes on from none */
    rg_mat d_features;          /* of what the batch gives beside tokens, added to; NULL: not wanted */
} rg_back;

typedef void rg_back_fn(const rg_back *b);

/* Which values of an operation its backward reads. */
enum {
    RG_BACK_OUT = 1 << 8,       /* out[0], as written */
    RG_BACK_BEFORE = 1 << 9,    /* out[0], as it stood before */
    RG_BACK_IN_PLACE = 1 << 10, /* d_out[0] is changed in place: the operation made y of y */
    RG_BACK_NONE = 1 << 11,     /* no gradient passes: what it makes are choices */
    RG_BACK_WRITES = 1 << 12,   /* it can write gradients that nothing was added to yet */
};
#define RG_BACK_IN(i) (1 << (i)) /* in[i] */

typedef struct rg_back_kind {
    rg_back_fn *run; /* NULL: it cannot be differentiated, or RG_BACK_NONE */
    int needs;
} rg_back_kind;

typedef struct rg_back_mark {
    int piece;
    size_t used;
} rg_back_mark;

/* By kind of operation. */
const rg_back_kind *rg_back_of(rg_op_kind kind);
/* A router's probabilities p [n_experts] of all experts: the softmax of its logits; of sigmoids, each divided by the
 * sum of all. */
void rg_back_probabilities(const rg_routing *g, const float *logits, double *p);
/* False and *err: the kind, named, cannot be differentiated. */
bool rg_back_can(const rg_op *op, rg_error *err);

#endif
