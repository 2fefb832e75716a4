/* machine.h -- measuring this machine: its roofs, and what it gives of them just now. */
#ifndef RG_MODEL_MACHINE_H
#define RG_MODEL_MACHINE_H

#include "base/pool.h"
#include "model/cost.h"
#include "ops/cpu/kernels.h"

/* The roofs, with the kernels of cpu on n_threads threads of pool: about a second, and up to four until they are what
 * the machine gives for a while.  working_set: bytes over which the bandwidth is read (0: large).  No rates yet:
 * rg_rates_measure adds them. */
void rg_machine_measure(rg_machine *out, const rg_cpu *cpu, rg_pool *pool, int n_threads, size_t working_set);

/* Whether a share is about all, of memory and of arithmetic: no less, and no more, as when the roofs are of a time when
 * less was given.  (Shares make good what differs, but for what they do not know.) */
bool rg_machine_holds(const rg_share *s);

/* The read bandwidth alone, bytes per second, the highest of some tries or their median; 0: no memory for the
 * buffer. */
double rg_machine_bandwidth(const rg_cpu *cpu, rg_pool *pool, int n_threads, size_t working_set, bool highest);

/* The median of some reads of as much, each of them pause_s after the last one, which the threads spend computing: of
 * caches that others use meanwhile. */
double rg_machine_bandwidth_after(const rg_cpu *cpu, rg_pool *pool, int n_threads, size_t working_set, double pause_s);

/* Looks at the machine beside what is timed on it: a short run of arithmetic, some meetings of all threads, and short
 * reads from the last cache and from memory on all of them, three milliseconds in all.  What is timed while others take
 * half of the bandwidth says nothing of this machine unless that is known.  One thread at a time. */
typedef struct rg_pulse rg_pulse;

/* Of m's roofs, which are of so many threads.  NULL: no memory. */
rg_pulse *rg_pulse_open(const rg_machine *m, const rg_cpu *cpu, int n_threads, rg_error *err);
void rg_pulse_close(rg_pulse *p); /* NULL is fine */
/* What is given just now, to the threads of pool.  memory false: not of memory nor of the last cache, which leaves
 * caches as they are. */
rg_share rg_pulse_look(rg_pulse *p, rg_pool *pool, bool memory);
/* Of the looks since it was opened or this was last asked, the median: of the last thousand, if there are more. */
rg_share rg_pulse_usual(rg_pulse *p);
/* The same of the last look before that too, and the mean: what was given all the while between the two. */
rg_share rg_pulse_between(rg_pulse *p);

/* Whether others leave the cores alone, and threads are where they meet quickly.  A core shared with a neighbour slows
 * operations unalike, products by 1.9 and attention by 1.5 where this was tried, and threads that share no cache make
 * small operations three times as long: no share makes good what was timed meanwhile.  Such times come and go within
 * seconds, so what is timed had better wait. */
bool rg_pulse_quiet(const rg_pulse *p, const rg_share *s);
/* Looks until it is quiet, or *patience_s, of which what it took is taken, is used up: the last look, which is the only
 * one that counts. */
rg_share rg_pulse_wait(rg_pulse *p, rg_pool *pool, bool memory, double *patience_s);

/* A reader that wraps the one that computes, and looks between a step's operations when the last look was some
 * hundredths of a second ago: a long step meets more than is seen before it and after it.  Looks within a step and the
 * next one outside count as one.  For steps of the same threads. */
const rg_reader *rg_pulse_wrap(rg_pulse *p, const rg_reader *inner);
/* Seconds that looks within steps have taken so far. */
double rg_pulse_within_s(const rg_pulse *p);

#endif
