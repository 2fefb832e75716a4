/* sampler_inner.h -- what the files of the sampler share.
 *
 * sampler.c has the order of the rules and the draw, sampler_penalties.c the rules that look at ids written before,
 * sampler_filters.c those that drop ids, sampler_mirostat.c the one that follows the surprise of ids,
 * sampler_logprobs.c log-probabilities, sampler_check.c what is refused. */
#ifndef RG_ENGINE_SAMPLER_INNER_H
#define RG_ENGINE_SAMPLER_INNER_H

#include <math.h> /* INFINITY, isnan: no function of libm is called */

#include "engine/numeric.h"
#include "engine/sampler.h"

enum { RG_SAMPLER_BUCKETS = 1024 };

typedef struct rg_sampler_candidate {
    double key; /* least is best; ties go to the lowest id */
    double mass;
    int32_t id;
} rg_sampler_candidate;

struct rg_sampler {
    int32_t vocab_size, most_ids;
    int32_t *count;  /* [vocab_size] of ids of the history; all 0 between calls */
    int32_t *repeat; /* [most_ids] of DRY: how many of the last ids stand so far back, too */
    rg_sampler_candidate *list; /* [vocab_size] */
    double bucket[RG_SAMPLER_BUCKETS];
};

/* The best logit and its id, ties to the lowest; NaN is none. */
float rg_best_logit(const float *logits, int32_t n, int32_t *id);

/* e^(logit - best); what is below e^-40 counts as nothing: a million of them would not reach 1e-11. */
static inline double rg_mass(float logit, float best)
{
    if (logit == best)
        return 1.0;
    return logit < best - 40.0f ? 0.0 : rg_exp_negative((double)logit - (double)best);
}

/* The sum of all masses, in eight lanes; NaN has none. */
double rg_total_mass(const float *logits, int32_t n, float best);
/* The k best logits, best first, ties to the lowest id; k <= n. */
void rg_find_top(const float *logits, int32_t n, int32_t k, rg_top *top);

/* The rules before the temperature that look at the history. */
void rg_penalize(rg_sampler *s, float *logits, const rg_sampling *p, const rg_sample_place *at);
bool rg_penalizes(const rg_sampling *p); /* false: rg_penalize changes nothing */

/* Filters of ruled logits, whose best value is given: they drop ids by setting them to -INFINITY. */
void rg_keep_n_sigma(float *logits, int32_t n, float best, float n_sigma);
void rg_keep_k(rg_sampler *s, float *logits, float best, int32_t k);
void rg_keep_filtered(rg_sampler *s, float *logits, float best, const rg_sampling *p); /* min-p to typical-p */
/* XTC, once chance has it that it is applied. */
void rg_exclude_top(float *logits, int32_t n, float best, float threshold);
void rg_keep_mirostat(rg_sampler *s, float *logits, float best, const rg_sampling *p, float mu);

#endif
