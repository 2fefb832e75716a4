/* lattice.h -- values that are whole multiples of one step already: weights of a model that was trained for a grid.
 *
 * Whoever rounds such values by a scale of their extreme alone moves all of them where the extreme is not the last
 * code.  What is given was rounded to some float, so that multiples are met within half of its last digit: of bf16, the
 * coarsest, 1/256 of a value.  Ordinary weights do not meet this by chance: of 32 values each would have to. */
#ifndef RG_QUANT_LATTICE_H
#define RG_QUANT_LATTICE_H

#include <math.h>

/* How far a value may lie from the q-th multiple, in steps: its own rounding and that of the extreme. */
static inline float rg_lattice_slack(float q)
{
    const float slack = fabsf(q) / 128.0f;

    return (slack < 0.125f ? slack : 0.125f) + 1e-4f;
}

/* The largest step that all x [n] are multiples of, from -n_codes to n_codes - 1; it is negative only where the
 * extreme is positive and has to be -n_codes steps.  0: there is none.  It is the one of least squares for them. */
static inline float rg_lattice_step(const float *x, int n, int n_codes)
{
    float most = 0.0f;

    for (int i = 0; i < n; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    if (!(fabsf(most) > 1e-30f && fabsf(most) < 1e30f))
        return 0.0f;
    for (int k = 1; k <= n_codes; k++) {
        const float inverse = k < n_codes ? (float)k / fabsf(most) : (float)-k / most;
        double xq = 0, qq = 0;
        int i = 0;

        for (; i < n; i++) {
            const float q = rintf(x[i] * inverse);

            if (!(fabsf(x[i] * inverse - q) <= rg_lattice_slack(q)) || q >= (float)n_codes)
                break;
            xq += (double)x[i] * (double)q;
            qq += (double)q * (double)q;
        }
        if (i == n)
            return (float)(xq / qq);
    }
    return 0.0f;
}

/* The sum of squares of x - y. */
static inline double rg_lattice_loss(const float *x, const float *y, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

#endif
