/* sampler_filters.c -- the rules that drop ids by their probability.
 *
 * Top-k, top-p and typical-p are one filter: keep the fewest ids of least key that are k, or whose masses reach p.
 * Keys are sorted into buckets, whole buckets are kept or dropped, and only the ids of the one at the border are
 * selected among: linear, nothing sorts a vocabulary. */
#include <string.h>

#include "engine/sampler_inner.h"

enum { PER_NAT = 16 /* buckets per unit of key; the last takes all that is beyond */ };

/* ---- selection --------------------------------------------------------------------------------------------------- */

static bool before(const rg_sampler_candidate *a, const rg_sampler_candidate *b)
{
    return a->key < b->key || (a->key == b->key && a->id < b->id);
}

static void swap(rg_sampler_candidate *a, rg_sampler_candidate *b)
{
    rg_sampler_candidate t = *a;

    *a = *b;
    *b = t;
}

/* Split [lo, hi) so that everything less than the pivot comes first; returns the pivot's place.  The pivot is the
 * median of three places drawn by a small generator, so that no order of the vocabulary is slow. */
static int32_t split(rg_sampler_candidate *c, int32_t lo, int32_t hi, uint32_t *random)
{
    int32_t pick[3], mid, end = hi - 1;

    for (int i = 0; i < 3; i++) {
        *random = *random * 1664525u + 1013904223u;
        pick[i] = lo + (int32_t)((uint64_t)*random * (uint64_t)(hi - lo) >> 32);
    }
    if (before(&c[pick[1]], &c[pick[0]])) {
        int32_t t = pick[0];
        pick[0] = pick[1];
        pick[1] = t;
    }
    mid = before(&c[pick[2]], &c[pick[0]]) ? pick[0] : before(&c[pick[1]], &c[pick[2]]) ? pick[1] : pick[2];
    swap(&c[mid], &c[end]);
    mid = lo;
    for (int32_t i = lo; i < end; i++)
        if (before(&c[i], &c[end]))
            swap(&c[i], &c[mid++]);
    swap(&c[mid], &c[end]);
    return mid;
}

/* Bring to the front the fewest least candidates whose masses reach `mass`, at least one; returns how many.  Keys with
 * ids differ, so each split makes progress. */
static int32_t select_best(rg_sampler_candidate *c, int32_t n, double mass)
{
    int32_t lo = 0, hi = n;
    uint32_t random = 12345;
    double sum = 0.0;

    /* The masses of [0, lo) are too little; those of [0, hi) are enough, or all there are. */
    while (hi - lo > 1) {
        int32_t mid = split(c, lo, hi, &random);
        double left = 0.0;

        for (int32_t i = lo; i < mid; i++)
            left += c[i].mass;
        if (mid > lo && sum + left >= mass) {
            hi = mid;
        } else if (sum + left + c[mid].mass >= mass) {
            return mid + 1;
        } else {
            sum += left + c[mid].mass;
            lo = mid + 1;
        }
    }
    return hi;
}

/* ---- the filters ------------------------------------------------------------------------------------------------- */

static void keep_min_p(float *logits, int32_t n, float best, float min_p)
{
    for (int32_t i = 0; i < n; i++)
        if (logits[i] > -INFINITY && rg_mass(logits[i], best) < (double)min_p)
            logits[i] = -INFINITY;
}

/* How far a logit lies below the best, seen from `center`: 0 for top-k and top-p, the entropy for typical-p. */
static double key_of(float logit, float best, double center)
{
    double below = logit == best ? 0.0 : (double)best - (double)logit, key = below - center;

    return key < 0.0 ? -key : key;
}

static int bucket_of(double key)
{
    return key < (double)(RG_SAMPLER_BUCKETS - 1) / PER_NAT ? (int)(key * PER_NAT) : RG_SAMPLER_BUCKETS - 1;
}

