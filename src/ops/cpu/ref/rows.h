/* rows.h -- the row kernels of kernels.h: the definition, and what each instruction set starts from.
 *
 * Included by ref/rows.c and by the rows.c of every instruction set, whose compiler flags turn the loops over lanes and
 * channels into its vectors.  A sum is always written in lanes of 16 or along a chain, never left to the compiler, so
 * the bits do not depend on the flags.  Functions are static; rows_fill puts them into a table. */
#ifndef RG_OPS_CPU_REF_ROWS_H
#define RG_OPS_CPU_REF_ROWS_H

#include "ops/cpu/kernels.h"
#include "ops/math.h"
#include "ops/cpu/softmax.h"
#include "ops/kv4.h"

/* An output may be its input, value for value; it never overlaps it otherwise. */
#if defined(__clang__)
#define LANES _Pragma("clang loop vectorize(assume_safety)")
#else
#define LANES _Pragma("GCC ivdep")
#endif

/* ---- one row ----------------------------------------------------------------------------------------------------- */

/* Magnitudes are compared as bits, so that a NaN is the largest of all and makes d one.  The clamp matters only where
 * the definition gives no number: 127 / amax overflows for amax below 4e-37 (then 0 * inf is taken as 127, times a d of
 * next to nothing), or x is inf or NaN. */
static void quantize_block(const float *x, float amax, rg_xblock *out)
{
    const float inverse = amax == 0.0f ? 0.0f : 127.0f / amax;
    int32_t sum[2] = { 0, 0 };
    float v;

    for (int i = 0; i < 32; i++) {
        v = x[i] * inverse;
        v = v < 127.0f ? v : 127.0f;
        v = v > -127.0f ? v : -127.0f;
        out->q[i] = (int8_t)(int32_t)((v + RG_RINT) - RG_RINT);
    }
    for (int i = 0; i < 16; i++) {
        sum[0] += out->q[i];
        sum[1] += out->q[16 + i];
    }
    out->d = amax / 127.0f;
    out->s = out->d * (float)(sum[0] + sum[1]);
    out->neg8 = -8 * (sum[0] + sum[1]);
    out->neg128 = -128 * (sum[0] + sum[1]);
    for (int i = 0; i < 2; i++) {
        out->sh[i] = out->d * (float)sum[i];
        out->neg128h[i] = -128 * sum[i];
    }
}

static void rows_quantize(const float *x, int n, rg_xblock *out)
{
    for (int b = 0; b < n / 32; b++, x += 32, out++) {
        int32_t lane[16], most = 0;

        for (int i = 0; i < 16; i++) {
            int32_t p = rg_bits_of(x[i]) & 0x7fffffff, q = rg_bits_of(x[16 + i]) & 0x7fffffff;
            lane[i] = p > q ? p : q;
        }
        for (int i = 0; i < 16; i++)
            most = lane[i] > most ? lane[i] : most;
        quantize_block(x, rg_float_of((uint32_t)most), out);
    }
}

/* ---- outliers ---------------------------------------------------------------------------------------------------- */

/* The bits of |x| where x is no outlier, else 0: a NaN is none, and so shows in amax. */
static inline int32_t bits_within(float x)
{
    const int32_t bits = rg_bits_of(x) & 0x7fffffff, least = (int32_t)rg_bits_of(RG_OUTLIER);

    return bits < least || bits > 0x7f800000 ? bits : 0;
}

static void rows_quantize_row(const float *x, int n, rg_xblock *out, uint32_t *outliers)
{
    int32_t lane[16] = { 0 }, most = 0;
    float within[32];

    for (int k = 0; k < n; k += 16)
        for (int i = 0; i < 16; i++) {
            const int32_t bits = bits_within(x[k + i]);
            lane[i] = bits > lane[i] ? bits : lane[i];
        }
    for (int i = 0; i < 16; i++)
        most = lane[i] > most ? lane[i] : most;
    for (int k = 0; k < n; k += 32, out++, outliers++) {
        int any = 0;

        *outliers = 0;
        for (int i = 0; i < 32; i++) {
            const int is_one = __builtin_fabsf(x[k + i]) >= RG_OUTLIER;
            within[i] = is_one ? 0.0f : x[k + i];
            any |= is_one;
        }
        for (int i = 0; any && i < 32; i++)
            *outliers |= (uint32_t)(__builtin_fabsf(x[k + i]) >= RG_OUTLIER) << i;
        quantize_block(within, rg_float_of((uint32_t)most), out);
    }
}

