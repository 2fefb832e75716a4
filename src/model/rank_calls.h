/* rank_calls.h -- what rank 0 has the other ranks do: open a model, make a runner, change its state, compute steps.
 *
 * The engine runs on rank 0 alone and knows nothing of ranks.  Its model and its runners hand on what they are told:
 * the same verbs and batches, in the same order.  Any thread of rank 0 may call; calls come one after the other. */
#ifndef RG_MODEL_RANK_CALLS_H
#define RG_MODEL_RANK_CALLS_H

#include "model/model.h"
#include "ops/ranks/link.h"

rg_link *rg_ranks_link(rg_ranks *r);
/* This process is one of a group that mpirun has started.  On rank 0 *r is set; on any other the call returns when
 * rank 0 has stopped the ranks, and *r is NULL.  For tests: host_ranks as of rg_link_mpi, and nanoseconds that each
 * exchange takes longer.  False and *err: MPI is not there. */
bool rg_ranks_join(rg_ranks **r, int host_ranks, uint64_t delay_ns, rg_error *err) RG_MUST_CHECK;
/* Ranks that serve a model of so many bytes of weights best: one on each NUMA node, where each has a few cores of ours
 * and its part of the weights is read in far more time than exchanges take; else 1.  Asks the machine's topology. */
int rg_ranks_best(uint64_t weight_bytes);
/* Threads of each rank where nobody says: its share of the cores; r NULL: all of them. */
int rg_ranks_threads(const rg_ranks *r);

/* Between the two nobody else tells the ranks anything. */
void rg_ranks_lock(rg_ranks *r);
void rg_ranks_unlock(rg_ranks *r);

/* The others begin to open a model; m->number is set.  Each of these calls is followed by rg_ranks_answer once rank 0
 * has done the same.  False and *err: what is asked cannot be told, and nobody was. */
bool rg_ranks_open(rg_ranks *r, rg_model *m, const rg_model_options *o, rg_error *err) RG_MUST_CHECK;
void rg_ranks_close(rg_ranks *r, const rg_model *m);

/* A runner as the other ranks know it: its number, and the group of processes that keep its state with rank 0. */
typedef struct rg_rank_runner {
    int number; /* 0: there is none */
    uint32_t group;
} rg_rank_runner;

bool rg_ranks_runner(rg_ranks *r, const rg_model *m, const rg_runner_options *o, const rg_runner_sizes *sizes,
                     rg_rank_runner *out, rg_error *err) RG_MUST_CHECK;
void rg_ranks_runner_free(rg_ranks *r, const rg_rank_runner *of);
/* True if all other ranks could do what they were told.  False and *err: what the first of them says, or that one has
 * ended. */
bool rg_ranks_answer(rg_ranks *r, rg_error *err) RG_MUST_CHECK;

/* False: its group has lost a rank, and the state that a runner kept with it is gone. */
bool rg_ranks_keep(const rg_ranks *r, const rg_rank_runner *of);
/* Have the runner's state kept again, all of it zeros, by another group if need be, which opens all models and makes
 * all runners again.  Ends the process if that cannot be done. */
void rg_ranks_renew(rg_ranks *r, rg_rank_runner *of);

/* The others compute a batch too; rank 0 does so next, before rg_ranks_unlock. */
void rg_ranks_step(rg_ranks *r, const rg_rank_runner *of, const rg_state_spec *spec, const rg_batch *batch,
                   int given_cols);
/* They change the stores of their runners.  False: its state is gone, and so is what was to be saved. */
bool rg_ranks_store(rg_ranks *r, const rg_rank_runner *of, const rg_state_spec *spec, const rg_store_call *c);

#endif
