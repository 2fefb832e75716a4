/* runner.h -- what the engine needs of a model: its state, its vocabulary, and one step.
 *
 * The real one is rg_model_runner (model.h); the engine's tests have a fake whose logits are a hash of the history it
 * reads back from the state's blocks. */
#ifndef RG_MODEL_RUNNER_H
#define RG_MODEL_RUNNER_H

#include "model/state.h"

/* What a step will take, by the counting reader. */
typedef struct rg_predicted {
    double ops;
    uint64_t bytes; /* that it must read */
    double limit_s; /* at the limits of the machine; 0: the machine was not measured */
} rg_predicted;

typedef struct rg_runner rg_runner;
struct rg_runner {
    int vocab_size;
    int max_rows;  /* of one step */
    const rg_state_spec *spec;
    rg_store *store;
    /* Compute a batch.  row(arg, i, logits) is called once for each wanted row i < batch->n_logits, on any of the
     * step's threads, several at once for different i; logits [vocab_size] may be scribbled on.  When it returns, the
     * state holds all rows.  Cannot fail; allocates nothing. */
    void (*step)(rg_runner *self, const rg_batch *batch, void (*row)(void *arg, int i, float *logits), void *arg);
    void (*predict)(rg_runner *self, const rg_batch *batch, rg_predicted *out); /* may be NULL */
    /* How many rows of prompts a step can take beside n_decode rows, after `start` positions, within so many seconds:
     * at least 1.  NULL: not known. */
    int (*prompt_rows)(rg_runner *self, int n_decode, int64_t start, double seconds);
};

#endif