static void rows_scale(float *y, const float *x, float a, int n)
{
    LANES
    for (int i = 0; i < n; i++)
        y[i] = x[i] * a;
}

static float rows_squares(const float *x, int n)
{
    float lane[16] = { 0 };
    int k = 0;

    for (; k + 16 <= n; k += 16)
        for (int i = 0; i < 16; i++)
            lane[i] = __builtin_fmaf(x[k + i], x[k + i], lane[i]);
    for (int i = 0; k + i < n; i++)
        lane[i] = __builtin_fmaf(x[k + i], x[k + i], lane[i]);
    return rg_tree16(lane);
}

static void rows_l2norm(float *y, const float *x, int n, float eps)
{
    rows_scale(y, x, 1.0f / __builtin_sqrtf(rows_squares(x, n) + eps), n);
}

static void rows_rmsnorm(float *y, const float *x, const float *w, int n, float eps)
{
    const float r = 1.0f / __builtin_sqrtf(rows_squares(x, n) / (float)n + eps);

    if (!w) {
        rows_scale(y, x, r, n);
        return;
    }
    LANES
    for (int i = 0; i < n; i++)
        y[i] = x[i] * r * w[i];
}

static float rows_mean(const float *x, int n)
{
    float lane[16] = { 0 };
    int k = 0;

    for (; k + 16 <= n; k += 16)
        for (int i = 0; i < 16; i++)
            lane[i] += x[k + i];
    for (int i = 0; k + i < n; i++)
        lane[i] += x[k + i];
    return rg_tree16(lane) / (float)n;
}

static float rows_variance(const float *x, float mean, int n)
{
    float lane[16] = { 0 };
    int k = 0;

    for (; k + 16 <= n; k += 16)
        for (int i = 0; i < 16; i++)
            lane[i] = __builtin_fmaf(x[k + i] - mean, x[k + i] - mean, lane[i]);
    for (int i = 0; k + i < n; i++)
        lane[i] = __builtin_fmaf(x[k + i] - mean, x[k + i] - mean, lane[i]);
    return rg_tree16(lane) / (float)n;
}

static void rows_layernorm(float *y, const float *x, const float *w, const float *b, int n, float eps)
{
    const float mean = rows_mean(x, n), r = 1.0f / __builtin_sqrtf(rows_variance(x, mean, n) + eps);

    if (b) {
        LANES
        for (int i = 0; i < n; i++)
            y[i] = __builtin_fmaf((x[i] - mean) * r, w[i], b[i]);
    } else if (w) {
        LANES
        for (int i = 0; i < n; i++)
            y[i] = (x[i] - mean) * r * w[i];
    } else {
        LANES
        for (int i = 0; i < n; i++)
            y[i] = (x[i] - mean) * r;
    }
}

static void rows_match_rms(float *y, const float *x, int n, float floor)
{
    const float v = rows_squares(y, n) / (float)n;

    rows_scale(y, y, __builtin_sqrtf(rows_squares(x, n) / (float)n) / __builtin_sqrtf(v > floor ? v : floor), n);
}

static void rows_cut(float *y, const float *x, int n, float k)
{
    const float mean = rows_mean(x, n), c = __builtin_fmaf(__builtin_sqrtf(rows_variance(x, mean, n)), k, mean);

    LANES
    for (int i = 0; i < n; i++)
        y[i] = rg_reluf(x[i] - c);
}

enum { PUT_AHEAD = 2 }; /* rows: they are far apart */

ALWAYS_INLINE void put_as(const rg_put *p, bool biased, bool accumulate)
{
    for (int r = 0; r < p->n_rows; r++) {
        float *to = p->to + (size_t)r * p->ld_to;
        const float *from = p->from + (size_t)r * p->ld_from, *bias = p->bias;

        for (int i = 0; r + PUT_AHEAD < p->n_rows && i < p->n; i += 16)
            __builtin_prefetch(to + PUT_AHEAD * p->ld_to + i, 1);
        LANES
        for (int i = 0; i < p->n; i++) {
            const float v = biased ? from[i] + bias[i] : from[i];
            to[i] = accumulate ? to[i] + v : v;
        }
    }
}

static void rows_put(const rg_put *p)
{
    if (p->bias && p->accumulate)
        put_as(p, true, true);
    else if (p->bias)
        put_as(p, true, false);
    else
        put_as(p, false, p->accumulate);
}

