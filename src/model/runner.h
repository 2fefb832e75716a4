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
    double limit_s; /* at the limits of the machine; 0: the machine was not measured, as with seconds: */
    double seconds; /* what it is expected to take */
} rg_predicted;

/* How long the coming step may take, and what is known of it before prompts are put in. */
typedef struct rg_step_aim {
    double seconds;     /* at most; 0: no limit */
    double pace;        /* at most so many times what it takes without prompts; 0: no limit */
    int n_decode;       /* rows of those who are being answered, */
    int64_t decode_at;  /*   the mean of their positions, */
    int64_t prompt_at;  /*   and where the first prompt goes on */
} rg_step_aim;

/* Who takes what a step gives.  Called on any of the step's threads, several at once for different i. */
typedef struct rg_sink {
    /* Of the i-th wanted row: logits [vocab_size], which may be scribbled on. */
    void (*logits)(void *arg, int i, float *logits);
    /* Of the i-th wanted run: the hidden states of its rows, [dim] each, the next one `stride` floats further.  May be
     * NULL if no batch asks for any. */
    void (*hidden)(void *arg, int i, const float *rows, size_t stride);
    void *arg;
} rg_sink;

typedef struct rg_runner rg_runner;
struct rg_runner {
    int vocab_size, dim;
    int max_rows, max_logits; /* of one step; max_logits: of them, those whose logits may be wanted */
    int max_seq_len;          /* positions of a sequence that the memory for state can hold */
    const rg_state_spec *spec;
    rg_store *store;
    /* Compute a batch; the sink is called once for each wanted row and run.  When it returns, the state holds all rows.
     * Cannot fail; allocates nothing. */
    void (*step)(rg_runner *self, const rg_batch *batch, const rg_sink *sink);
    void (*predict)(rg_runner *self, const rg_batch *batch, rg_predicted *out); /* may be NULL */
    int (*prompt_rows)(rg_runner *self, const rg_step_aim *aim); /* that such a step can take, >= 1.  NULL: not known */
};

#endif
