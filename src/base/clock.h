/* clock.h -- the one clock. */
#ifndef RG_BASE_CLOCK_H
#define RG_BASE_CLOCK_H

#include <stdint.h>

uint64_t rg_now_ns(void);                          /* monotonic */
int64_t rg_wall_s(void);                           /* seconds since 1970, UTC */
int64_t rg_local_s(void);                          /* the same, of what clocks on the wall show */
double rg_seconds(uint64_t from_ns, uint64_t to_ns);

/* Seam for tests: both clocks read this instead; NULL for the real ones. */
void rg_clock_set(uint64_t (*now_ns)(void *arg), void *arg);

#endif
