/* rounds.h -- times that are measured over several rounds, so that what disturbs for a moment spoils one of them only.
 *
 * Every round takes the same times in the same order; the median over the rounds counts. */
#ifndef RG_MEASURE_ROUNDS_H
#define RG_MEASURE_ROUNDS_H

#include "base/error.h"

enum { RG_ROUNDS = 5, RG_ROUNDS_TIMES = 1024 };

typedef struct rg_rounds { /* zero at first */
    int n_rounds;          /* begun */
    int n_times;           /* taken in this round */
    double time[RG_ROUNDS_TIMES][RG_ROUNDS];
} rg_rounds;

/* Begin the next of at most RG_ROUNDS. */
void rg_rounds_begin(rg_rounds *r);
/* File the next time of this round; returns its median over the rounds so far.  Past RG_ROUNDS_TIMES it is returned as
 * it is. */
double rg_rounds_median(rg_rounds *r, double seconds);
/* How far the rounds are apart: for each time the range of the rounds but for the least and the most, as a share of the
 * median; of all times the median.  0: fewer than three rounds. */
double rg_rounds_spread(const rg_rounds *r);

#endif
