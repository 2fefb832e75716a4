/* runner.h -- what the engine needs of a model: its state, its vocabulary, and one step.
 *
 * The real one is rg_model_runner (model.h); the engine's tests have a fake whose logits are a hash of the history it
 * reads back from the state's blocks. */
#ifndef RG_MODEL_RUNNER_H
#define RG_MODEL_RUNNER_H

#include "model/state.h"

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
    /* Operations of such a step, and the bytes it must read. */
    double (*predict)(rg_runner *self, const rg_batch *batch, uint64_t *bytes);
};

#endif
