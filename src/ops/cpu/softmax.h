/* softmax.h -- the running softmax of queries over a block of keys, in plain C. */
#ifndef RG_OPS_CPU_SOFTMAX_H
#define RG_OPS_CPU_SOFTMAX_H

#include "ops/math.h"
#include "ops/cpu/runs.h"

/* Scores of all 64 keys to weights; unseen ones between seen ones are -inf already, those outside become 0 here.  What
 * the softmax so far is to be multiplied by. */
ALWAYS_INLINE float weigh_one(const rg_attend *a, float *p, rg_softmax *s)
{
    const int lo = rg_seen_lo(a->seen), hi = rg_seen_hi(a->seen);
    _Alignas(64) float lane[16];
    float max = s->m, c;

    for (int j = lo; j < hi; j++)
        max = p[j] > max ? p[j] : max;
    max = max == -__builtin_inff() ? __builtin_nanf("") : max; /* no score is a number: nor is what comes of them */
    c = s->m == -__builtin_inff() ? 0.0f : rg_expf(s->m - max);
    for (int j = 0; j < RG_BLOCK; j++) {
        float e = rg_expf(p[j] - max);
        p[j] = j >= lo && j < hi ? e : 0.0f;
    }
    for (int i = 0; i < 16; i++)
        lane[i] = p[i] + p[16 + i] + p[32 + i] + p[48 + i];
    s->l = __builtin_fmaf(s->l, c, rg_tree16(lane));
    s->m = max;
    return c;
}

ALWAYS_INLINE void weigh(const rg_attend *a, int n, float (*p)[RG_BLOCK], rg_softmax *s, float *c)
{
    for (int i = 0; i < n; i++)
        c[i] = weigh_one(a, p[i], s + i);
}

#endif
