/* sampler_mirostat.c -- mirostat (Basu et al., 2021): ids are dropped so that those drawn are as surprising as wanted.
 *
 * The bound mu follows from the surprise of the ids drawn so far: it is part of the answer, and whoever takes an id
 * takes the mu after it. */
#include "engine/sampler_inner.h"

enum { MOST_RANKED = 100 }; /* of the best ids, by which version 1 tells how fast probabilities fall */

static const double LN2 = 0.6931471805599453;

float rg_mirostat_begin(const rg_sampling *p)
{
    return 2.0f * p->mirostat_tau;
}

/* Version 2: ids whose surprise, in bits, is at most mu. */
static void keep_surprise(float *logits, int32_t n, float best, float mu)
{
    const double most = (double)mu * LN2 - rg_ln(rg_total_mass(logits, n, best)); /* of best - logit, in nats */

    for (int32_t i = 0; i < n; i++)
        if (logits[i] != best && (double)best - (double)logits[i] > most)
            logits[i] = -INFINITY;
    /* A bound that drops even the best id drops all but one. */
    for (int32_t i = 0, n_best = 0; i < n && most < 0; i++)
        if (logits[i] == best && n_best++)
            logits[i] = -INFINITY;
}

/* Zipf's exponent of the best ids: the slope of log-probabilities over the logarithms of ranks. */
static double zipf_exponent(const float *logits, int32_t n)
{
    rg_top top[MOST_RANKED];
    int32_t k = n < MOST_RANKED ? n : MOST_RANKED;
    double products = 0.0, squares = 0.0;

    rg_find_top(logits, n, k, top);
    for (int32_t i = 0; i + 1 < k && top[i + 1].logprob > -INFINITY; i++) {
        double t = rg_ln((double)(i + 2) / (double)(i + 1));

        products += t * ((double)top[i].logprob - (double)top[i + 1].logprob);
        squares += t * t;
    }
    return squares > 0.0 ? products / squares : 0.0;
}

/* epsilon / (1 - n^-epsilon) for the s that is 1 + epsilon; at epsilon 0 the limit. */
static double zipf_scale(double epsilon, double log_n)
{
    double x = rg_exp_negative(-(epsilon < 0.0 ? -epsilon : epsilon) * log_n);

    if (x == 1.0)
        return 1.0 / log_n;
    return epsilon > 0.0 ? epsilon / (1.0 - x) : -epsilon * x / (1.0 - x);
}

/* Version 1: the k best, k being what the exponent says has the surprise mu. */
static void keep_zipf(rg_sampler *s, float *logits, float best, float mu)
{
    const double most = 20.0; /* of the logarithm of k: more than any vocabulary */
    double exponent = zipf_exponent(logits, s->vocab_size), log_k;
    int32_t k = 1;

    if (s->vocab_size < 2)
        return;
    log_k = (double)mu * LN2 + rg_ln(zipf_scale(exponent - 1.0, rg_ln((double)s->vocab_size)));
    if (log_k > most * exponent)
        return;
    log_k /= exponent;
    if (log_k > 0.0)
        k = (int32_t)(1.0 / rg_exp_negative(-log_k));
    rg_keep_k(s, logits, best, k);
}

void rg_keep_mirostat(rg_sampler *s, float *logits, float best, const rg_sampling *p, float mu)
{
    if (p->mirostat == 1)
        keep_zipf(s, logits, best, mu);
    else
        keep_surprise(logits, s->vocab_size, best, mu);
}

float rg_mirostat_next(const rg_sampler *s, const float *logits, const rg_sampling *p, float mu, int32_t id)
{
    int32_t n = s->vocab_size, best_id;
    float best = rg_best_logit(logits, n, &best_id);
    double below = (double)best - (double)logits[id], surprise;

    if (!(below < INFINITY)) /* an id that was dropped: it is never written */
        return mu;
    surprise = (below + rg_ln(rg_total_mass(logits, n, best))) / LN2;
    return mu - p->mirostat_eta * ((float)surprise - p->mirostat_tau);
}
