/* numeric.h -- exp for the sampler, beside the logarithm of base/noise.h, the same bits on every machine.
 *
 * Double arithmetic in a fixed order (the build forbids contraction), error below 1e-14 relative: far finer than the
 * floats that go in and come out.  No libm. */
#ifndef RG_ENGINE_NUMERIC_H
#define RG_ENGINE_NUMERIC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/noise.h" /* rg_ln */

/* e^x for x <= 0, as the sampler needs it; below -700 it is 0.  x = n ln 2 + r with |r| <= ln 2 / 2: r^14 / 14! < 5e-18
 * ends the series. */
static inline double rg_exp_negative(double x)
{
    double n, r, r2, r4, a, b, c, d;
    int64_t k;

    if (!(x > -700.0))
        return 0.0;
    k = (int64_t)(x * 1.4426950408889634 - 0.5);
    n = (double)k;
    r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
    r2 = r * r;
    r4 = r2 * r2;
    /* Four terms at a time (Estrin), so that a processor can compute them side by side. */
    a = (1.0 + r) + (0.5 + r * (1.0 / 6.0)) * r2;
    b = (1.0 / 24.0 + r * (1.0 / 120.0)) + (1.0 / 720.0 + r * (1.0 / 5040.0)) * r2;
    c = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + (1.0 / 3628800.0 + r * (1.0 / 39916800.0)) * r2;
    d = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0);
    a = (a + b * r4) + (c + d * r4) * (r4 * r4);
    return a * rg_bits_to_double((uint64_t)(k + 1023) << 52);
}

/* Two at a time, of x in [-700, 0] and with an error below 1e-11, for sums over a vocabulary.  x / ln 2 = n + f with
 * |f| <= 1/2; n is in the low bits of t, which is too large to have a fraction; (f ln 2)^10 / 10! < 7e-12 ends the
 * series. */
typedef double rg_double2 __attribute__((vector_size(16)));
typedef int64_t rg_long2 __attribute__((vector_size(16)));

static inline rg_double2 rg_exp_negative2(rg_double2 x)
{
    rg_double2 y = x * 1.4426950408889634, t = y + 0x1.8p52, f = y - (t - 0x1.8p52), f2 = f * f, f4 = f2 * f2;
    rg_double2 a = (1.0 + f * 0.6931471805599453) + (0.2402265069591007 + f * 0.055504108664821576) * f2;
    rg_double2 b = 0.009618129107628477 + f * 0.0013333558146428441;
    rg_double2 c = 0.00015403530393381606 + f * 1.5252733804059838e-05;
    rg_double2 d = 1.3215486790144305e-06 + f * 1.0178086009239696e-07;

    a += ((b + c * f2) + d * f4) * f4;
    return (rg_double2)((rg_long2)a + ((rg_long2)t << 52));
}

/* Neither NaN nor infinity, whose exponents are all ones. */
static inline bool rg_all_finite(const float *x, int32_t n)
{
    uint32_t bad = 0;

    for (int32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

#endif
