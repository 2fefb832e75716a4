/* rounds.h -- times measured over several rounds, so that a short disturbance spoils only one of them.
 *
 * Every round takes the same times in the same order; the median over the rounds counts. */
#ifndef RG_MEASURE_ROUNDS_H
#define RG_MEASURE_ROUNDS_H

#include "base/error.h"

enum { RG_ROUNDS = 5, RG_ROUNDS_TIMES = 1024 };

typedef struct rg_rounds { /* zero at first */
    int n_rounds;          /* begun */
    int n_times;           /* taken in this round */
    uint64_t until_ns;     /* when a round that is not the first is given up; 0: never */
    double time[RG_ROUNDS_TIMES][RG_ROUNDS];
} rg_rounds;

/* Begin the next of at most RG_ROUNDS. */
void rg_rounds_begin(rg_rounds *r);
/* File the next time of this round; returns its median over the rounds so far.  Past RG_ROUNDS_TIMES it is returned as
 * it is. */
double rg_rounds_median(rg_rounds *r, double seconds);
/* True if this round has to be given up, since it is late and not the first. */
bool rg_rounds_late(const rg_rounds *r);
/* Forget the round that was given up, in which other times were taken than in those before. */
void rg_rounds_give_up(rg_rounds *r);
/* The spread of the rounds: for each time the range without the least and the greatest round, divided by the median;
 * then the median over all times.  0: fewer than three rounds. */
double rg_rounds_spread(const rg_rounds *r);

#endif