static void rows_add(float *y, const float *x, int n)
{
    LANES
    for (int i = 0; i < n; i++)
        y[i] += x[i];
}

static void rows_mul(float *y, const float *x, int n)
{
    LANES
    for (int i = 0; i < n; i++)
        y[i] *= x[i];
}

static void rows_axpy(float *y, float a, const float *x, int n)
{
    LANES
    for (int i = 0; i < n; i++)
        y[i] = __builtin_fmaf(a, x[i], y[i]);
}

/* y = f(x), and y = f(g) * u. */
#define ACTIVATION(name, f)                                                                                            \
    static void rows_##name(float *y, const float *x, int n)                                                           \
    {                                                                                                                  \
        LANES                                                                                                          \
        for (int i = 0; i < n; i++)                                                                                    \
            y[i] = f(x[i]);                                                                                            \
    }                                                                                                                  \
    static void rows_##name##_mul(float *y, const float *g, const float *u, int n)                                     \
    {                                                                                                                  \
        LANES                                                                                                          \
        for (int i = 0; i < n; i++)                                                                                    \
            y[i] = f(g[i]) * u[i];                                                                                     \
    }
ACTIVATION(silu, rg_siluf)
ACTIVATION(gelu, rg_geluf)
ACTIVATION(gelu_tanh, rg_gelu_tanhf)
ACTIVATION(relu, rg_reluf)
ACTIVATION(relu2, rg_relu2f)
ACTIVATION(sigmoid, rg_sigmoidf)
ACTIVATION(tanh, rg_tanhf)
ACTIVATION(exp, rg_expf)
ACTIVATION(softplus, rg_softplusf)
ACTIVATION(identity, )
ACTIVATION(inverse, rg_inversef)
#undef ACTIVATION

static void rows_swiglu_clamped(float *y, const float *x, int n)
{
    LANES
    for (int i = 0; i < n; i++)
        y[i] = rg_clamped_gatef(x[i]);
}

static void rows_swiglu_clamped_mul(float *y, const float *g, const float *u, int n)
{
    LANES
    for (int i = 0; i < n; i++)
        y[i] = rg_clamped_gatef(g[i]) * rg_clamped_upf(u[i]);
}

static void rows_softcap(float *x, float cap, int n)
{
    LANES
    for (int i = 0; i < n; i++)
        x[i] = cap * rg_tanhf(x[i] / cap);
}

static void rows_rotate(float *x, const float *cosine, const float *sine, int n_pairs, bool interleaved)
{
    int step = interleaved ? 2 : 1, apart = interleaved ? 1 : n_pairs;

    LANES
    for (int i = 0; i < n_pairs; i++) {
        float a = x[step * i], b = x[step * i + apart];
        x[step * i] = __builtin_fmaf(a, cosine[i], -(b * sine[i]));
        x[step * i + apart] = __builtin_fmaf(b, cosine[i], a * sine[i]);
    }
}

/* ---- stored K and V ---------------------------------------------------------------------------------------------- */

/* Half precision by arithmetic: 2^112 moves the exponent's bias, subnormals included; the rest is selected. */
ALWAYS_INLINE float from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t finite = rg_bits_of(rg_float_of(magnitude) * 0x1p112f), special = magnitude | 0x7f800000u;

    return rg_float_of(sign | (magnitude >= 0x0f800000u ? special : finite));
}

ALWAYS_INLINE float from_bf16(uint16_t h)
{
    return rg_float_of((uint32_t)h << 16);
}

ALWAYS_INLINE uint16_t to_bf16(float x)
{
    uint32_t bits = rg_bits_of(x), rounded = bits + 0x7fff + (bits >> 16 & 1);

    return (uint16_t)((x != x ? bits | 0x400000 : rounded) >> 16);
}

/* The i-th value behind p; of q8 it has yet to be multiplied by its scale. */
ALWAYS_INLINE float stored(const void *p, rg_type type, size_t i)
{
    if (type == RG_F32)
        return ((const float *)p)[i];
    if (type == RG_I8)
        return ((const int8_t *)p)[i];
    return type == RG_F16 ? from_f16(((const uint16_t *)p)[i]) : from_bf16(((const uint16_t *)p)[i]);
}

