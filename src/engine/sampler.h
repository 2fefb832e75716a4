/* sampler.h -- from logits to the next id.  Pure functions; the caller brings the scratch.
 *
 * Rules in this order, each over what the ones before left: bans, min_tokens and repeated runs (-inf), repetition
 * penalty, frequency and presence penalty, DRY, bias, top-n-sigma, temperature, min-p, top-k, top-p, typical-p, XTC;
 * or, after the bias, temperature and mirostat.  The draw is the argmax of logit / T + Gumbel noise -log(-log u), u
 * from Philox keyed by (seed, sample, draw, position, id), ties to the lowest id: a draft drawn with the same noise is
 * the same id. */
#ifndef RG_ENGINE_SAMPLER_H
#define RG_ENGINE_SAMPLER_H

#include "engine/breakers.h"
#include "engine/contents.h"
#include "model/runner.h"

typedef rg_noise_key rg_sample_key;

typedef struct rg_history { /* what penalties look at, and pass over what is no id */
    const int32_t *prompt, *output;
    int32_t n_prompt, n_output;
    const int32_t *draft; /* [n_draft] ids that follow the output if a draft is right */
    int32_t n_draft;
} rg_history;

typedef struct rg_sample_place { /* where an id is chosen */
    rg_history history;
    const int32_t *banned; /* [n_banned] ids not to be chosen (end tokens before min_tokens) */
    int32_t n_banned;
    const rg_breakers *breakers; /* DRY's; NULL: none */
    rg_sample_key key;     /* of XTC's chance */
    float mu;              /* mirostat's bound */
} rg_sample_place;

/* Scratch for one thread, one vocabulary, and histories of at most most_ids. */
typedef struct rg_sampler rg_sampler;
rg_sampler *rg_sampler_new(int32_t vocab_size, int32_t most_ids, rg_error *err);
void rg_sampler_free(rg_sampler *s);

/* False and *err for values no rule can work with (NaN, negative temperature, top_p outside (0, 1], ...). */
bool rg_sampling_check(const rg_sampling *p, int32_t vocab_size, rg_error *err);

/* The best id is drawn whatever the others are. */
static inline bool rg_sampling_is_greedy(const rg_sampling *p)
{
    return p->temperature == 0 && (p->dynatemp_range <= 0 || p->mirostat);
}

/* Apply the rules to logits [vocab_size] in place: what is ruled out is -INFINITY, the rest is divided by temperature.
 * If nothing would be left, the best id by raw logit stays.  NaN logits count as -INFINITY.  softmax of the result is
 * the distribution drawn from; of a greedy draw, logits that no rule changes are left as they came. */
void rg_sample_rules(rg_sampler *s, float *logits, const rg_sampling *p, const rg_sample_place *at);
/* The rules before top-n-sigma alone.  False: nothing is left, and the logits are not to be used. */
bool rg_sample_penalize(rg_sampler *s, float *logits, const rg_sampling *p, const rg_sample_place *at);
/* The id drawn from ruled logits; greedy: their argmax, ties to the lowest id. */
int32_t rg_sample_draw(rg_sampler *s, const float *logits, const rg_sampling *p, const rg_sample_key *key);
/* Which of a row's logits the rules and the draw can need, of an id at a place without bans: pure. */
rg_pick rg_sample_pick(const rg_sampling *p, const rg_sample_key *key);
/* The distribution that is drawn from, out [vocab_size]; greedy: all of it on the best id. */
void rg_sample_distribution(const rg_sampler *s, const float *logits, const rg_sampling *p, double *out);
/* A number in (0, 1), for a draw of its own; pure, as the next. */
int32_t rg_sample_any(const rg_sample_key *key, int32_t n); /* any of n ids, apart from the noise of draws */
double rg_sample_uniform(const rg_sample_key *key);
/* The k ids of ruled logits that are most likely drawn, best first, ties to the lowest id; their number: fewer if fewer
 * are left.  By the noise of a draw (greedy: there is none), or, where key is NULL, of whatever noise. */
typedef struct rg_guess {
    int32_t id;
    float logprob; /* the logarithm of its share: among all ids, or, by the noise of a draw, among the k */
} rg_guess;
int32_t rg_sample_best(const float *logits, int32_t n, const rg_sampling *p, const rg_sample_key *key, int32_t k,
                       rg_guess *best);
/* Mirostat's bound at the first id of an answer; and after an id, drawn by ruled logits under the bound mu. */
float rg_mirostat_begin(const rg_sampling *p);
float rg_mirostat_next(const rg_sampler *s, const float *logits, const rg_sampling *p, float mu, int32_t id);
/* The noise of one id. */
float rg_sample_noise(const rg_sample_key *key, int32_t id);
/* Natural log-probability of ids under raw logits: of one id, and of the k best (best first, ties to the lowest id). */
float rg_logprobs(rg_sampler *s, const float *logits, int32_t id, int32_t k, rg_top *top);
/* All logits become log-probabilities. */
void rg_log_softmax(rg_sampler *s, float *logits);
/* The k best of log-probabilities that are above -INFINITY, in the same order; their number. */
int32_t rg_best_logprobs(rg_sampler *s, const float *logprobs, int32_t k, rg_top *top);

#endif
