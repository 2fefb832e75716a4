/* fit.h -- scales for the k-types, by weighted least squares.
 *
 * For a run of values, a handful of trial scales each give integer codes; for given codes the best scale (and minimum)
 * is a small linear problem.  The trial with the smallest error is kept.  Large values weigh more, since products
 * depend on them most.  NaN and infinity give codes in range, nothing else is promised. */
#ifndef RG_QUANT_FIT_H
#define RG_QUANT_FIT_H

#include "quant/block.h"

/* w ~ scale * q with q in [-n_codes, n_codes - 1].  by: how much each value weighs; NULL: its square.  Returns the
 * scale. */
static inline float fit_scale(const float *x, const float *by, int n, int n_codes)
{
    float most = extreme(x, n), best_scale = 0.0f, best = -1.0f;

    if (fabsf(most) < 1e-30f)
        return 0.0f;
    for (int trial = 0; trial < 38; trial++) {
        float step = 0.1f * (float)(trial % 19 - 9), xq = 0.0f, qq = 0.0f;
        float inverse = (trial < 19 ? step - (float)n_codes : (float)(n_codes - 1) + step) / most;
        for (int i = 0; i < n; i++) {
            float q = (float)round_into(x[i] * inverse, -n_codes, n_codes - 1), weight = by ? by[i] : x[i] * x[i];
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

/* w ~ scale * q - minimum with q in [0, max], scale and minimum not negative.  n <= 32.  by: how much each value
 * weighs. */
static inline void fit_minimum(const float *x, const float *by, int n, int max, float *scale, float *minimum)
{
    float low, high, q[32];
    fit_line best;

    range(x, n, &low, &high);
    low = low > 0.0f ? 0.0f : low;
    best = (fit_line){ .scale = (high - low) / (float)max, .minimum = -low, .error = INFINITY };
    *scale = *minimum = 0.0f;
    if (!(high > low)) {
        *minimum = -low;
        return;
    }
    for (int trial = 0; trial <= 20; trial++) {
        float inverse = ((float)max - 1.0f + 0.1f * (float)trial) / (high - low);
        fit_line f;
        for (int i = 0; i < n; i++)
            q[i] = (float)round_into((x[i] - low) * inverse, 0, max);
        f = fit_codes(x, by, q, n);
        if (f.error < best.error && f.scale >= 0.0f)
            best = f;
    }
    *scale = best.scale;
    *minimum = best.minimum;
}

/* Signed scales: runs of 16 with s in [-n_scales, n_scales - 1] and codes in [-n_codes, n_codes - 1].  Writes s and the
 * codes; returns d's f16 bits. */
static inline uint16_t fit_signed_256(const float *x, const float *by, int n_codes, int n_scales, int8_t s[16],
                                      int8_t q[256])
{
    float scales[16], most, d, inverse, xq = 0.0f, qq = 0.0f;

    for (int run = 0; run < 16; run++)
        scales[run] = fit_scale(x + 16 * run, by ? by + 16 * run : NULL, 16, n_codes);
    most = extreme(scales, 16);
    d = most / (float)-n_scales;
    inverse = reciprocal(d);
    for (int pass = 0; pass < 2; pass++) {
        uint16_t bits = rg_f32_to_f16(d);
        float stored = rg_f16_to_f32(bits);
        for (int i = 0; i < 256; i++) {
            float step, product, weight = by ? by[i] : x[i] * x[i];
            if (pass == 0 && i % 16 == 0)
                s[i / 16] = (int8_t)round_into(scales[i / 16] * inverse, -n_scales, n_scales - 1);
            step = stored * (float)s[i / 16];
            q[i] = (int8_t)(step == 0.0f ? 0 : round_into(x[i] / step, -n_codes, n_codes - 1));
            product = (float)(s[i / 16] * q[i]);
            xq += weight * x[i] * product;
            qq += weight * product * product;
        }
        if (pass == 1)
            return bits;
        /* Find the best d for the codes, then the codes for that d. */
        if (qq > 0.0f && isfinite(xq / qq) && fabsf(xq / qq) < 65504.0f)
            d = xq / qq;
    }
    return 0;
}

/* Under d and e: multiples of each run near those that are wanted, and codes; returns what all lose.  *next: the line
 * that would be best for these. */
static inline float choose_minimum_256(const float *x, const float *w, int run, int max, int max_scale,
                                       const float *scale, const float *minimum, rg_ints *out, fit_line *next)
{
    const float d = rg_f16_to_f32(out->d), e = rg_f16_to_f32(out->e);
    float all = 0, aa = 0, bb = 0, ab = 0, ax = 0, bx = 0;

    for (int j = 0; j < 256 / run; j++) {
        const int s0 = round_into(scale[j] * reciprocal(d), 0, max_scale);
        const int t0 = round_into(minimum[j] * reciprocal(e), 0, max_scale);
        float least = INFINITY;
        for (int k = 0; k < 9; k++) {
            const int s = s0 + k % 3 - 1, t = t0 + k / 3 - 1;
            const float step = d * (float)s, offset = e * (float)t, by = reciprocal(step);
            uint8_t q[32];
            float error = 0;
            if (s < 0 || t < 0 || s > max_scale || t > max_scale)
                continue;
            for (int i = 0; i < run; i++) {
                const float v = x[j * run + i];
                q[i] = (uint8_t)round_into((v + offset) * by, 0, max);
                const float miss = step * (float)q[i] - offset - v;
                error += w[j * run + i] * miss * miss;
            }
            if (error < least || least == INFINITY) {
                least = error;
                out->s[j] = (int8_t)s;
                out->t[j] = (uint8_t)t;
                memcpy(out->q + j * run, q, (size_t)run);
            }
        }
        all += least;
        for (int i = j * run; i < (j + 1) * run; i++) {
            const float a = (float)(out->s[j] * out->q[i]), b = (float)out->t[j];
            aa += w[i] * a * a;
            bb += w[i] * b * b;
            ab += w[i] * a * b;
            ax += w[i] * a * x[i];
            bx += w[i] * b * x[i];
        }
    }
    const float determinant = aa * bb - ab * ab;
    *next = (fit_line){ d, e, all };
    if (determinant > 0) { /* x ~ d a - e b */
        next->scale = (ax * bb - ab * bx) / determinant;
        next->minimum = (ax * ab - aa * bx) / determinant;
    } else if (aa > 0) {
        next->scale = ax / aa;
    }
    return all;
}

/* Scales and minima: runs of `run` values with s and t in [0, max_scale] and codes in [0, max].  Writes s, t and the
 * codes; d and e as f16 bits in out.  The layout's offset is not added.  by: how much each value weighs; NULL: all
 * alike. */
static inline void fit_minimum_256(const float *x, const float *by, int run, int max, int max_scale, rg_ints *out)
{
    float scale[16], minimum[16], w[256], most_scale = 0.0f, most_minimum = 0.0f, error;
    fit_line next;

    for (int i = 0; i < 256; i++)
        w[i] = by ? by[i] : 1;
    for (int j = 0; j < 256 / run; j++) {
        fit_minimum(x + j * run, w + j * run, run, max, &scale[j], &minimum[j]);
        most_scale = scale[j] > most_scale ? scale[j] : most_scale;
        most_minimum = minimum[j] > most_minimum ? minimum[j] : most_minimum;
    }
    memset(out, 0, sizeof *out);
    out->d = rg_f32_to_f16(most_scale / (float)max_scale);
    out->e = rg_f32_to_f16(most_minimum / (float)max_scale);
    error = choose_minimum_256(x, w, run, max, max_scale, scale, minimum, out, &next);
    for (int turn = 0; turn < 3; turn++) {
        rg_ints other = { .d = rg_f32_to_f16(next.scale), .e = rg_f32_to_f16(next.minimum) };
        if (!(next.scale > 0) || !(next.minimum >= 0))
            return;
        float now = choose_minimum_256(x, w, run, max, max_scale, scale, minimum, &other, &next);
        if (!(now < error))
            return;
        error = now;
        *out = other;
    }
}

/* w ~ d q + m with q in [0, max] and m of either sign, d and m as f16 bits.  Writes the codes.  n <= 32. */
static inline void fit_line_f16(const float *x, const float *by, int n, int max, uint16_t *d, uint16_t *m, uint8_t *to)
{
    float low, high, best = INFINITY;

    range(x, n, &low, &high);
    *d = 0;
    *m = rg_f32_to_f16(low);
    memset(to, 0, (size_t)n);
    for (int trial = 0; high > low && trial < 44; trial++) {
        const float inverse = ((float)max - 1.2f + 0.1f * (float)(trial / 2)) / (high - low);
        const float from = trial % 2 ? (low + high - (float)max / inverse) / 2 : low;
        float q[32], sw = 0, sx = 0, sq = 0, sqq = 0, sxq = 0, error = 0;
        for (int i = 0; i < n; i++) {
            q[i] = (float)round_into((x[i] - from) * inverse, 0, max);
            sw += by[i];
            sx += by[i] * x[i];
            sq += by[i] * q[i];
            sqq += by[i] * q[i] * q[i];
            sxq += by[i] * x[i] * q[i];
        }
        const float determinant = sw * sqq - sq * sq;
        if (!(determinant > 0))
            continue;
        const uint16_t scale = rg_f32_to_f16((sw * sxq - sx * sq) / determinant);
        const uint16_t minimum = rg_f32_to_f16((sx * sqq - sq * sxq) / determinant);
        const float df = rg_f16_to_f32(scale), mf = rg_f16_to_f32(minimum);
        for (int i = 0; i < n; i++) {
            q[i] = (float)round_into((x[i] - mf) * reciprocal(df), 0, max);
            error += by[i] * (df * q[i] + mf - x[i]) * (df * q[i] + mf - x[i]);
        }
        if (error < best && df > 0) {
            best = error;
            *d = scale;
            *m = minimum;
            for (int i = 0; i < n; i++)
                to[i] = (uint8_t)q[i];
        }
    }
}

#endif
