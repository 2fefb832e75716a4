/* printed.h -- the figures that the lecture prints for Llama 2 13B on an H100 (docs/LECTURE.md), to stand beside those
 * that its formulae give. */
#ifndef RG_PLAN_PRINTED_H
#define RG_PLAN_PRINTED_H

#include "plan/plan.h"

typedef struct rg_plan_printed {
    int n_kv_heads, batch;
    double memory_gb, latency_ms, tokens_s; /* 0: not printed */
} rg_plan_printed;

/* What the lecture prints for a row of closed-form; NULL: nothing. */
const rg_plan_printed *rg_plan_printed_of(const rg_plan_subject *s, const rg_plan_row *row);
/* True if a printed figure is another than the formula's, and not only one with fewer digits. */
bool rg_plan_printed_differs(double printed, double formula);

#endif
