/* fit_table.h -- codes of a table of 16 values, and the scale under which they miss least. */
#ifndef RG_QUANT_FIT_TABLE_H
#define RG_QUANT_FIT_TABLE_H

#include "quant/block.h"

/* The code whose value under the scale is nearest to x, the first of them. */
static inline int nearest_code(const float table[16], float scale, float x)
{
    float least = INFINITY;
    int best = 0;

    for (int i = 0; i < 16; i++) {
        float off = fabsf(scale * table[i] - x);
        if (off < least) {
            least = off;
            best = i;
        }
    }
    return best;
}

/* x ~ scale * table[codes].  A handful of trial scales, of either sign, map the value of largest magnitude near either
 * end of the table; each gives codes, and those their best scale by weighted least squares, large values weighing
 * more, or each value as `by` says. */
static inline float fit_table_scale(const float *x, const float *by, int n, const float table[16])
{
    float most = extreme(x, n), best_scale = 0.0f, best = -1.0f;

    if (fabsf(most) < 1e-30f || isinf(most))
        return 0.0f;
    for (int trial = 0; trial < 2 * 25; trial++) {
        float end = trial < 25 ? table[0] : table[15];
        float scale = most / (end * (1.0f + 0.015f * (float)(trial % 25 - 12)));
        float xv = 0.0f, vv = 0.0f;

        for (int i = 0; i < n; i++) {
            float v = table[nearest_code(table, scale, x[i])], weight = by ? by[i] : x[i] * x[i];
            xv += weight * x[i] * v;
            vv += weight * v * v;
        }
        if (vv > 0.0f && xv * xv > best * vv) {
            best_scale = xv / vv;
            best = xv * best_scale;
        }
    }
    return best_scale;
}

#endif