/* Keep the fewest ids of least key that are k, or (k 0) whose masses are the share p of all. */
static void keep_least(rg_sampler *s, float *logits, float best, double center, int32_t k, double p)
{
    double total = 0.0, reached = 0.0, wanted;
    int32_t n = 0, kept;
    int border = 0;

    memset(s->bucket, 0, sizeof s->bucket);
    for (int32_t i = 0; i < s->vocab_size; i++) {
        double mass;

        if (logits[i] == -INFINITY)
            continue;
        mass = k ? 1.0 : rg_mass(logits[i], best);
        s->bucket[bucket_of(key_of(logits[i], best, center))] += mass;
        total += mass;
    }
    wanted = k ? (double)k : p * total;
    if (k && wanted >= total)
        return;
    while (border < RG_SAMPLER_BUCKETS - 1 && reached + s->bucket[border] < wanted)
        reached += s->bucket[border++];
    for (int32_t i = 0; i < s->vocab_size; i++) {
        double key;
        int bucket;

        if (logits[i] == -INFINITY)
            continue;
        key = key_of(logits[i], best, center);
        bucket = bucket_of(key);
        if (bucket == border)
            s->list[n++] = (rg_sampler_candidate){ .key = key, .id = i, .mass = k ? 1.0 : rg_mass(logits[i], best) };
        else if (bucket > border)
            logits[i] = -INFINITY;
    }
    kept = select_best(s->list, n, wanted - reached);
    for (int32_t i = kept; i < n; i++)
        logits[s->list[i].id] = -INFINITY;
}

/* Locally typical sampling (Meister et al., 2022): nearest first to the entropy H, by |-log p - H|.  With Z the sum of
 * masses and d = best - logit, -log p = d + log Z, so the center of d is H - log Z = sum of p d. */
static void keep_typical(rg_sampler *s, float *logits, float best, float typical_p)
{
    double total = 0.0, sum = 0.0;

    for (int32_t i = 0; i < s->vocab_size; i++) {
        double mass = logits[i] == -INFINITY ? 0.0 : rg_mass(logits[i], best);

        total += mass;
        if (mass > 0.0)
            sum += mass * key_of(logits[i], best, 0.0);
    }
    keep_least(s, logits, best, sum / total, 0, (double)typical_p);
}

void rg_keep_k(rg_sampler *s, float *logits, float best, int32_t k)
{
    keep_least(s, logits, best, 0.0, k, 0.0);
}

void rg_keep_filtered(rg_sampler *s, float *logits, float best, const rg_sampling *p)
{
    if (p->min_p > 0)
        keep_min_p(logits, s->vocab_size, best, p->min_p);
    if (p->top_k)
        keep_least(s, logits, best, 0.0, p->top_k, 0.0);
    if (p->top_p < 1)
        keep_least(s, logits, best, 0.0, 0, (double)p->top_p);
    if (p->typical_p < 1)
        keep_typical(s, logits, best, p->typical_p);
}

/* Top-n-sigma (Tang et al., 2024): logits of at least the best minus n standard deviations of all that are left. */
void rg_keep_n_sigma(float *logits, int32_t n, float best, float n_sigma)
{
    double sum = 0.0, squares = 0.0, mean, most;
    int32_t n_left = 0;

    for (int32_t i = 0; i < n; i++)
        if (logits[i] > -INFINITY) {
            sum += (double)logits[i];
            n_left++;
        }
    mean = sum / n_left;
    for (int32_t i = 0; i < n; i++)
        if (logits[i] > -INFINITY)
            squares += ((double)logits[i] - mean) * ((double)logits[i] - mean);
    most = (double)n_sigma * (double)n_sigma * (squares / n_left); /* both sides squared: no root is needed */
    for (int32_t i = 0; i < n; i++) {
        double below = (double)best - (double)logits[i];

        if (below * below > most)
            logits[i] = -INFINITY;
    }
}

/* XTC, exclude top choices: of the ids that reach the threshold, only the least likely stays, of equal ones the
 * highest. */
void rg_exclude_top(float *logits, int32_t n, float best, float threshold)
{
    const double least = (double)threshold * rg_total_mass(logits, n, best);
    int32_t kept = -1;

    for (int32_t i = 0; i < n; i++)
        if (logits[i] > -INFINITY && rg_mass(logits[i], best) >= least && (kept < 0 || logits[i] <= logits[kept]))
            kept = i;
    for (int32_t i = 0; i < n && kept >= 0; i++)
        if (i != kept && logits[i] > -INFINITY && rg_mass(logits[i], best) >= least)
            logits[i] = -INFINITY;
}
