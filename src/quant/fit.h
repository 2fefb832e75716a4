/* fit.h -- scales for the k-types, by weighted least squares.
 *
 * For a run of values, a handful of trial scales each give integer codes; for given codes the best scale (and minimum)
 * is a small linear problem.  The trial with the smallest error is kept.  Large values weigh more, since products
 * depend on them most.  NaN and infinity give codes in range, nothing else is promised. */
#ifndef RG_QUANT_FIT_H
#define RG_QUANT_FIT_H

#include "quant/block.h"

/* w ~ scale * q with q in [-n_codes, n_codes - 1].  Returns the scale. */
static inline float fit_scale(const float *x, int n, int n_codes)
{
    float most = extreme(x, n), best_scale = 0.0f, best = -1.0f;

    if (fabsf(most) < 1e-30f)
        return 0.0f;
    for (int trial = 0; trial < 38; trial++) {
        float step = 0.1f * (float)(trial % 19 - 9), xq = 0.0f, qq = 0.0f;
        float inverse = (trial < 19 ? step - (float)n_codes : (float)(n_codes - 1) + step) / most;
        for (int i = 0; i < n; i++) {
            float q = (float)round_into(x[i] * inverse, -n_codes, n_codes - 1), weight = x[i] * x[i];
            xq += weight * x[i] * q;
            qq += weight * q * q;
        }
        if (qq > 0.0f && xq * xq > best * qq) {
            best_scale = xq / qq;
            best = xq * best_scale;
        }
    }
    return best_scale;
}

/* Weighted sums of a run and its codes, and what they say of the line x ~ scale * q - minimum. */
typedef struct fit_line {
    float scale, minimum, error;
} fit_line;

static inline fit_line fit_codes(const float *x, const float *weight, const float *q, int n)
{
    float sw = 0.0f, sx = 0.0f, sq = 0.0f, sqq = 0.0f, sxq = 0.0f, determinant;
    fit_line f = { 0 };

    for (int i = 0; i < n; i++) {
        sw += weight[i];
        sx += weight[i] * x[i];
        sq += weight[i] * q[i];
        sqq += weight[i] * q[i] * q[i];
        sxq += weight[i] * x[i] * q[i];
    }
    determinant = sw * sqq - sq * sq;
    if (determinant > 0.0f) {
        f.scale = (sw * sxq - sx * sq) / determinant;
        f.minimum = (sq * sxq - sqq * sx) / determinant;
    }
    if (f.minimum < 0.0f || !(determinant > 0.0f)) { /* the format has no negative minimum */
        f.minimum = 0.0f;
        f.scale = sqq > 0.0f ? sxq / sqq : 0.0f;
    }
    for (int i = 0; i < n; i++) {
        float miss = f.scale * q[i] - f.minimum - x[i];
        f.error += weight[i] * miss * miss;
    }
    return f;
}

/* w ~ scale * q - minimum with q in [0, max], scale and minimum not negative.  n <= 32. */
static inline void fit_minimum(const float *x, int n, int max, float *scale, float *minimum)
{
    float low, high, squares = 0.0f, average, weight[32], q[32];
    fit_line best;

    range(x, n, &low, &high);
    low = low > 0.0f ? 0.0f : low;
    best = (fit_line){ .scale = (high - low) / (float)max, .minimum = -low, .error = INFINITY };
    *scale = *minimum = 0.0f;
    if (!(high > low)) {
        *minimum = -low;
        return;
    }
    for (int i = 0; i < n; i++)
        squares += x[i] * x[i];
    average = sqrtf(squares / (float)n);
    for (int i = 0; i < n; i++)
        weight[i] = average + fabsf(x[i]);
    for (int trial = 0; trial <= 20; trial++) {
        float inverse = ((float)max - 1.0f + 0.1f * (float)trial) / (high - low);
        fit_line f;
        for (int i = 0; i < n; i++)
            q[i] = (float)round_into((x[i] - low) * inverse, 0, max);
        f = fit_codes(x, weight, q, n);
        if (f.error < best.error && f.scale >= 0.0f)
            best = f;
    }
    *scale = best.scale;
    *minimum = best.minimum;
}

/* Signed scales: runs of 16 with s in [-n_scales, n_scales - 1] and codes in [-n_codes, n_codes - 1].  Writes s and the
 * codes; returns d's f16 bits. */
static inline uint16_t fit_signed_256(const float *x, int n_codes, int n_scales, int8_t s[16], int8_t q[256])
{
    float scales[16], most, d, inverse, xq = 0.0f, qq = 0.0f;

    for (int run = 0; run < 16; run++)
        scales[run] = fit_scale(x + 16 * run, 16, n_codes);
    most = extreme(scales, 16);
    d = most / (float)-n_scales;
    inverse = reciprocal(d);
    for (int pass = 0; pass < 2; pass++) {
        uint16_t bits = rg_f32_to_f16(d);
        float stored = rg_f16_to_f32(bits);
        for (int i = 0; i < 256; i++) {
            float step, product;
            if (pass == 0 && i % 16 == 0)
                s[i / 16] = (int8_t)round_into(scales[i / 16] * inverse, -n_scales, n_scales - 1);
            step = stored * (float)s[i / 16];
            q[i] = (int8_t)(step == 0.0f ? 0 : round_into(x[i] / step, -n_codes, n_codes - 1));
            product = (float)(s[i / 16] * q[i]);
            xq += x[i] * x[i] * x[i] * product;
            qq += x[i] * x[i] * product * product;
        }
        if (pass == 1)
            return bits;
        /* Find the best d for the codes, then the codes for that d. */
        if (qq > 0.0f && isfinite(xq / qq) && fabsf(xq / qq) < 65504.0f)
            d = xq / qq;
    }
    return 0;
}

/* Scales and minima: runs of `run` values with s and t in [0, max_scale] and codes in [0, max].  Writes s, t and the
 * codes; d and e as f16 bits in out.  The layout's offset is not added. */
static inline void fit_minimum_256(const float *x, int run, int max, int max_scale, rg_ints *out)
{
    float scale[16], minimum[16], most_scale = 0.0f, most_minimum = 0.0f, d, e, inverse_d, inverse_e;

    for (int j = 0; j < 256 / run; j++) {
        fit_minimum(x + j * run, run, max, &scale[j], &minimum[j]);
        most_scale = scale[j] > most_scale ? scale[j] : most_scale;
        most_minimum = minimum[j] > most_minimum ? minimum[j] : most_minimum;
    }
    inverse_d = most_scale > 0.0f ? (float)max_scale / most_scale : 0.0f;
    inverse_e = most_minimum > 0.0f ? (float)max_scale / most_minimum : 0.0f;
    out->d = rg_f32_to_f16(most_scale / (float)max_scale);
    out->e = rg_f32_to_f16(most_minimum / (float)max_scale);
    d = rg_f16_to_f32(out->d);
    e = rg_f16_to_f32(out->e);
    for (int j = 0; j < 256 / run; j++) {
        float step, offset;
        out->s[j] = (int8_t)round_into(scale[j] * inverse_d, 0, max_scale);
        out->t[j] = (uint8_t)round_into(minimum[j] * inverse_e, 0, max_scale);
        step = d * (float)out->s[j];
        offset = e * (float)out->t[j];
        for (int i = j * run; i < (j + 1) * run; i++)
            out->q[i] = (uint8_t)(step == 0.0f ? 0 : round_into((x[i] + offset) / step, 0, max));
    }
}

#endif
