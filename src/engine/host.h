/* host.h -- the engine's thread: it hosts loops, each of a model that answers requests, and gives them their turns.
 *
 * One thread computes all steps of all members (member.h), one after the other: those of the loops' models and those of
 * the networks that draft for them.  Between two steps it asks whose turn it is (turns.h), so that a long prompt of one
 * model holds up another one for a step at most.  Loops come and go while others run. */
#ifndef RG_ENGINE_HOST_H
#define RG_ENGINE_HOST_H

#include "base/pool.h"
#include "engine/loop.h"

/* Starts the thread, and a pool of so many for steps.  memory_bytes: what its members may take; 0: no limit.  NULL and
 * *err: no memory, or no thread. */
rg_host *rg_host_new(int n_threads, uint64_t memory_bytes, rg_error *err);
void rg_host_free(rg_host *h); /* ends the thread; no loop is left in it; NULL is fine */
rg_pool *rg_host_pool(rg_host *h);

/* Any thread: so many bytes of the budget are for `what` from now on.  False and *err (RG_E_LIMIT): there are less. */
bool rg_host_take(rg_host *h, uint64_t bytes, const char *what, rg_error *err);
void rg_host_give(rg_host *h, uint64_t bytes);

/* Any thread.  From now on the loop, which is borrowed, has turns.  False and *err: no memory. */
bool rg_host_add(rg_host *h, rg_loop *l, rg_error *err);
/* Any thread but the host's.  The loop's requests end as cancelled, and it has no turns any more. */
void rg_host_remove(rg_host *h, rg_loop *l);
/* Any thread: a loop has something new to do. */
void rg_host_wake(rg_host *h);

#endif
