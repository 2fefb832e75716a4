/* timer.h -- the reader that keeps time: how long the operations of a step took.
 *
 * Wraps the computing reader.  An operation lasts from when the last thread begins it to when the last one returns from
 * it; the time between operations belongs to none.  Like operations of a step's layers are taken together, and their
 * median counts. */
#ifndef RG_OPS_WATCH_TIMER_H
#define RG_OPS_WATCH_TIMER_H

#include "ops/ops.h"

typedef struct rg_timer rg_timer;

/* For steps of n_threads threads. */
rg_timer *rg_timer_new(int n_threads, rg_error *err);
void rg_timer_free(rg_timer *t); /* NULL is fine */
const rg_reader *rg_timer_wrap(rg_timer *t, const rg_reader *inner);

/* Before a step and after it, on one thread.  Steps of the same part do the same work: a prompt's first rows are one
 * part, those after them the next.  Allocates nothing. */
void rg_timer_begin(rg_timer *t, int part);
void rg_timer_end(rg_timer *t);
/* Forget all times so far. */
void rg_timer_reset(rg_timer *t);

/* Seconds, in every part once, of the operations of a kind (ops.def's name) whose first output has this name ("kv":
 * that have none).  0: none was timed, or a step had too many. */
double rg_timer_seconds(const rg_timer *t, const char *kind, const char *name);

#endif
