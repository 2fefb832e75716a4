/* rates.h -- measuring what the engine's own operations reach on this machine.
 *
 * Each rate is taken through the seam: operations on shapes that belong to no model, run by the reader that computes,
 * so that a rate holds whatever the kernels behind the seam become.  A time is the median of some tries, and over some
 * passes the median again.  Beside each try the machine's pulse is taken (machine.h), and rates are of a machine that
 * gives all of its roofs: what others take for the moment is no part of them.  Knows no model. */
#ifndef RG_MODEL_RATES_H
#define RG_MODEL_RATES_H

#include "model/cost.h"
#include "model/shop.h"

/* What to measure: the formats and K/V types that a model has, or all of interest.  Each format takes about 2 s. */
typedef struct rg_rates_wanted {
    bool linear[RG_TYPE_COUNT], attention[RG_TYPE_COUNT], latent[RG_TYPE_COUNT];
    bool recurrent; /* convolutions and scans */
    bool experts;
    bool exact;     /* recipe */
    int passes;     /* 0: one */
} rg_rates_wanted;

/* What m's operations need. */
rg_rates_wanted rg_rates_for(const rg_model *m, bool exact);

/* Into m->rates, and into m->share what was given meanwhile, of m's roofs, which are known.  On n_threads threads.
 * seen (may be NULL; zero at first) remembers what earlier calls saw, for the same cpu, threads, wishes and roofs.
 * False: no memory. */
bool rg_rates_measure(rg_machine *m, const rg_cpu *cpu, int n_threads, const rg_rates_wanted *wanted, rg_seen *seen,
                      rg_error *err);

#endif
