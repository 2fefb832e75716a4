/* rates.h -- measuring what the engine's own operations reach on this machine.
 *
 * Each rate is taken through the seam: operations on shapes that belong to no model, run by the reader that computes,
 * so that a rate holds whatever the kernels behind the seam become.  Means count, not the best of tries: a step is a sum
 * of operations, and means add up, whatever else the machine does meanwhile.  Knows no model. */
#ifndef RG_MODEL_RATES_H
#define RG_MODEL_RATES_H

#include "model/cost.h"

/* What to measure: the formats and K/V types that a model has, or all of interest.  Each format takes about 0.2 s. */
typedef struct rg_rates_wanted {
    bool linear[RG_TYPE_COUNT], attention[RG_TYPE_COUNT], latent[RG_TYPE_COUNT];
    bool recurrent; /* convolutions and scans */
    bool experts;
    bool exact;     /* recipe */
    int passes;     /* of which the mean is taken, for what disturbs a machine comes and goes; 0: one */
} rg_rates_wanted;

/* What m's operations need. */
rg_rates_wanted rg_rates_for(const rg_model *m, bool exact);

/* Into m->rates, on n_threads threads.  False: no memory. */
bool rg_rates_measure(rg_machine *m, const rg_cpu *cpu, int n_threads, const rg_rates_wanted *wanted, rg_error *err);

/* The mean of n measurements (0: none yet) becomes that of n + 1; the roofs are the highest seen. */
void rg_machine_mix(rg_machine *mean, int n, const rg_machine *next);

#endif
