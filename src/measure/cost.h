/* cost.h -- what a step takes on a machine: counts (ops/count) times the machine give seconds.
 *
 * An operation takes the longer of two times, and a fixed part besides:
 *
 *   its bytes         at the bandwidth of a working set as large as all that the step reads
 *   its arithmetic    products: by how many rows meet a weight, and the values that are read and made; attention: by
 *                     how many queries share a key, and each sequence's first block; all else: by the values that it
 *                     makes, new angles of rotations, and the cache lines that it scatters keys over.  What takes
 *                     longer where weights or K/V are far is interpolated, by the time of a byte, between the places
 *                     where it was measured
 *
 * A machine known from its data sheet has only roofs: the bandwidth of memory, a peak of arithmetic, and no fixed part.
 * A machine that was measured also has rates (rates.h).  Nothing is fitted to a model. */
#ifndef RG_MEASURE_COST_H
#define RG_MEASURE_COST_H

#include "measure/rates.h"
#include "measure/roofs.h"
#include "model/model.h"
#include "ops/count/count.h"

/* What a machine can do. */
typedef struct rg_machine {
    rg_roofs roofs;
    const rg_rates *rates; /* borrowed; NULL: the roofs alone */
} rg_machine;

/* Seconds of a step. */
typedef struct rg_cost {
    double seconds;   /* in all: what is predicted */
    double limit_s;   /* every operation at the longer of its bytes and its peak of arithmetic, no fixed part; */
    double weights_s, state_s, compute_s; /* the part bound by bytes of weights, by bytes of state, by arithmetic */
    double fixed_s;   /* of the step and its operations, within seconds */
    rg_count count;
    int n_ops;
    size_t activation_bytes; /* memory of the activations of the step, as this processor keeps them */
} rg_cost;

/* Called for every operation of a step with its seconds. */
typedef void rg_cost_each(void *arg, const rg_counted *op, double seconds);

/* A step of n_seqs like sequences: n_rows rows each, after `start` positions, and the logits of the last of them. */
typedef struct rg_step_shape {
    int n_seqs, n_rows;
    int64_t start;
    bool exact;    /* recipe */
    int n_logits;  /* of each sequence; 0: one */
    int64_t n_seq; /* positions of each sequence, of models whose rows see rows after them; 0: start + n_rows */
} rg_step_shape;

/* One step over batch.  Allocates nothing. */
void rg_cost_batch(const rg_model *m, const rg_machine *machine, const rg_batch *batch, bool exact, rg_cost *out);

/* One step of a shape.  each may be NULL.  Allocates only for n_seqs > 1 and for models whose rows see rows after
 * them.  False: no memory, or more rows than a step
 * can have. */
bool rg_cost_shape(const rg_model *m, const rg_machine *machine, const rg_step_shape *shape, rg_cost *out,
                   rg_cost_each *each, void *arg, rg_error *err);

/* A prompt of n_rows positions after `start`, in steps of at most `chunk` rows; sums, except activation_bytes, which is
 * the largest.  Allocates nothing. */
void rg_cost_prompt(const rg_model *m, const rg_machine *machine, const rg_step_shape *shape, int chunk, rg_cost *out);

/* n operations as one step; activation_bytes is not known.  Allocates nothing. */
void rg_cost_list(const rg_machine *machine, const rg_counted *ops, int n, bool exact, rg_cost *out);

/* Bandwidth when so many bytes are read again and again; without rates that of memory. */
double rg_machine_bandwidth(const rg_machine *m, double working_set);

#endif
