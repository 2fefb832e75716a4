/* clock.h -- the one clock. */
#ifndef RG_BASE_CLOCK_H
#define RG_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

uint64_t rg_now_ns(void);                          /* monotonic */
int64_t rg_wall_s(void);                           /* seconds since 1970, UTC; an administrator may set it */
int64_t rg_wall_ns(void);                          /* the same in nanoseconds */
int64_t rg_local_s(void);                          /* the same in local time: seconds that, read as UTC, show the local
                                                    *   date and time */
double rg_seconds(uint64_t from_ns, uint64_t to_ns);

/* A condition whose waits end by the monotonic clock.  False: there is no memory for it. */
bool rg_cond_init(pthread_cond_t *cond);
/* Wait on such a condition until it is signalled, for at most s seconds from now.  False: the time is over. */
bool rg_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, double s);

/* For tests: both clocks read this instead; NULL: the real ones. */
void rg_clock_set(uint64_t (*now_ns)(void *arg), void *arg);
/* For tests: from now on the wall clock is so many seconds ahead of what it would show. */
void rg_clock_jump(int64_t s);

#endif
