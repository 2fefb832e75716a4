/* what_if.h -- what if: each way to make a model cheaper, tried on the user's own model at one point.
 *
 * Where a change is another model (fewer K/V heads, windows, other formats, fewer layers), that model is declared and
 * counted like any other.  Where it needs another family (MLA, CLA, linear attention, recurrent state), the counted
 * operations are changed as its paper says.  Changes of serving are formulas over the counted step.  Every row names
 * its formula. */
#ifndef RG_PLAN_WHAT_IF_H
#define RG_PLAN_WHAT_IF_H

#include "plan/plan.h"

typedef struct rg_what_if_options {
    double keep;             /* pruning: share of the layers that stays */
    double acceptance;       /* of a drafted token */
    double draft_cost;       /* of a draft step, of a step of the model */
    const int32_t *lengths;  /* of answers, for static against continuous batching */
    int n_lengths;
    int window;              /* of the window layers */
    int chips;               /* for replicas and sharding */
    double skipped;          /* share of blocks of keys that attention leaves out (--attention-sparsity); 0: none */
} rg_what_if_options;

typedef struct rg_what_if_row {
    char name[48];
    char formula[128];
    double memory_bytes, latency_s, throughput;
    bool fits;
} rg_what_if_row;

enum { RG_WHAT_IF_ROWS = 24 };

typedef struct rg_what_if {
    rg_what_if_row row[RG_WHAT_IF_ROWS]; /* the first is the model as it is */
    int n;
} rg_what_if;

/* Changes that do not apply to the model (kv heads of a model without any) are left out. */
bool rg_what_if_try(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq,
                   const rg_what_if_options *o, rg_what_if *out, rg_error *err) RG_MUST_CHECK;

/* Expected tokens per step of speculation with g drafts: (1 - a^(g+1)) / (1 - a). */
double rg_speculation_tokens(double acceptance, int g);

#endif
