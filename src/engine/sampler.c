/* sampler.c -- the order of the rules, the temperature, and the draw.  Sums run in a fixed order, so the same logits
 * give the same result everywhere. */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/sampler_inner.h"

rg_sampler *rg_sampler_new(int32_t vocab_size, int32_t most_ids, rg_error *err)
{
    rg_sampler *s = rg_zalloc(sizeof *s);

    RG_ASSERT(vocab_size > 0);
    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->vocab_size = vocab_size;
    s->most_ids = most_ids;
    s->count = rg_array((size_t)vocab_size, sizeof *s->count);
    s->repeat = rg_array((size_t)most_ids, sizeof *s->repeat);
    s->list = rg_array((size_t)vocab_size, sizeof *s->list);
    if (!s->count || !s->repeat || !s->list) {
        rg_sampler_free(s);
        return rg_fail_memory(err, (size_t)vocab_size * sizeof *s->list), NULL;
    }
    return s;
}

void rg_sampler_free(rg_sampler *s)
{
    if (!s)
        return;
    rg_free(s->count);
    rg_free(s->repeat);
    rg_free(s->list);
    rg_free(s);
}

/* ---- the temperature --------------------------------------------------------------------------------------------- */

/* The temperature that holds for these logits: fixed, or within its range the higher, the more alike they are (dynamic
 * temperature), by their entropy over that of all ids alike. */
static double temperature_of(const float *logits, int32_t n, float best, const rg_sampling *p)
{
    double t = (double)p->temperature, range = (double)p->dynatemp_range, low = t > range ? t - range : 0.0;
    double total, sum = 0.0, share;

    if (range <= 0.0 || p->mirostat || n < 2)
        return t;
    total = rg_total_mass(logits, n, best);
    for (int32_t i = 0; i < n; i++) {
        double mass = logits[i] > -INFINITY ? rg_mass(logits[i], best) : 0.0;

        if (mass > 0.0)
            sum += mass * ((double)best - (double)logits[i]);
    }
    share = (sum / total + rg_ln(total)) / rg_ln((double)n);
    if (share > 0.0)
        share = share < 1.0 ? rg_exp_negative((double)p->dynatemp_exponent * rg_ln(share)) : 1.0;
    else
        share = p->dynatemp_exponent > 0.0f ? 0.0 : 1.0;
    return low + (t + range - low) * share;
}

/* The rest is divided by the temperature.  All is first shifted by the best logit, so that no temperature, however
 * small, overflows; the distribution does not see it. */
static void divide(float *logits, int32_t n, float best, float temperature)
{
    for (int32_t i = 0; i < n; i++)
        logits[i] = logits[i] == best ? 0.0f : (logits[i] - best) / temperature;
}

static void keep_one(float *logits, int32_t n, int32_t id)
{
    for (int32_t i = 0; i < n; i++)
        logits[i] = i == id ? 0.0f : -INFINITY;
}

/* ---- the rules --------------------------------------------------------------------------------------------------- */

bool rg_sample_penalize(rg_sampler *s, float *logits, const rg_sampling *p, const rg_sample_place *at)
{
    int32_t n = s->vocab_size, id;

    rg_penalize(s, logits, p, at);
    for (int32_t i = 0; i < n; i++)
        logits[i] = isnan(logits[i]) ? -INFINITY : logits[i];
    return rg_best_logit(logits, n, &id) > -INFINITY;
}

/* True if XTC is applied to this id.  Its draws are its own: no other has such numbers. */
static bool has_xtc(const rg_sampling *p, const rg_sample_key *key)
{
    rg_sample_key own = *key;

    if (p->xtc_probability <= 0 || p->xtc_threshold > 0.5f || p->mirostat)
        return false;
    own.draw = -1 - key->draw;
    return rg_sample_uniform(&own) <= (double)p->xtc_probability;
}

void rg_sample_rules(rg_sampler *s, float *logits, const rg_sampling *p, const rg_sample_place *at)
{
    int32_t n = s->vocab_size, raw_id, id;
    bool plain = !at->n_banned && !rg_penalizes(p);
    float best, temperature;

    if (plain && rg_sampling_is_greedy(p))
        return;
    best = rg_best_logit(logits, n, &raw_id);
    if (!rg_sample_penalize(s, logits, p, at)) {
        logits[raw_id] = 0.0f;
        return;
    }
    id = raw_id;
    best = plain ? best : rg_best_logit(logits, n, &id);
    if (rg_sampling_is_greedy(p)) /* the best id survives every rule that follows */
        return;
    if (p->top_n_sigma > 0 && !p->mirostat)
        rg_keep_n_sigma(logits, n, best, p->top_n_sigma);
    temperature = (float)temperature_of(logits, n, best, p);
    if (temperature <= 0) {
        keep_one(logits, n, id);
        return;
    }
    if (temperature != 1) {
        divide(logits, n, best, temperature);
        best = 0.0f;
    }
    if (p->mirostat)
        rg_keep_mirostat(s, logits, best, p, at->mu);
    else
        rg_keep_filtered(s, logits, best, p);
    if (has_xtc(p, &at->key))
        rg_exclude_top(logits, n, best, p->xtc_threshold);
}

/* ---- the draw ---------------------------------------------------------------------------------------------------- */

float rg_sample_noise(const rg_sample_key *key, int32_t id)
{
    uint32_t bits[4];

    rg_noise_bits(key, (uint32_t)id / 4, bits);
    return rg_gumbel(bits[id % 4]);
}

int32_t rg_sample_any(const rg_sample_key *key, int32_t n)
{
    uint32_t bits[4];

    rg_noise_bits(key, UINT32_MAX, bits); /* no id is so high */
    return (int32_t)(((uint64_t)bits[0] * (uint64_t)n) >> 32);
}

