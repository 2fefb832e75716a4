/* sampler_logprobs.c -- the best of logits, the sum of their masses, and log-probabilities. */
#include "engine/sampler_inner.h"

/* Eight maxima side by side; NaN is none. */
static float greatest(const float *x, int32_t n)
{
    float lane[8], best = -INFINITY;
    int32_t i = 0;

    for (int k = 0; k < 8; k++)
        lane[k] = -INFINITY;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (int k = 0; k < 8; k++)
        best = lane[k] > best ? lane[k] : best;
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

/* The id is searched for in the best run alone. */
float rg_best_logit(const float *logits, int32_t n, int32_t *id)
{
    const int32_t run = 256;
    float best = -INFINITY;

    *id = 0;
    for (int32_t i = 0; i < n; i += run) {
        float most = greatest(logits + i, n - i < run ? n - i : run);

        if (most > best) {
            best = most;
            *id = i;
        }
    }
    while (best > -INFINITY && logits[*id] != best)
        ++*id;
    return best;
}

static bool top_before(const rg_top *a, const rg_top *b)
{
    return a->logprob > b->logprob || (a->logprob == b->logprob && a->id < b->id);
}

/* Heap with the worst at its root: move the entry at i down. */
static void sink(rg_top *top, int32_t n, int32_t i)
{
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        rg_top t = top[i];

        if (child + 1 < n && top_before(&top[child], &top[child + 1]))
            child++;
        if (!top_before(&t, &top[child]))
            return;
        top[i] = top[child];
        top[child] = t;
    }
}

void rg_find_top(const float *logits, int32_t n, int32_t k, rg_top *top)
{
    for (int32_t i = 0; i < n && k > 0; i++) {
        rg_top t = { .id = i, .logprob = isnan(logits[i]) ? -INFINITY : logits[i] };

        if (i < k)
            top[i] = t;
        if (i == k - 1)
            for (int32_t j = k / 2; j >= 0; j--)
                sink(top, k, j);
        if (i >= k && top_before(&t, &top[0])) {
            top[0] = t;
            sink(top, k, 0);
        }
    }
    for (int32_t m = k - 1; m > 0; m--) {
        rg_top worst = top[0];

        top[0] = top[m];
        top[m] = worst;
        sink(top, m, 0);
    }
}

double rg_total_mass(const float *logits, int32_t n, float best)
{
    const int32_t whole = n / 8 * 8;
    rg_double2 sum[4] = { 0 };
    double total = 0;

    for (int32_t i = 0; i < whole; i += 8)
        for (int k = 0; k < 4; k++) {
            rg_double2 x = { (double)logits[i + 2 * k], (double)logits[i + 2 * k + 1] };
            x -= (double)best;
            rg_long2 counts = x >= -40.0;
            x = rg_exp_negative2((rg_double2)((rg_long2)x & counts));
            sum[k] += (rg_double2)((rg_long2)x & counts);
        }
    for (int k = 0; k < 8; k++)
        total += sum[k / 2][k % 2];
    for (int32_t i = whole; i < n; i++)
        total += isnan(logits[i]) ? 0 : rg_mass(logits[i], best);
    return total;
}

float rg_logprobs(rg_sampler *s, const float *logits, int32_t id, int32_t k, rg_top *top)
{
    int32_t n = s->vocab_size, best_id;
    float best = rg_best_logit(logits, n, &best_id), chosen = isnan(logits[id]) ? -INFINITY : logits[id];
    double total = best > -INFINITY ? rg_total_mass(logits, n, best) : 0, log_total = total > 0 ? rg_ln(total) : 0;

    rg_find_top(logits, n, k, top);
    for (int32_t i = 0; i < k; i++)
        top[i].logprob =
            top[i].logprob == best ? (float)-log_total : (float)((double)top[i].logprob - (double)best - log_total);
    return chosen == best ? (float)-log_total : (float)((double)chosen - (double)best - log_total);
}

void rg_log_softmax(rg_sampler *s, float *logits)
{
    int32_t n = s->vocab_size, best_id;
    float best = rg_best_logit(logits, n, &best_id);
    double log_total = best > -INFINITY ? rg_ln(rg_total_mass(logits, n, best)) : 0;

    for (int32_t i = 0; i < n; i++)
        logits[i] = logits[i] == best ? (float)-log_total : (float)((double)logits[i] - (double)best - log_total);
}

int32_t rg_best_logprobs(rg_sampler *s, const float *logprobs, int32_t k, rg_top *top)
{
    int32_t n = 0;

    rg_find_top(logprobs, s->vocab_size, k, top);
    while (n < k && top[n].logprob > -INFINITY)
        n++;
    return n;
}

