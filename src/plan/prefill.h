/* prefill.h -- prompts that are computed together, in chunks: how long until the first token, against how many prompts
 * a second.
 *
 * Prompts computed at once all wait for the last of them: throughput grows until arithmetic limits, and the first
 * token comes later for each.  Chunks bound the rows of a step, and so its activations; each reads the weights once
 * more. */
#ifndef RG_PLAN_PREFILL_H
#define RG_PLAN_PREFILL_H

#include "plan/plan.h"

typedef struct rg_plan_prefill {
    int64_t prompts, chunk;  /* computed together; rows of a step at most, 0: all */
    int64_t steps;
    double ttft_s;           /* of each prompt */
    double prompts_s;        /* prompts a second */
    double activation_bytes; /* of the largest step */
    rg_bound bound_by;
} rg_plan_prefill;

/* `prompts` prompts of seq positions, computed in step. */
bool rg_plan_prefill_of(const rg_plan_subject *s, const rg_plan_machine *m, int64_t prompts, int64_t seq, int64_t chunk,
                        rg_plan_prefill *out, rg_error *err) RG_MUST_CHECK;

#endif
