/* runner.h -- what the engine needs of a model: its state, its vocabulary, and one step.
 *
 * The real one is rg_model_runner (model.h); the engine's tests have a fake whose logits are a hash of the history it
 * reads back from the state's blocks. */
#ifndef RG_MODEL_RUNNER_H
#define RG_MODEL_RUNNER_H

#include "model/diffusion.h"
#include "model/state.h"
#include "model/step_facts.h"

typedef struct rg_runner rg_runner;
struct rg_runner {
    int vocab_size, dim;
    int max_rows, max_logits; /* of one step; max_logits: of them, those whose logits may be wanted */
    int max_seq_len;          /* positions of a sequence that the memory for state can hold */
    int n_threads;
    int sees;                 /* how far its rows see (batch.h) */
    rg_diffusion diffusion;
    size_t activation_bytes; /* memory of the activations of the largest step */
    rg_step_facts facts;     /* what steps read and compute; all 0: not known */
    const rg_state_spec *spec;
    rg_store *store;
    /* Compute a batch; the sink is called once for each wanted row and run.  When it returns, the state holds all rows.
     * Cannot fail; allocates nothing. */
    void (*step)(rg_runner *self, const rg_batch *batch, const rg_sink *sink);
    /* Where other processes keep parts of the state: false once one of them is gone, and all state with it.  Steps that
     * are computed from then on, and one that was under way, give the sink nothing, until renew_state, after which
     * every block is there and holds zeros.  Both NULL: state stays. */
    bool (*keeps_state)(const rg_runner *self);
    void (*renew_state)(rg_runner *self);
    bool is_renewed; /* set by who calls renew_state; otherwise the process ends, with a message, when state is gone */
};

/* True if the state of its sequences is gone. */
static inline bool rg_runner_lost_state(const rg_runner *r)
{
    return r->keeps_state && !r->keeps_state(r);
}

#endif
