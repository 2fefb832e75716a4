/* held.h -- an engine that a test holds before any step, and a clock that a test moves, so that what depends on a certain
 * step or second comes at that one however busy the machine is.  A test that includes it is linked with
 * --wrap=rg_scheduler_next, by which the scheduler is asked through here. */
#ifndef RG_TEST_HELD_H
#define RG_TEST_HELD_H

#include <stdatomic.h>

#include "engine/scheduler.h"
#include "server/live.h"

static atomic_bool held;
static atomic_int permits;                 /* steps that go through though it is held */
static _Atomic uint64_t clock_ns, step_ns; /* what the clock shows, if it is stopped; and what each step adds */

int __real_rg_scheduler_next(rg_scheduler *s, const rg_row_budget *budget, rg_planned *plan);
int __wrap_rg_scheduler_next(rg_scheduler *s, const rg_row_budget *budget, rg_planned *plan);

int __wrap_rg_scheduler_next(rg_scheduler *s, const rg_row_budget *budget, rg_planned *plan)
{
    bool taken = false;
    int n;

    while (atomic_load(&held) && !taken)
        if (atomic_load(&permits) > 0)
            taken = atomic_fetch_sub(&permits, 1) > 0;
        else
            test_nap(0.0005);
    atomic_fetch_add(&clock_ns, atomic_load(&step_ns));
    n = __real_rg_scheduler_next(s, budget, plan);
    if (taken && !n) /* it was no step */
        atomic_fetch_add(&permits, 1);
    return n;
}

static inline void hold(void)
{
    atomic_store(&permits, 0);
    atomic_store(&held, true);
}

static inline void let_go(void)
{
    atomic_store(&held, false);
}

static inline uint64_t stopped_clock(void *arg)
{
    (void)arg;
    return atomic_load(&clock_ns);
}

/* From now on no time passes but what pass() and steps add, step_s each.  rg_clock_set(NULL, NULL) ends it. */
static inline void stop_clock(double step_s)
{
    atomic_store(&clock_ns, rg_now_ns());
    atomic_store(&step_ns, (uint64_t)(step_s * 1e9));
    rg_clock_set(stopped_clock, NULL);
}

static inline void pass(double s)
{
    atomic_fetch_add(&clock_ns, (uint64_t)(s * 1e9));
}

#endif
