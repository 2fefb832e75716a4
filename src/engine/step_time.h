/* step_time.h -- how long a step takes, learnt from the steps before it.
 *
 * roof(step) is the shortest time that the machine allows: the longer of bytes / bandwidth and operations / peak, plus
 * a fixed part.  A step that takes less than its bytes or operations allow proves that the limit was measured too low,
 * and corrects it.  Steps fall short of the roof, the more so on a busy machine: efficiency = roof / time, one number
 * for steps of 1 row, 2 to 3, 4 to 7, ..., each the mean of the latest steps of its size.  A prediction is roof /
 * efficiency.  A size that has not come for some hundred steps, or never, follows the nearest size that has:
 * otherwise one that is thought too slow to be tried would never be found to be quicker.  Larger steps are never
 * predicted to be quicker than smaller ones: what is learnt of one size changes its neighbours where needed.  Reads
 * no clock and no model: arithmetic on given numbers.  Only the engine thread uses it; others work on copies. */
#ifndef RG_ENGINE_STEP_TIME_H
#define RG_ENGINE_STEP_TIME_H

#include "model/runner.h"

enum { RG_STEP_SIZES = 17 }; /* powers of two of rows: up to 65,536 and more */

/* What the machine can do at most; bytes_s 0: it was not measured, and nothing is predicted. */
typedef struct rg_step_roofs {
    double bytes_s;                    /* from where the model's weights lie: a cache, or memory */
    double product_ops_s, key_ops_s;   /* of products with the model's weights, and of attention */
} rg_step_roofs;

typedef struct rg_step_time {
    rg_step_facts facts;
    rg_step_roofs roofs;
    double plain_roof_s[RG_STEP_SIZES]; /* of a prompt of 2^size rows alone */
    double efficiency[RG_STEP_SIZES];  /* by the power of two: what predictions go by, made of what follows */
    double mean[RG_STEP_SIZES];        /* of the latest steps */
    int32_t n_learnt[RG_STEP_SIZES];   /* steps, counted up to what their mean is taken of; 0: none, or long ago */
    int64_t last[RG_STEP_SIZES];       /* number of the latest step */
    int64_t n_steps;
} rg_step_time;

void rg_step_time_init(rg_step_time *t, const rg_step_facts *facts, const rg_step_roofs *roofs);

/* Seconds of a step at the machine's limits, without the fixed part; 0: not measured, as with the next. */
double rg_step_limit_s(const rg_step_time *t, const rg_step_load *load);
/* Seconds that a step is expected to take. */
double rg_step_time_predict(const rg_step_time *t, const rg_step_load *load);
/* True if steps of about so many rows have been seen lately. */
bool rg_step_time_knows(const rg_step_time *t, int32_t n_rows);
/* Learn that a step took so long.  Raises the limit that binds the step, if it took less than that limit allows. */
void rg_step_time_learn(rg_step_time *t, const rg_step_load *load, double took_s);

/* The most rows of a prompt, continued after `start` positions, with which a step that also has `load` is expected to
 * end within most_s: 0 ..  max_rows (max_rows if nothing is predicted). */
int32_t rg_step_time_rows(const rg_step_time *t, const rg_step_load *load, int64_t start, double most_s,
                          int32_t max_rows);

/* True if copying the state of n positions out and in again is quicker than computing it again, max_rows a step. */
bool rg_step_time_swap_is_quicker(const rg_step_time *t, int64_t n, int32_t max_rows);

#endif
