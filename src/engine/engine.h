/* engine.h -- the step loop: admit, next, forward, sample, commit.
 *
 * Continuous batching: requests wait, run, are preempted and finish; a step computes any mix of spans within the row
 * budget.  rg_core_step does one step on the calling thread and is what tests drive; rg_core_start gives the loop a
 * thread of its own.  Knows no socket, no instruction set, no tokenizer. */
#ifndef RG_ENGINE_ENGINE_H
#define RG_ENGINE_ENGINE_H

#include "engine/request.h"
#include "engine/sampler.h"
#include "model/runner.h"

typedef enum rg_preempt { RG_PREEMPT_AUTO, RG_PREEMPT_RECOMPUTE, RG_PREEMPT_SWAP } rg_preempt;

typedef struct rg_core_options {
    int32_t max_seqs;      /* sequences that run at once */
    int32_t max_rows;      /* of one step; at most the runner's */
    int32_t max_seq_len;
    int32_t max_waiting;   /* requests in the queue; more are refused */
    int64_t max_waiting_ids; /* of their prompts; 0: no limit */
    double max_wait_s;     /* refuse who would wait longer; 0: no limit */
    double prompt_ids_s;   /* how fast prompts are expected to begin; 0: unknown */
    bool use_prefixes, share_prefixes; /* share: between tenants */
    bool static_batching;  /* nobody joins those who run */
    rg_preempt preempt;
    int32_t swap_from;     /* RG_PREEMPT_AUTO: positions from which copying out and in beats computing again */
    double step_s, pace;   /* as in rg_options */
    int32_t n_threads;     /* of the runner: so many samplers */
} rg_core_options;

typedef struct rg_core rg_core;

rg_core *rg_core_new(rg_runner *runner, const rg_core_options *options, rg_error *err);
void rg_core_free(rg_core *c); /* stops the thread, ends what runs as cancelled; NULL is fine */

/* Any thread.  On success the core holds a reference; on failure nothing happened. */
bool rg_core_submit(rg_core *c, rg_request *r, rg_error *err);

/* One step.  False: nothing to do.  Not while the thread runs. */
bool rg_core_step(rg_core *c);
/* Asserts that requests, sequences, pools and index agree. */
void rg_core_check(const rg_core *c);

bool rg_core_start(rg_core *c, rg_error *err);
rg_stats rg_core_stats(rg_core *c);
bool rg_core_wait(rg_core *c, uint64_t *seen, double timeout_s); /* as rg_engine_wait, rg_engine_retry_after */
int32_t rg_core_retry_after(rg_core *c);
bool rg_core_has_room(const rg_core *c, const char *tenant); /* would rg_core_submit take a request of this tenant? */
void rg_core_check_soon(rg_core *c); /* rg_core_check by the running thread, after this step; returns when done */

/* For tests: preempt the i-th running request now, by the given way; false if there is none. */
bool rg_core_preempt(rg_core *c, int i, rg_preempt how);
/* For tests: called before each step is built; may lower the row budget of this step (returns it). */
void rg_core_set_budget(rg_core *c, int32_t (*budget)(void *arg), void *arg);

#endif