/* One run of q8, of n <= RG_KV_RUN values: its scale. */
ALWAYS_INLINE uint16_t store_run(int8_t *to, size_t stride, const float *x, int n)
{
    uint32_t amax = 0, d;
    float inverse;

    for (int i = 0; i < n; i++) { /* as bits: a NaN is the largest of all */
        uint32_t magnitude = rg_bits_of(x[i]) & 0x7fffffff;
        amax = magnitude > amax ? magnitude : amax;
    }
    d = (rg_bits_of(rg_float_of(amax) / 127.0f) + 0xffff) >> 16;
    d = amax >= 0x7f800000u ? 0x7fc0 : d < 0x80 ? 0 : d;
    inverse = d == 0 || d == 0x7fc0 ? 0.0f : 1.0f / from_bf16((uint16_t)d);
    for (int i = 0; i < n; i++)
        to[(size_t)i * stride] = inverse > 0.0f ? (int8_t)(int32_t)((x[i] * inverse + RG_RINT) - RG_RINT) : 0;
    return (uint16_t)d;
}

/* Values that are rounded side by side, where the compiler makes vectors of it, before they are spread out. */
enum { SPREAD = 64 };

ALWAYS_INLINE void store_halves(uint16_t *to, size_t stride, const float *x, int n, uint16_t (*round)(float))
{
    uint16_t h[SPREAD];

    for (; n > 0 && stride > 1; n -= SPREAD, x += SPREAD, to += SPREAD * stride) {
        const int some = n < SPREAD ? n : SPREAD;

        for (int i = 0; i < some; i++)
            h[i] = round(x[i]);
        for (int i = 0; i < some; i++)
            to[(size_t)i * stride] = h[i];
    }
    for (int i = 0; i < n; i++)
        to[i] = round(x[i]);
}

static void rows_store(void *to, uint16_t *runs, rg_type type, size_t stride, const float *x, int n)
{
    float *f = to;
    int8_t *q = to;

    if (type == RG_F32 && stride == 1)
        __builtin_memcpy(f, x, (size_t)n * sizeof *f);
    else if (type == RG_F32)
        for (int i = 0; i < n; i++)
            f[(size_t)i * stride] = x[i];
    else if (type == RG_F16)
        store_halves(to, stride, x, n, rg_f32_to_f16);
    else if (type == RG_I8)
        for (int i = 0; i < n; i += RG_KV_RUN, runs += stride)
            *runs = store_run(q + (size_t)i * stride, stride, x + i, n - i < RG_KV_RUN ? n - i : RG_KV_RUN);
    else
        store_halves(to, stride, x, n, to_bf16);
}

/* n values of q4 side by side. */
ALWAYS_INLINE void load_q4(float *restrict y, const uint8_t *run, int n)
{
    for (; n >= RG_KV_RUN; n -= RG_KV_RUN, y += RG_KV_RUN, run += KV4_BYTES) {
        const float d = kv4_f16(run), lo = kv4_f16(run + 2);

        LANES
        for (int i = 0; i < RG_KV_RUN / 2; i++)
            y[i] = d * (float)(run[4 + i] & 15) + lo;
        LANES
        for (int i = 0; i < RG_KV_RUN / 2; i++)
            y[RG_KV_RUN / 2 + i] = d * (float)(run[4 + i] >> 4) + lo;
    }
    if (n > 0)
        kv4_decode(y, run, n);
}

ALWAYS_INLINE void load_as(float *restrict y, const void *from, rg_type type, int n)
{
    LANES
    for (int i = 0; i < n; i++)
        y[i] = stored(from, type, (size_t)i);
}

/* Runs of q8 side by side; a whole one has a length that the compiler knows. */
ALWAYS_INLINE void load_runs(float *restrict y, const int8_t *from, const uint16_t *runs, int n)
{
    int i = 0;

    for (; i + RG_KV_RUN <= n; i += RG_KV_RUN, runs++)
        LANES
        for (int k = 0; k < RG_KV_RUN; k++)
            y[i + k] = (float)from[i + k] * from_bf16(*runs);
    for (; i < n; i++)
        y[i] = (float)from[i] * from_bf16(*runs);
}

static void rows_load(float *y, const void *from, const uint16_t *runs, rg_type type, int n)
{
    if (type == RG_F32)
        load_as(y, from, RG_F32, n);
    else if (type == RG_F16)
        load_as(y, from, RG_F16, n);
    else if (type == RG_I8)
        load_runs(y, from, runs, n);
    else if (type == RG_Q4_1)
        load_q4(y, from, n);
    else
        load_as(y, from, RG_BF16, n);
}

/* Scales of q8 for 64 keys. */
ALWAYS_INLINE void load_scales(float d[RG_BLOCK], const uint16_t *run)
{
    for (int j = 0; j < RG_BLOCK; j++)
        d[j] = from_bf16(run[j]);
}

