/* fill.h -- what answers of a diffusion model cost: evaluations x rows.
 *
 * An evaluation computes rows of every sequence and finishes some ids of its block.  Which rows depends on the family
 * and on the cache: without one all of prompt and answer; with Fast-dLLM's `prefix` those from the block on, with
 * `dual` the block alone, and all once for each block; where blocks are the model's own (SDAR), the block alone, and
 * once more when its ids are final.  How many ids an evaluation finishes is an assumption: it depends on text and
 * threshold (`ridge study diffusion` measures it). */
#ifndef RG_PLAN_FILL_H
#define RG_PLAN_FILL_H

#include "plan/plan.h"

typedef struct rg_plan_fill {
    int64_t answer, block; /* ids of an answer and of a block */
    double per_evaluation; /* ids that an evaluation finishes of each sequence */
    rg_diffusion_cache cache;
    double evaluations;      /* of an answer; those that only keep a block are counted */
    double rows;             /* of one sequence in an evaluation, on average */
    double seconds, first_s; /* of a whole answer; until its first ids are final */
    double throughput;       /* ids per second of all sequences together */
    double ops, bytes;       /* of an evaluation, on average */
    double limit_s, fixed_s; /* likewise */
    rg_bound bound_by;
    double activation_bytes; /* of the largest step */
} rg_plan_fill;

static inline bool rg_plan_fills(const rg_model *m)
{
    return m && rg_diffusion_fills(&m->config.diffusion);
}

/* Answers of o to prompts of seq - o->answer positions, of batch sequences at once.  A member of o that is 0 takes its
 * default: half of seq, at most 256, for the answer; blocks of 32; one id an evaluation.  False: out of range, or a
 * cache or block that the model does not take. */
bool rg_plan_fill_answer(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq,
                         const rg_plan_filling *o, rg_plan_fill *out, rg_error *err) RG_MUST_CHECK;

enum { RG_PLAN_FILLS = 16 };

/* The caches that a model can have, each with so many ids an evaluation: o's, or else 1, 2, 4 and 8.  Returns how many
 * rows there are; -1 and *err. */
int rg_plan_fill_table(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq,
                       rg_plan_fill out[RG_PLAN_FILLS], rg_error *err) RG_MUST_CHECK;

/* The step of one token, or of a diffusion model of one evaluation in the middle of an answer. */
rg_step_shape rg_plan_step(const rg_plan_subject *s, int64_t batch, int64_t seq);

extern const char *const rg_plan_cache_names[];

#endif
