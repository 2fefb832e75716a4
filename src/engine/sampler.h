/* sampler.h -- from logits to the next id.  Pure functions; the caller brings the scratch.
 *
 * Rules in this order, each over what the ones before left: bans, min_tokens and repeated runs (-inf), repetition
 * penalty (prompt and output), frequency and presence penalty (output), bias, temperature, min-p, top-k, top-p,
 * typical-p.  The draw is the argmax of logit / T + Gumbel noise -log(-log u), u from Philox keyed by (seed, sample,
 * draw, position, id), ties to the lowest id: a draft drawn with the same noise is the same id. */
#ifndef RG_ENGINE_SAMPLER_H
#define RG_ENGINE_SAMPLER_H

#include "base/error.h"

typedef struct rg_sample_key { /* what makes a draw its own */
    uint64_t seed;
    int32_t sample, draw, position; /* position: of the id being chosen; draw: repeated draws at one position */
} rg_sample_key;

typedef struct rg_history { /* what penalties look at */
    const int32_t *prompt, *output;
    int32_t n_prompt, n_output;
    const int32_t *draft; /* [n_draft] ids that follow the output if a draft is right */
    int32_t n_draft;
} rg_history;

/* Scratch for one thread and one vocabulary. */
typedef struct rg_sampler rg_sampler;
rg_sampler *rg_sampler_new(int32_t vocab_size, rg_error *err);
void rg_sampler_free(rg_sampler *s);

/* False and *err for values no rule can work with (NaN, negative temperature, top_p outside (0, 1], ...). */
bool rg_sampling_check(const rg_sampling *p, int32_t vocab_size, rg_error *err);

/* Apply the rules to logits [vocab_size] in place: what is ruled out is -INFINITY, the rest is divided by temperature.
 * banned: ids not to be chosen (end tokens before min_tokens).  If nothing would be left, the best id by raw logit
 * stays.  NaN logits count as -INFINITY.  softmax of the result is the distribution drawn from; at temperature 0, where
 * the best id is drawn whatever the others are, logits that no rule changes are left as they came. */
void rg_sample_rules(rg_sampler *s, float *logits, const rg_sampling *p, const rg_history *h, const int32_t *banned,
                     int32_t n_banned);
/* The rules before the temperature alone.  False: nothing is left, and the logits are not to be used. */
bool rg_sample_penalize(rg_sampler *s, float *logits, const rg_sampling *p, const rg_history *h, const int32_t *banned,
                        int32_t n_banned);
/* The id drawn from ruled logits; temperature 0: their argmax, ties to the lowest id. */
int32_t rg_sample_draw(rg_sampler *s, const float *logits, const rg_sampling *p, const rg_sample_key *key);
/* The distribution that is drawn from, out [vocab_size]; at temperature 0, all of it on the best id. */
void rg_sample_distribution(const rg_sampler *s, const float *logits, const rg_sampling *p, double *out);
/* A number in (0, 1), for a draw of its own; pure, as the next. */
double rg_sample_uniform(const rg_sample_key *key);
/* The k ids of ruled logits that are most likely drawn, best first, ties to the lowest id; their number: fewer if fewer
 * are left.  By the noise of a draw (temperature 0: there is none), or, where key is NULL, of whatever noise. */
typedef struct rg_guess {
    int32_t id;
    float score; /* the logarithm of its share: among all ids, or, by the noise of a draw, among the k */
} rg_guess;
int32_t rg_sample_best(const float *logits, int32_t n, const rg_sampling *p, const rg_sample_key *key, int32_t k,
                       rg_guess *best);
/* The noise of one id. */
float rg_sample_noise(const rg_sample_key *key, int32_t id);
/* Natural log-probability of ids under raw logits: of one id, and of the k best (best first, ties to the lowest id). */
float rg_logprobs(rg_sampler *s, const float *logits, int32_t id, int32_t k, rg_top *top);
/* All logits become log-probabilities. */
void rg_log_softmax(rg_sampler *s, float *logits);
/* The k best of log-probabilities that are above -INFINITY, in the same order; their number. */
int32_t rg_best_logprobs(rg_sampler *s, const float *logprobs, int32_t k, rg_top *top);

#endif