double rg_sample_uniform(const rg_sample_key *key)
{
    uint32_t bits[4];

    rg_noise_bits(key, 0, bits);
    return ((double)bits[0] + 0.5) * 0x1p-32;
}

int32_t rg_sample_draw(rg_sampler *s, const float *logits, const rg_sampling *p, const rg_sample_key *key)
{
    int32_t n = s->vocab_size, id, start;
    float top = rg_best_logit(logits, n, &start);
    double best;

    if (rg_sampling_is_greedy(p) || top == INFINITY)
        return start;
    /* The likeliest id first: most others then fall short without a logarithm, or even without their bits. */
    id = start;
    best = (double)logits[start] + (double)rg_sample_noise(key, start);
    for (int32_t g = 0; g < n; g += 4) {
        int32_t end = g + 4 < n ? g + 4 : n;
        uint32_t bits[4];
        bool any = false;

        for (int32_t i = g; i < end; i++)
            any |= (double)logits[i] + (double)RG_MOST_NOISE >= best;
        if (!any)
            continue;
        rg_noise_bits(key, (uint32_t)g / 4, bits);
        for (int32_t i = g; i < end; i++) {
            double score;

            if (logits[i] == -INFINITY || (double)logits[i] + (double)rg_gumbel_bound(bits[i - g]) < best)
                continue;
            score = (double)logits[i] + (double)rg_gumbel(bits[i - g]);
            if (score > best || (score == best && i < id)) {
                best = score;
                id = i;
            }
        }
    }
    return id;
}

/* What looks at all logits, or needs more of them than the k best, wants all: penalties and biases (the best id may
 * lose to one that was far behind), shares of the sum of all masses, their deviation or entropy.  Behind top-k every
 * rule sees the k best alone.  min-p alone compares with the best logit, which the draw's best by noise need not be. */
rg_pick rg_sample_pick(const rg_sampling *p, const rg_sample_key *key)
{
    const rg_pick all = { 0 };

    if (rg_penalizes(p) || p->mirostat || p->n_logprobs >= 0)
        return all;
    if (rg_sampling_is_greedy(p))
        return (rg_pick){ .k = 1 };
    if (p->top_n_sigma > 0 || p->dynatemp_range > 0)
        return all;
    if (p->top_k)
        return (rg_pick){ .k = p->top_k };
    if (p->min_p > 0 || p->top_p < 1 || p->typical_p < 1 || p->xtc_probability > 0)
        return all;
    return (rg_pick){ .k = 1, .temperature = p->temperature, .key = *key };
}

void rg_sample_distribution(const rg_sampler *s, const float *logits, const rg_sampling *p, double *out)
{
    int32_t n = s->vocab_size, id;
    float best = rg_best_logit(logits, n, &id);
    double sum = 0;

    if (rg_sampling_is_greedy(p) || best == INFINITY || best == -INFINITY) {
        memset(out, 0, (size_t)n * sizeof *out);
        out[id] = 1;
        return;
    }
    for (int32_t i = 0; i < n; i++)
        sum += out[i] = isnan(logits[i]) ? 0 : rg_mass(logits[i], best);
    for (int32_t i = 0; i < n; i++)
        out[i] /= sum;
}

/* ---- the most likely draws --------------------------------------------------------------------------------------- */

/* Put an id among the best *n of at most k.  Ids come in rising order, so that of equal ones the lowest stays first. */
static void put_guess(rg_guess *best, int32_t *n, int32_t k, rg_guess g)
{
    int32_t at = *n < k ? (*n)++ : k - 1;

    for (; at > 0 && best[at - 1].logprob < g.logprob; at--)
        best[at] = best[at - 1];
    best[at] = g;
}

static int32_t best_of_draw(const float *logits, int32_t n, const rg_sample_key *key, int32_t k, rg_guess *best)
{
    int32_t n_best = 0;

    for (int32_t g = 0; g < n; g += 4) {
        int32_t end = g + 4 < n ? g + 4 : n;
        float least = n_best < k ? -INFINITY : best[k - 1].logprob;
        uint32_t bits[4];
        bool any = false;

        for (int32_t i = g; i < end; i++)
            any |= logits[i] + RG_MOST_NOISE > least;
        if (any)
            rg_noise_bits(key, (uint32_t)g / 4, bits);
        for (int32_t i = g; any && i < end; i++) {
            least = n_best < k ? -INFINITY : best[k - 1].logprob;
            if (logits[i] == -INFINITY || logits[i] + rg_gumbel_bound(bits[i - g]) < least)
                continue;
            rg_guess one = { i, logits[i] + rg_gumbel(bits[i - g]) };
            if (one.logprob > least)
                put_guess(best, &n_best, k, one);
        }
    }
    return n_best;
}

int32_t rg_sample_best(const float *logits, int32_t n, const rg_sampling *p, const rg_sample_key *key, int32_t k,
                       rg_guess *best)
{
    const bool noisy = key && !rg_sampling_is_greedy(p);
    int32_t n_best = noisy ? best_of_draw(logits, n, key, k, best) : 0;
    double total = 0;

    for (int32_t i = 0; !noisy && i < n; i++)
        if (logits[i] > (n_best < k ? -INFINITY : best[k - 1].logprob))
            put_guess(best, &n_best, k, (rg_guess){ i, logits[i] });
    if (!n_best)
        return 0;
    const double top = (double)best[0].logprob;
    if (noisy)
        for (int32_t i = 0; i < n_best; i++)
            total += rg_exp_negative((double)best[i].logprob - top);
    else
        total = rg_total_mass(logits, n, best[0].logprob);
    for (int32_t i = 0; i < n_best; i++)
        best[i].logprob = (float)((double)best[i].logprob - top - rg_ln(total));
    return n_best;
}
