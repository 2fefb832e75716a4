/* loop.h -- the loop of a model that answers requests: admit, next, draft, forward, commit.
 *
 * Continuous batching: requests wait, run, are preempted and finish; a step computes any mix of spans within the row
 * budget.  A host (host.h) gives it turns on a thread of its own, beside other loops; tests call rg_loop_step.  Knows
 * no socket, no instruction set, no tokenizer. */
#ifndef RG_ENGINE_LOOP_H
#define RG_ENGINE_LOOP_H

#include "engine/options.h"
#include "engine/request.h"

typedef struct rg_loop rg_loop;

/* The runner is borrowed. */
rg_loop *rg_loop_new(rg_runner *runner, const rg_loop_options *options, rg_error *err);
void rg_loop_free(rg_loop *l); /* leaves its host; what runs ends as cancelled; NULL is fine */

/* Any thread.  On success the loop holds a reference; on failure nothing happened. */
bool rg_loop_submit(rg_loop *l, rg_request *r, rg_error *err);

/* The reader of a request, once it has given values or closes it: if it was held (rg_request.is_held), it goes on. */
void rg_loop_return(rg_loop *l, rg_request *r);

/* One step of a network: the model's, or of one that drafts for it.  False: nothing to do.  Without a host. */
bool rg_loop_step(rg_loop *l);
/* Asserts that requests, sequences, pools and index agree.  Between two turns. */
void rg_loop_check(const rg_loop *l);

/* Any thread, while the host's runs. */
rg_stats rg_loop_stats(rg_loop *l);
rg_step_time rg_loop_step_time(rg_loop *l); /* a copy of what has been learnt so far */
bool rg_loop_wait(rg_loop *l, uint64_t *seen, double timeout_s); /* as rg_engine_wait */
int32_t rg_loop_retry_after(rg_loop *l);                         /* as rg_engine_retry_after */
bool rg_loop_has_room(const rg_loop *l, const char *tenant); /* would rg_loop_submit take a request of this tenant? */
void rg_loop_check_soon(rg_loop *l); /* rg_loop_check by the host's thread, after this turn; returns when done */

/* Any thread: wait until every request that has joined the queue is over, while later ones are held, then call
 * change(arg) on the engine's thread, drop cached prefixes, and let the others join.  False and *err: the engine is
 * closing, and nothing was called.  One at a time. */
bool rg_loop_change(rg_loop *l, void (*change)(void *arg), void *arg, rg_error *err);

/* For tests: preempt the i-th running request now, by the given way; false if there is none. */
bool rg_loop_preempt(rg_loop *l, int i, rg_preempt how);
/* For tests: called before each step is built; may lower the row budget of this step (returns it). */
void rg_loop_set_budget(rg_loop *l, int32_t (*budget)(void *arg), void *arg);

#endif
