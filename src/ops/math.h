/* math.h -- exp, log, tanh, the activations and their kin: the same bits in every kernel, vector body and tail.
 *
 * Each is one straight line of multiplies, fused multiply-adds and selects, so that a compiler turns a loop over it
 * into vectors of any width without changing a bit.  Polynomials are minimax fits (Remez) of ours; every function is
 * within 2 units in the last place of the real one where the result is a normal number.  NaN gives NaN. */
#ifndef RG_OPS_MATH_H
#define RG_OPS_MATH_H

#include <stdbool.h>
#include <stdint.h>

#define RG_LN2_HI 0x1.62e4p-1f /* 15 bits: times a small integer it is exact */
#define RG_LN2_LO 0x1.7f7d1cp-20f
#define RG_RINT   0x1.8p23f /* x + this - this rounds |x| < 2^22 to the nearest integer, ties to even */

static inline float rg_float_of(uint32_t bits)
{
    float x;

    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t rg_bits_of(float x)
{
    uint32_t bits;

    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Returns yes if which, else no.  It works on bits: for ?: between results of arithmetic gcc makes a branch, and does
 * not vectorise the loop around it. */
static inline float rg_select(bool which, float yes, float no)
{
    const uint32_t mask = 0u - (uint32_t)which;

    return rg_float_of((rg_bits_of(yes) & mask) | (rg_bits_of(no) & ~mask));
}

/* The sum of 16 lanes, in the order of kernels.h. */
static inline float rg_tree16(float l[16])
{
    for (int i = 0; i < 8; i++)
        l[i] += l[i + 8];
    for (int i = 0; i < 4; i++)
        l[i] += l[i + 4];
    for (int i = 0; i < 2; i++)
        l[i] += l[i + 2];
    return l[0] + l[1];
}

/* x = n ln2 + r, |r| <= ln2 / 2; exp(r) = 1 + (r + r^2 q(r)); 2^n in two factors, since n may be -152 or 129.  The
 * clamp keeps NaN (both comparisons are false), sends -inf to 0 and what is too large to inf. */
static inline float rg_expf(float x)
{
    float t, n, r, q;
    int32_t i, half;

    x = x > 89.0f ? 89.0f : x;
    x = x < -105.0f ? -105.0f : x;
    t = __builtin_fmaf(x, 0x1.715476p+0f, RG_RINT);
    i = (int32_t)(rg_bits_of(t) - rg_bits_of(RG_RINT));
    n = t - RG_RINT;
    r = __builtin_fmaf(n, -RG_LN2_HI, x);
    r = __builtin_fmaf(n, -RG_LN2_LO, r);
    q = 0x1.6a242ep-10f;
    q = __builtin_fmaf(q, r, 0x1.1239e2p-7f);
    q = __builtin_fmaf(q, r, 0x1.5558f2p-5f);
    q = __builtin_fmaf(q, r, 0x1.555492p-3f);
    q = __builtin_fmaf(q, r, 0x1.fffffcp-2f);
    q = 1.0f + __builtin_fmaf(q, r * r, r);
    half = i >> 1;
    return q * rg_float_of(((uint32_t)half + 127) << 23) * rg_float_of(((uint32_t)i - (uint32_t)half + 127) << 23);
}

/* log x + shift ln 2 of a normal x > 0: x = 2^e (1 + f), 1 + f in [sqrt 1/2, sqrt 2). */
static inline float rg_log_normal(float x, float shift)
{
    uint32_t bits = rg_bits_of(x);
    int32_t e = (int32_t)(bits - 0x3f3504f3) >> 23;
    float f = rg_float_of(bits - ((uint32_t)e << 23)) - 1.0f, n = (float)e + shift, s = f * f, p, y;

    p = 0x1.145736p-4f;
    p = __builtin_fmaf(p, f, -0x1.de3bb0p-4f);
    p = __builtin_fmaf(p, f, 0x1.e6f066p-4f);
    p = __builtin_fmaf(p, f, -0x1.fc2218p-4f);
    p = __builtin_fmaf(p, f, 0x1.23376ap-3f);
    p = __builtin_fmaf(p, f, -0x1.555c4cp-3f);
    p = __builtin_fmaf(p, f, 0x1.99a4b6p-3f);
    p = __builtin_fmaf(p, f, -0x1.000006p-2f);
    p = __builtin_fmaf(p, f, 0x1.555548p-2f);
    y = __builtin_fmaf(p, f * s, -0.5f * s);
    y = __builtin_fmaf(n, RG_LN2_LO, y);
    return __builtin_fmaf(n, RG_LN2_HI, f + y);
}

static inline float rg_logf(float x)
{
    float y = x < 0x1p-126f ? rg_log_normal(x * 0x1p23f, -23.0f) : rg_log_normal(x, 0.0f);

    y = x == 0.0f ? -__builtin_inff() : y;
    y = x < 0.0f ? __builtin_nanf("") : y;
    y = x > 0x1.fffffep127f ? x : y;
    return x != x ? x : y;
}

/* Small: odd polynomial.  Else 1 - 2 / (exp(2|x|) + 1), which reaches 1 by itself. */
static inline float rg_tanhf(float x)
{
    float z = x * x, p, a = rg_float_of(rg_bits_of(x) & 0x7fffffff), big, small;

    p = -0x1.72fc48p-8f;
    p = __builtin_fmaf(p, z, 0x1.518b16p-6f);
    p = __builtin_fmaf(p, z, -0x1.b8265cp-5f);
    p = __builtin_fmaf(p, z, 0x1.11068ep-3f);
    p = __builtin_fmaf(p, z, -0x1.555530p-2f);
    small = __builtin_fmaf(p * z, x, x);
    big = 1.0f - 2.0f / (rg_expf(a + a) + 1.0f);
    big = rg_float_of(rg_bits_of(big) | (rg_bits_of(x) & 0x80000000u));
    return rg_select(a < 0.625f, small, big);
}

static inline float rg_siluf(float x)
{
    return x / (1.0f + rg_expf(-x));
}

/* x (1 + tanh u) / 2 = x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3): no cancellation for negative x. */
static inline float rg_gelu_tanhf(float x)
{
    float t = __builtin_fmaf(x * x, 0.044715f, 1.0f) * x;

    return x / (1.0f + rg_expf(t * -1.5957691216f));
}

/* GELU: x Phi(x), Phi the normal distribution, (1 + erf(x / sqrt 2)) / 2.  Near 0, Phi(x) = 1/2 + x p(x^2).  Elsewhere
 * Phi(-a) = exp(-a^2 / 2) q(t) / (a + 2.5), t = (a - 2.5) / (a + 2.5), so that a negative x, too, has a small relative
 * error: no difference of numbers near 1 is taken.  What a^2 loses when it is rounded, `rest`, is put back in first
 * order.  Beyond 15 the result is 0 or x.  Within 2 units in the last place for x > 0, within 6 for x < 0. */
static inline float rg_geluf(float x)
{
    float a = rg_float_of(rg_bits_of(x) & 0x7fffffff), square, rest, p, q, r, t, near, low, high;

    a = rg_select(a > 15.0f, 15.0f, a);
    square = a * a;
    rest = __builtin_fmaf(a, a, -square);
    p = -0x1.1dcba4p-17f;
    p = __builtin_fmaf(p, square, 0x1.e20eeep-14f);
    p = __builtin_fmaf(p, square, -0x1.3737b8p-10f);
    p = __builtin_fmaf(p, square, 0x1.46d024p-7f);
    p = __builtin_fmaf(p, square, -0x1.105838p-4f);
    p = __builtin_fmaf(p, square, 0x1.988454p-2f);
    near = x * __builtin_fmaf(p, x, 0.5f);
    r = 1.0f / (a + 2.5f);
    t = (a - 2.5f) * r;
    q = -0x1.e9883cp-12f;
    q = __builtin_fmaf(q, t, 0x1.3ac2fap-11f);
    q = __builtin_fmaf(q, t, 0x1.5882dcp-9f);
    q = __builtin_fmaf(q, t, -0x1.a10b4ep-10f);
    q = __builtin_fmaf(q, t, -0x1.0cd532p-6f);
    q = __builtin_fmaf(q, t, 0x1.2ea88ep-7f);
    q = __builtin_fmaf(q, t, 0x1.0e4ff6p-3f);
    q = __builtin_fmaf(q, t, -0x1.bc19c6p-2f);
    q = __builtin_fmaf(q, t, 0x1.69cee6p-1f) * r;
    q = __builtin_fmaf(q * -0.5f, rest, q);
    r = rg_expf(-0.5f * square);
    low = x * q * r;
    high = x * (1.0f - q * r);
    return rg_select(a < 0.7f, near, rg_select(x < 0.0f, low, high));
}

static inline float rg_sigmoidf(float x)
{
    return 1.0f / (1.0f + rg_expf(-x));
}

/* The gate of gpt-oss, and what it multiplies; NaN stays in both. */
static inline float rg_clamped_gatef(float x)
{
    float g = rg_select(x > 7.0f, 7.0f, x);

    return g * rg_sigmoidf(1.702f * g);
}

static inline float rg_clamped_upf(float x)
{
    float u = rg_select(x > 7.0f, 7.0f, x);

    return rg_select(u < -7.0f, -7.0f, u) + 1.0f;
}

static inline float rg_reluf(float x)
{
    return x < 0.0f ? 0.0f : x; /* NaN stays */
}

static inline float rg_relu2f(float x)
{
    float square = x * x;

    return rg_select(x < 0.0f, 0.0f, square);
}

/* log(1 + exp x) = max(x, 0) + log1p(exp(-|x|)); log1p(t) = log(u) + (t - (u - 1)) / u with u = 1 + t rounded, which
 * needs no special case: it is in [1, 2], or NaN and t with it.  So that loops around become vectors. */
static inline float rg_softplusf(float x)
{
    float t = rg_expf(-rg_float_of(rg_bits_of(x) & 0x7fffffff)), u = 1.0f + t;
    float l = rg_log_normal(u, 0.0f) + (t - (u - 1.0f)) / u;

    return (x > 0.0f ? x : 0.0f) + l;
}

static inline float rg_inversef(float x)
{
    return 1.0f / x;
}

/* Sine and cosine of a rope angle, |x| < 1e7, right after rounding to float: quarter turns taken off in three parts
 * (the first two have 30 and 30 bits, so that their products with n < 2^23 are exact), then Taylor's series, whose
 * rest is below 1e-14. */
static inline void rg_sincos(double x, double *sine, double *cosine)
{
    double t = __builtin_fma(x, 0x1.45f306dc9c883p-1, 0x1.8p52), n = t - 0x1.8p52, r, z, s, c, swap;
    uint64_t bits;

    __builtin_memcpy(&bits, &t, sizeof bits);
    r = __builtin_fma(n, -0x1.921fb544p+0, x);
    r = __builtin_fma(n, -0x1.0b4611a4p-34, r);
    r = __builtin_fma(n, -0x1.13198a2e03707p-65, r);
    z = r * r;
    s = -1.0 / 1307674368000.0;
    s = __builtin_fma(s, z, 1.0 / 6227020800.0);
    s = __builtin_fma(s, z, -1.0 / 39916800.0);
    s = __builtin_fma(s, z, 1.0 / 362880.0);
    s = __builtin_fma(s, z, -1.0 / 5040.0);
    s = __builtin_fma(s, z, 1.0 / 120.0);
    s = __builtin_fma(s, z, -1.0 / 6.0);
    s = __builtin_fma(s * z, r, r);
    c = 1.0 / 20922789888000.0;
    c = __builtin_fma(c, z, -1.0 / 87178291200.0);
    c = __builtin_fma(c, z, 1.0 / 479001600.0);
    c = __builtin_fma(c, z, -1.0 / 3628800.0);
    c = __builtin_fma(c, z, 1.0 / 40320.0);
    c = __builtin_fma(c, z, -1.0 / 720.0);
    c = __builtin_fma(c, z, 1.0 / 24.0);
    c = __builtin_fma(c, z, -0.5);
    c = __builtin_fma(c, z, 1.0);
    swap = (bits & 1) ? s : c;
    s = (bits & 1) ? c : s;
    *sine = (bits & 2) ? -s : s;
    *cosine = ((bits + 1) & 2) ? -swap : swap;
}

#endif
