/* clock.h -- the one clock. */
#ifndef RG_BASE_CLOCK_H
#define RG_BASE_CLOCK_H

#include <stdint.h>

uint64_t rg_now_ns(void);                          /* monotonic */
int64_t rg_wall_s(void);                           /* seconds since 1970, UTC */
int64_t rg_local_s(void);                          /* the same in local time: seconds that, read as UTC, show the local
                                                    *   date and time */
double rg_seconds(uint64_t from_ns, uint64_t to_ns);

/* For tests: both clocks read this instead; NULL: the real ones. */
void rg_clock_set(uint64_t (*now_ns)(void *arg), void *arg);

#endif
