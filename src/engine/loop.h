/* loop.h -- the engine loop: admit, next, forward, sample, commit.
 *
 * Continuous batching: requests wait, run, are preempted and finish; a step computes any mix of spans within the row
 * budget.  rg_loop_step does one step on the calling thread and is what tests drive; rg_loop_start gives the loop a
 * thread of its own.  Knows no socket, no instruction set, no tokenizer. */
#ifndef RG_ENGINE_LOOP_H
#define RG_ENGINE_LOOP_H

#include "engine/options.h"
#include "engine/request.h"

typedef struct rg_loop rg_loop;

/* The runner is borrowed. */
rg_loop *rg_loop_new(rg_runner *runner, const rg_loop_options *options, rg_error *err);
void rg_loop_free(rg_loop *l); /* stops the thread, ends what runs as cancelled; NULL is fine */

/* Any thread.  On success the loop holds a reference; on failure nothing happened. */
bool rg_loop_submit(rg_loop *l, rg_request *r, rg_error *err);

/* One step.  False: nothing to do.  Not while the thread runs. */
bool rg_loop_step(rg_loop *l);
/* Asserts that requests, sequences, pools and index agree. */
void rg_loop_check(const rg_loop *l);

bool rg_loop_start(rg_loop *l, rg_error *err);

/* Any thread, while the loop's own runs. */
rg_stats rg_loop_stats(rg_loop *l);
rg_step_time rg_loop_step_time(rg_loop *l); /* a copy of what has been learnt so far */
bool rg_loop_wait(rg_loop *l, uint64_t *seen, double timeout_s); /* as rg_engine_wait */
int32_t rg_loop_retry_after(rg_loop *l);                         /* as rg_engine_retry_after */
bool rg_loop_has_room(const rg_loop *l, const char *tenant); /* would rg_loop_submit take a request of this tenant? */
void rg_loop_check_soon(rg_loop *l); /* rg_loop_check by the running thread, after this step; returns when done */

/* For tests: preempt the i-th running request now, by the given way; false if there is none. */
bool rg_loop_preempt(rg_loop *l, int i, rg_preempt how);
/* For tests: called before each step is built; may lower the row budget of this step (returns it). */
void rg_loop_set_budget(rg_loop *l, int32_t (*budget)(void *arg), void *arg);

#endif