static void rows_close(const rg_kv *kv, int head, const uint8_t *open, uint8_t *closed)
{
    kv4_close(kv, head, open, closed);
}

static void rows_widen(float *k, float *v, const rg_attend *a)
{
    const int8_t *qk = a->k, *qv = a->v;
    const int runs = rg_kv_runs(a->v_dim);
    _Alignas(64) float d[RG_BLOCK];

    if (a->type == RG_Q4_1) {
        load_q4(k, a->k, a->k_dim * RG_BLOCK);
        for (int j = 0; j < RG_BLOCK; j++)
            load_q4(v + j * a->v_dim, (const uint8_t *)a->v + j * a->v_stride / RG_KV_RUN * KV4_BYTES, a->v_dim);
        return;
    }
    if (a->type != RG_I8) {
        rows_load(k, a->k, NULL, a->type, a->k_dim * RG_BLOCK);
        rows_load(v, a->v, NULL, a->type, a->v_dim * RG_BLOCK);
        return;
    }
    for (int i = 0; i < a->k_dim; i++, k += RG_BLOCK, qk += RG_BLOCK) {
        if (i % RG_KV_RUN == 0)
            load_scales(d, a->k_scales + i / RG_KV_RUN * RG_BLOCK);
        LANES
        for (int j = 0; j < RG_BLOCK; j++)
            k[j] = (float)qk[j] * d[j];
    }
    for (int j = 0; j < RG_BLOCK; j++)
        load_runs(v + j * a->v_dim, qv + j * a->v_dim, a->v_scales + j * runs, a->v_dim);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

enum { QUERIES = 1 };

ALWAYS_INLINE void scores(const rg_attend *a, rg_type type, const float *const *q, int n, float (*p)[RG_BLOCK])
{
    _Alignas(64) float scale[RG_BLOCK], keys[RG_BLOCK]; /* of q8; of q4 */

    for (int i = 0; i < n; i++) {
        float *restrict score = p[i];

        for (int j = 0; j < RG_BLOCK; j++)
            score[j] = 0.0f;
        for (int d = 0; d < a->k_dim; d++) {
            float qd = q[i][d];
            size_t row = (size_t)d * RG_BLOCK;

            if (type == RG_I8 && d % RG_KV_RUN == 0)
                load_scales(scale, a->k_scales + d / RG_KV_RUN * RG_BLOCK);
            if (type == RG_Q4_1)
                load_q4(keys, (const uint8_t *)a->k + row / RG_KV_RUN * KV4_BYTES, RG_BLOCK);
            for (int j = 0; j < RG_BLOCK; j++) {
                float k = type == RG_Q4_1 ? keys[j] : stored(a->k, type, row + (size_t)j);

                score[j] = __builtin_fmaf(qd, type == RG_I8 ? k * scale[j] : k, score[j]);
            }
        }
        for (int j = 0; j < RG_BLOCK; j++)
            score[j] *= a->scale;
    }
}

ALWAYS_INLINE void latent_scores(const rg_attend *a, float (*p)[RG_BLOCK])
{
    for (int j = 0; j < RG_BLOCK; j++) {
        const float *q = a->columns;
        float s[RG_PANEL] = { 0 };

        for (int d = 0; d < a->k_dim; d++, q += RG_PANEL) {
            const float k = stored(a->k, a->type, (size_t)j * (size_t)a->v_stride + (size_t)d);

            for (int i = 0; i < RG_PANEL; i++)
                s[i] = __builtin_fmaf(q[i], k, s[i]);
        }
        for (int i = 0; i < a->n; i++)
            p[i][j] = s[i] * a->scale;
    }
}

/* o += w times a row of q4. */
ALWAYS_INLINE void add_q4(float *restrict o, float w, const uint8_t *run, int n)
{
    float v[RG_KV_RUN];

    for (; n > 0; n -= RG_KV_RUN, o += RG_KV_RUN, run += KV4_BYTES) {
        load_q4(v, run, n < RG_KV_RUN ? n : RG_KV_RUN);
        for (int d = 0; d < (n < RG_KV_RUN ? n : RG_KV_RUN); d++)
            o[d] = __builtin_fmaf(w, v[d], o[d]);
    }
}

ALWAYS_INLINE void values(const rg_attend *a, rg_type type, int n, float (*p)[RG_BLOCK], const float *c, rg_softmax *s)
{
    for (int i = 0; i < n; i++) {
        float *restrict o = s[i].o;

        for (int d = 0; d < a->v_dim; d++)
            o[d] *= c[i];
        RG_EACH_SEEN(j, a->seen) {
            const uint16_t *runs = type == RG_I8 ? a->v_scales + j * rg_kv_runs(a->v_dim) : NULL;
            size_t row = (size_t)j * (size_t)a->v_stride;
            float w = p[i][j];

            if (type == RG_Q4_1)
                add_q4(o, w, (const uint8_t *)a->v + row / RG_KV_RUN * KV4_BYTES, a->v_dim);
            for (int d = 0; type != RG_Q4_1 && d < a->v_dim; d++) {
                float v = stored(a->v, type, row + (size_t)d);

                o[d] = __builtin_fmaf(w, type == RG_I8 ? v * from_bf16(runs[d / RG_KV_RUN]) : v, o[d]);
            }
        }
    }
}

#include "ops/cpu/attend_tmpl.h"

static void rows_merge(rg_softmax *a, const rg_softmax *b, int v_dim)
{
    float m = b->m > a->m ? b->m : a->m, x, y;

    if (b->m == -__builtin_inff())
        return;
    if (a->m == -__builtin_inff()) {
        for (int d = 0; d < v_dim; d++)
            a->o[d] = b->o[d];
        a->m = b->m;
        a->l = b->l;
        return;
    }
    x = rg_expf(a->m - m);
    y = rg_expf(b->m - m);
    a->l = __builtin_fmaf(a->l, x, b->l * y);
    LANES
    for (int d = 0; d < v_dim; d++)
        a->o[d] = __builtin_fmaf(a->o[d], x, b->o[d] * y);
    a->m = m;
}

/* ---- recurrence -------------------------------------------------------------------------------------------------- */

enum { CHANNELS = 64 }; /* whose sums stay near while the states go by */

ALWAYS_INLINE void scan_some(float *h, size_t ldh, const float *a, size_t lda, int d_state, int n, const float *x,
                      const float *dt, const float *b, const float *c, float *restrict acc)
{
    for (int i = 0; i < n; i++)
        acc[i] = 0.0f;
    for (int s = 0; s < d_state; s++, h += ldh, a += lda) {
        float bs = b[s], cs = c ? c[s] : 0.0f;

        LANES
        for (int i = 0; i < n; i++) {
            h[i] = __builtin_fmaf(rg_expf(dt[i] * a[i]), h[i], dt[i] * bs * x[i]);
            acc[i] = __builtin_fmaf(cs, h[i], acc[i]);
        }
    }
}

static void rows_scan_row(float *h, size_t ldh, const float *a, size_t lda, int d_state, int n, const float *x,
                          const float *dt, const float *b, const float *c, const float *d, const float *z, float *y)
{
    _Alignas(64) float acc[CHANNELS];

    for (int i = 0; i < n; i += CHANNELS) {
        int some = n - i < CHANNELS ? n - i : CHANNELS;

        scan_some(h + i, ldh, a + i, lda, d_state, some, x + i, dt + i, b, y ? c : NULL, acc);
        if (!y)
            continue;
        LANES
        for (int k = 0; k < some; k++)
            y[i + k] = __builtin_fmaf(d[i + k], x[i + k], acc[k]) * rg_siluf(z[i + k]);
    }
}

/* At most CHANNELS of them. */
ALWAYS_INLINE void modes_some(const rg_modes *s, bool full, int at, int n, const float *u, float *restrict acc)
{
    const int each = full ? RG_FULL_MODE_ROWS : RG_MODE_ROWS;
    const size_t ldm = s->ldm;
    _Alignas(64) float q[CHANNELS] = { 0 };
    const float *m = s->m + at;
    float *x = s->x + at;

    for (int k = 0; full && k < s->n_modes; k++) {
        const float *r = m + ((size_t)k * (size_t)each + 6) * ldm, *re = x + 2 * (size_t)k * s->ldx, *im = re + s->ldx;

        for (int i = 0; i < n; i++)
            q[i] = __builtin_fmaf(r[ldm + (size_t)i], im[i], __builtin_fmaf(r[i], re[i], q[i]));
    }
    for (int k = 0; k < s->n_modes; k++, m += (size_t)each * ldm, x += 2 * s->ldx) {
        const float *e0 = m, *e1 = m + ldm, *b0 = m + 2 * ldm, *b1 = m + 3 * ldm, *c0 = m + 4 * ldm, *c1 = m + 5 * ldm;
        const float *f0 = m + 8 * ldm, *f1 = m + 9 * ldm;
        float *x0 = x, *x1 = x + s->ldx;

        LANES
        for (int i = 0; i < n; i++) {
            float re = __builtin_fmaf(b0[i], u[i], __builtin_fmaf(e0[i], x0[i], -(e1[i] * x1[i])));
            float im = __builtin_fmaf(b1[i], u[i], __builtin_fmaf(e0[i], x1[i], e1[i] * x0[i]));

            x0[i] = full ? __builtin_fmaf(f0[i], q[i], re) : re;
            x1[i] = full ? __builtin_fmaf(f1[i], q[i], im) : im;
            acc[i] = __builtin_fmaf(c1[i], x1[i], __builtin_fmaf(c0[i], x0[i], acc[i]));
        }
    }
}

static void rows_modes_row(const rg_modes *s, int n, const float *u, float *y)
{
    for (int i = 0; i < n; i += CHANNELS) {
        _Alignas(64) float acc[CHANNELS] = { 0 };
        int some = n - i < CHANNELS ? n - i : CHANNELS;

        if (s->full)
            modes_some(s, true, i, some, u + i, acc);
        else
            modes_some(s, false, i, some, u + i, acc);
        for (int k = 0; y && k < some; k++)
            y[i + k] = __builtin_fmaf(s->d[i + k], u[i + k], acc[k]);
    }
}

static void rows_lru_gates(const rg_lru_row *g, int n)
{
    const float *x = g->x, *rate = g->rate, *b_r = g->b_r, *b_i = g->b_i, *gate_r = g->r, *gate_i = g->i;
    float *a = g->a, *b = g->b;

    LANES
    for (int k = 0; k < n; k++) {
        float l = rate[k] * rg_sigmoidf(gate_r[k] + b_r[k]), i = rg_sigmoidf(gate_i[k] + b_i[k]);
        float root = __builtin_sqrtf(1.0f - rg_expf(l + l));

        a[k] = rg_expf(l);
        b[k] = (g->first ? i : root * i) * x[k];
    }
}

static void rows_lru_row(float *h, const float *a, const float *b, int n)
{
    LANES
    for (int i = 0; i < n; i++)
        h[i] = __builtin_fmaf(a[i], h[i], b[i]);
}

/* The number of taps is a constant where this is called, so that sums stay in registers. */
ALWAYS_INLINE void conv_taps(float *y, const float *const *in, const float *w, const float *bias, int taps, int n)
{
    const float *x0 = in[0], *x1 = in[taps > 1 ? 1 : 0], *x2 = in[taps > 2 ? 2 : 0], *x3 = in[taps > 3 ? 3 : 0];
    const float *w1 = w + n, *w2 = w1 + n, *w3 = w2 + n;

    LANES
    for (int k = 0; k < n; k++) {
        float acc = __builtin_fmaf(w[k], x0[k], bias ? bias[k] : 0.0f);

        if (taps > 1)
            acc = __builtin_fmaf(w1[k], x1[k], acc);
        if (taps > 2)
            acc = __builtin_fmaf(w2[k], x2[k], acc);
        if (taps > 3)
            acc = __builtin_fmaf(w3[k], x3[k], acc);
        y[k] = acc;
    }
}

ALWAYS_INLINE void conv_biased(float *y, const float *const *in, const float *w, const float *bias, int taps, int n)
{
    if (taps == 1)
        conv_taps(y, in, w, bias, 1, n);
    else if (taps == 2)
        conv_taps(y, in, w, bias, 2, n);
    else if (taps == 3)
        conv_taps(y, in, w, bias, 3, n);
    else
        conv_taps(y, in, w, bias, 4, n);
}

/* Four taps at once, then the others one after the other. */
static void rows_conv_row(float *y, const float *const *in, const float *w, const float *bias, int d_conv, int n)
{
    if (bias)
        conv_biased(y, in, w, bias, d_conv, n);
    else
        conv_biased(y, in, w, NULL, d_conv, n);
    for (int j = 4; j < d_conv; j++) {
        const float *x = in[j], *wj = w + (size_t)j * (size_t)n;

        LANES
        for (int k = 0; k < n; k++)
            y[k] = __builtin_fmaf(wj[k], x[k], y[k]);
    }
}

/* One row: what is removed, the state, and the output. */
static void recur_row(const rg_recurrence *p, const rg_recurrence_row *row)
{
    _Alignas(64) float r[RG_STATE_TILE] = { 0 }, u[RG_STATE_TILE], acc[RG_STATE_TILE] = { 0 };
    const float *v = row->v + p->first;
    const int n = p->cols;

    for (int i = 0; i < p->k_dim && row->b; i++)
        for (int c = 0; c < n; c++)
            r[c] = __builtin_fmaf(row->b[i], p->s[i * n + c], r[c]);
    for (int c = 0; c < n; c++)
        u[c] = row->beta * (row->b && !row->a ? v[c] - r[c] : v[c]);
    for (int i = 0; i < p->k_dim; i++) {
        float *s = p->s + i * n, q = row->y ? row->q[i] : 0.0f;

        for (int c = 0; c < n; c++) {
            float t = row->decay[i] * s[c];

            s[c] = __builtin_fmaf(row->k[i], u[c], row->a ? __builtin_fmaf(row->a[i], r[c], t) : t);
            acc[c] = __builtin_fmaf(q, s[c], acc[c]);
        }
    }
    for (int c = 0; c < n && row->y; c++) {
        float y = p->scale * acc[c];

        row->y[p->first + c] = row->skip == 0.0f ? y : __builtin_fmaf(row->skip, v[c], y);
    }
}

static float rows_dot(const float *a, const float *b, int n)
{
    float lane[16] = { 0 };
    int k = 0;

    for (; k + 16 <= n; k += 16)
        for (int i = 0; i < 16; i++)
            lane[i] = __builtin_fmaf(a[k + i], b[k + i], lane[i]);
    for (int i = 0; k + i < n; i++)
        lane[i] = __builtin_fmaf(a[k + i], b[k + i], lane[i]);
    return rg_tree16(lane);
}

static void rows_index_scores(float *score, const rg_index *x)
{
    for (int j = 0; j < x->n; j++) {
        float sum = 0.0f;

        for (int h = 0; h < x->n_heads; h++) {
            const float d = rows_dot(x->q + (size_t)h * (size_t)x->k_dim, x->keys[j], x->k_dim);

            sum = __builtin_fmaf(x->weights[h], d > 0.0f ? d : 0.0f, sum);
        }
        score[j] = sum;
    }
}

static void rows_recur(const rg_recurrence *p)
{
    for (int i = 0; i < p->n_rows; i++)
        recur_row(p, &p->row[i]);
}

static void rows_fill(rg_cpu *k)
{
    k->quantize = rows_quantize;
    k->quantize_row = rows_quantize_row;
    k->rmsnorm = rows_rmsnorm;
    k->l2norm = rows_l2norm;
    k->layernorm = rows_layernorm;
    k->match_rms = rows_match_rms;
    k->cut = rows_cut;
    k->put = rows_put;
    k->add = rows_add;
    k->mul = rows_mul;
    k->scale = rows_scale;
    k->axpy = rows_axpy;
#define FILL_ACTIVATION(kind, name) k->act[kind] = rows_##name, k->act_mul[kind] = rows_##name##_mul
    FILL_ACTIVATION(RG_SILU, silu);
    FILL_ACTIVATION(RG_GELU, gelu);
    FILL_ACTIVATION(RG_GELU_TANH, gelu_tanh);
    FILL_ACTIVATION(RG_RELU, relu);
    FILL_ACTIVATION(RG_RELU2, relu2);
    FILL_ACTIVATION(RG_SIGMOID, sigmoid);
    FILL_ACTIVATION(RG_SWIGLU_CLAMPED, swiglu_clamped);
    FILL_ACTIVATION(RG_TANH, tanh);
    FILL_ACTIVATION(RG_EXP, exp);
    FILL_ACTIVATION(RG_SOFTPLUS, softplus);
    FILL_ACTIVATION(RG_IDENTITY, identity);
    FILL_ACTIVATION(RG_INVERSE, inverse);
#undef FILL_ACTIVATION
    k->softcap = rows_softcap;
    k->rotate = rows_rotate;
    k->attend = attend;
    k->merge = rows_merge;
    k->index_scores = rows_index_scores;
    k->scan_row = rows_scan_row;
    k->modes_row = rows_modes_row;
    k->lru_gates = rows_lru_gates;
    k->lru_row = rows_lru_row;
    k->conv_row = rows_conv_row;
    k->recur = rows_recur;
    k->store = rows_store;
    k->load = rows_load;
    k->close = rows_close;
    k->widen = rows_widen;
    k->widen_from = 4;
}

#undef LANES

#endif
