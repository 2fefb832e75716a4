/* pool.h -- the worker threads, and how a step is shared out among them.
 *
 * One program, every thread runs it (SPMD).  rg_pool_run calls fn on every thread, the caller being thread 0, and
 * returns when all have.  Within it, work is cut into phases: threads take chunks from the phase's counter until none
 * are left, and a barrier ends the phase.  Who computes a chunk never changes its bits.  The number of cores is
 * hwloc's, within the cgroup's quota. */
#ifndef RG_BASE_POOL_H
#define RG_BASE_POOL_H

#include "base/error.h"

typedef struct rg_pool rg_pool;

/* How many chunks of b things a things make, the last of them perhaps smaller. */
static inline int rg_ceil_div(int64_t a, int64_t b)
{
    return (int)((a + b - 1) / b);
}

int rg_cores(void); /* physical cores that this process may use, within the cgroup's quota; >= 1 */

int rg_nodes(void); /* NUMA nodes of this machine; >= 1 */
/* Physical cores of the node that has the fewest which this process may use; 0: one has none.  Not within the quota. */
int rg_node_cores(void);
/* Keep the calling thread, one of n_threads, on a core of its own where there are as many: threads are spread evenly
 * over the cores in order, so over the nodes too.  Only advice. */
void rg_core_bind(int thread, int n_threads);
/* This process is one of n that share the machine: it stays on its NUMA node, where there are several, and rg_core_bind
 * has its part of the cores.  To be called while the process has one thread. */
void rg_cores_share(int which, int n);

rg_pool *rg_pool_new(int n_threads, rg_error *err);
void rg_pool_free(rg_pool *p); /* NULL is fine; joins the workers */
int rg_pool_threads(const rg_pool *p);
/* From the next run on, each thread of the pool stays on a core (rg_core_bind); the one that calls rg_pool_run is the
 * first of them, and stays there afterwards too. */
void rg_pool_pin(rg_pool *p);

/* Run fn(arg, thread) on threads 0 .. n - 1, n <= rg_pool_threads.  Not reentrant. */
void rg_pool_run(rg_pool *p, int n, void (*fn)(void *arg, int thread), void *arg);

/* Inside rg_pool_run, called by all its threads alike and in the same order.  `phase` is the thread's own count of
 * phases, 0 at the start of the run; every thread passes the same. */
/* The next of n chunks for this thread: first the one of its own number, then those that nobody has; -1 when there are
 * no more.  Every thread takes until then, or takes none: where only some threads take, chunks are left out. */
int rg_phase_take(rg_pool *p, uint32_t phase, int n);
/* The chunk that this thread is likely to take after c, if there are so many: threads that are as fast as each other
 * take turns. */
int rg_phase_likely(const rg_pool *p, int c);
void rg_phase_end(rg_pool *p, uint32_t *phase); /* barrier; then ++*phase */

/* The barrier in two parts, between which a thread takes no chunk.  Every thread arrives; true: all have, and this one
 * came last.  Then that one, or one that all agree on if none arrives, lets all go on, and the others wait for it. */
bool rg_phase_arrive(rg_pool *p);
void rg_phase_open(rg_pool *p, uint32_t *phase);                /* then ++*phase */
void rg_phase_wait(rg_pool *p, uint32_t *phase);                /* likewise */

#endif
