/* clock.c -- clock_gettime, or the test's stand-in; waits always go by the real clock. */
#include "base/clock.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

static uint64_t (*_Atomic stand_in)(void *arg);
static _Atomic(void *) stand_in_arg;
static _Atomic int64_t ahead_s; /* of the wall clock */

static uint64_t read_ns(clockid_t id)
{
    uint64_t (*now)(void *arg) = atomic_load_explicit(&stand_in, memory_order_acquire);
    struct timespec t = { 0 };

    if (now)
        return now(atomic_load_explicit(&stand_in_arg, memory_order_relaxed));
    clock_gettime(id, &t); /* cannot fail for these two clocks */
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t rg_now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

int64_t rg_wall_ns(void)
{
    return (int64_t)read_ns(CLOCK_REALTIME) + 1000000000 * atomic_load_explicit(&ahead_s, memory_order_relaxed);
}

int64_t rg_wall_s(void)
{
    return rg_wall_ns() / 1000000000;
}

int64_t rg_local_s(void)
{
    time_t now = (time_t)rg_wall_s();
    struct tm t;

    return (int64_t)now + (localtime_r(&now, &t) ? t.tm_gmtoff : 0);
}

double rg_seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns >= from_ns ? (double)(to_ns - from_ns) * 1e-9 : -((double)(from_ns - to_ns) * 1e-9);
}

bool rg_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t a;
    bool ok = !pthread_condattr_init(&a);

    if (!ok)
        return false;
    ok = !pthread_condattr_setclock(&a, CLOCK_MONOTONIC) && !pthread_cond_init(cond, &a);
    pthread_condattr_destroy(&a);
    return ok;
}

bool rg_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double s)
{
    struct timespec end;
    time_t whole = (time_t)s;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += whole;
    end.tv_nsec += (long)((s - (double)whole) * 1e9);
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    return !pthread_cond_timedwait(cond, lock, &end);
}

void rg_clock_jump(int64_t s)
{
    atomic_store(&ahead_s, s);
}

void rg_clock_set(uint64_t (*now_ns)(void *arg), void *arg)
{
    atomic_store(&stand_in, NULL);
    atomic_store(&stand_in_arg, arg);
    atomic_store(&stand_in, now_ns);
}
