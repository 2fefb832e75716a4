/* grid.c -- see grid.h. */
#include "train/grid.h"

#include <math.h>

#include "quant/quant.h"

static float largest(const float *w, int64_t n)
{
    float most = 0.0f;

    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(w[i]));
    return most;
}

/* The first value of the largest magnitude, with its sign. */
static float signed_largest(const float *w, int64_t n)
{
    float most = 0.0f, of = 0.0f;

    for (int64_t i = 0; i < n; i++)
        if (fabsf(w[i]) > most) {
            most = fabsf(w[i]);
            of = w[i];
        }
    return of;
}

static float as_f16(float x)
{
    uint8_t half[2];
    float back;

    rg_format_of(RG_F16)->encode(&x, 1, half);
    rg_format_of(RG_F16)->decode(half, 1, &back);
    return back;
}

/* The lowest and the highest code, of a zero point at 0. */
static float lowest(const rg_grid *g)
{
    return g->kind == RG_GRID_AFFINE ? 0.0f : (float)-(1 << (g->bits - 1));
}

static float highest(const rg_grid *g)
{
    return (float)((g->kind == RG_GRID_AFFINE ? 1 << g->bits : 1 << (g->bits - 1)) - 1);
}

static float cut(float x, float lo, float hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

rg_grid_group rg_grid_begin(const rg_grid *g, const float *w, int64_t n)
{
    const float most = highest(g);

    if (g->kind == RG_GRID_LSQ && g->by_mean) {
        double sum = 0;

        for (int64_t i = 0; i < n; i++)
            sum += fabs((double)w[i]);
        return (rg_grid_group){ sum > 0 ? (float)(2 * sum / (double)n / sqrt((double)most)) : 1.0f, 0.0f };
    }
    if (g->kind != RG_GRID_AFFINE) {
        const float m = largest(w, n);

        return (rg_grid_group){ m > 0 ? m / most : 1.0f, 0.0f };
    }
    float lo = w[0], hi = w[0];
    for (int64_t i = 1; i < n; i++) {
        lo = fminf(lo, w[i]);
        hi = fmaxf(hi, w[i]);
    }
    const float scale = fmaxf((hi - lo) / most, 1e-4f);
    return (rg_grid_group){ scale, cut(rintf(-lo / scale), 0.0f, most) };
}

/* Codes around 0 of the kinds whose scale follows from the weights; returned: the scale of a code. */
static float formats_own(const rg_grid *g, const float *w, int64_t n, float *code)
{
    if (g->kind == RG_GRID_Q4_0) {
        const float d = signed_largest(w, n) / -8, by = d != 0.0f ? 1 / d : 0.0f;

        for (int64_t i = 0; i < n; i++)
            code[i] = fminf(floorf(w[i] * by + 8.5f), 15.0f) - 8.0f;
        return as_f16(d);
    }
    if (g->kind == RG_GRID_Q8_0) {
        const float d = largest(w, n) / 127, by = d != 0.0f ? 1 / d : 0.0f;

        for (int64_t i = 0; i < n; i++)
            code[i] = roundf(w[i] * by);
        return as_f16(d);
    }
    const float most = largest(w, n), s = most > 0 ? most / highest(g) : 1.0f;
    for (int64_t i = 0; i < n; i++)
        code[i] = cut(rintf(w[i] / s), lowest(g), highest(g));
    return s;
}

void rg_grid_round(const rg_grid *g, const float *w, int64_t n, rg_grid_group *of, float *value, uint8_t *code)
{
    const float z = g->kind == RG_GRID_AFFINE ? rintf(of->zero) : 0.0f;
    const float base = g->kind == RG_GRID_AFFINE ? 0.0f : (float)(1 << (g->bits - 1));

    if (!rg_grid_learns_scale(g))
        of->scale = formats_own(g, w, n, value);
    else
        for (int64_t i = 0; i < n; i++)
            value[i] = g->kind == RG_GRID_LSQ ? rintf(cut(w[i] / of->scale, lowest(g), highest(g)))
                                              : cut(rintf(w[i] / of->scale) + z, lowest(g), highest(g));
    for (int64_t i = 0; i < n; i++) {
        if (code)
            code[i] = (uint8_t)(value[i] + base);
        value[i] = (value[i] - z) * of->scale;
    }
}

float rg_grid_value(const rg_grid *g, uint8_t code, const rg_grid_group *of)
{
    const float z = g->kind == RG_GRID_AFFINE ? rintf(of->zero) : (float)(1 << (g->bits - 1));

    return ((float)code - z) * of->scale;
}

/* A code that is not cut passes its gradient, at the ends of the range too. */
void rg_grid_back(const rg_grid *g, const float *w, int64_t n, const rg_grid_group *of, const float *d_value,
                  float *d_w, rg_grid_group *d_of)
{
    const float lo = lowest(g), hi = highest(g), s = of->scale, z = rintf(of->zero);
    double d_scale = 0, d_zero = 0;

    for (int64_t i = 0; i < n; i++) {
        const float d = d_value[i];

        if (g->kind == RG_GRID_AFFINE) {
            const float v = rintf(w[i] / s) + z;
            const bool inside = v >= lo && v <= hi;

            d_w[i] = inside ? d : 0.0f;
            d_scale += (double)d * (double)(inside ? v - z - w[i] / s : cut(v, lo, hi) - z);
            d_zero -= inside ? 0 : (double)d * (double)s;
        } else if (g->kind == RG_GRID_LSQ) {
            const float v = w[i] / s;
            const bool inside = v >= lo && v <= hi;

            d_w[i] = inside ? d : 0.0f;
            d_scale += (double)d * (double)(inside ? rintf(v) - v : cut(v, lo, hi));
        } else if (g->kind == RG_GRID_Q4_0) { /* cut at the side on which the largest value is not */
            const float scale = signed_largest(w, n) / -8;

            d_w[i] = scale != 0.0f && floorf(w[i] * (1 / scale) + 8.5f) > 15.0f ? 0.0f : d;
        } else {
            d_w[i] = d;
        }
    }
    if (g->kind == RG_GRID_LSQ)
        d_scale /= sqrt((double)n * (double)hi);
    *d_of = (rg_grid_group){ (float)d_scale, (float)d_zero };
}
