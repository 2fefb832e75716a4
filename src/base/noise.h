/* noise.h -- the noise of draws, and what it is made of: the same bits on every machine.
 *
 * Plain C in a fixed order, without libm (the build forbids contraction), since kernels of a GPU include it too.
 * Philox4x32-10 is from Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#ifndef RG_BASE_NOISE_H
#define RG_BASE_NOISE_H

#include <stdint.h>

/* out = Philox4x32-10 of a 128-bit counter under a 64-bit key: multipliers and increments of the key (golden ratio,
 * sqrt 3 - 1) as the paper gives them. */
static inline void rg_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];

    for (int i = 0; i < 10; i++) {
        uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
        uint32_t was1 = c1, was3 = c3;

        c0 = (uint32_t)(b >> 32) ^ was1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ was3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static inline double rg_bits_to_double(uint64_t bits)
{
    double x;

    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

/* Natural logarithm of a normal x > 0, with an error below 1e-14 relative.  x = 2^k m, m in [sqrt(1/2), sqrt 2);
 * log m = 2 atanh s, s = (m - 1) / (m + 1), |s| < 0.1716: s^25 / 25 < 3e-21 ends the series. */
static inline double rg_ln(double x)
{
    uint64_t bits;
    int64_t k;
    double m, s, z, p;

    __builtin_memcpy(&bits, &x, sizeof bits);
    k = (int64_t)(bits >> 52) - 1023;
    m = rg_bits_to_double((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        k++;
    }
    s = (m - 1.0) / (m + 1.0);
    z = s * s;
    p = 1.0 / 23.0;
    p = p * z + 1.0 / 21.0;
    p = p * z + 1.0 / 19.0;
    p = p * z + 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    p = p * z + 1.0;
    return (double)k * 0x1.62e42feep-1 + (2.0 * s * p + (double)k * 0x1.a39ef35793c76p-33);
}

/* ---- noise ------------------------------------------------------------------------------------------------------- */

typedef struct rg_noise_key { /* what makes a draw its own */
    uint64_t seed;
    int32_t sample, draw, position; /* position: of the id being chosen; draw: repeated draws at one position */
} rg_noise_key;

/* Four ids share one call: id / 4 is in the counter, id % 4 is the lane. */
static inline void rg_noise_bits(const rg_noise_key *key, uint32_t group, uint32_t out[4])
{
    const uint32_t counter[4] = { group, (uint32_t)key->position, (uint32_t)key->sample, (uint32_t)key->draw };
    const uint32_t philox_key[2] = { (uint32_t)key->seed, (uint32_t)(key->seed >> 32) };

    rg_philox(counter, philox_key, out);
}

/* Gumbel noise -log(-log u), u = (bits + 1/2) / 2^32 within (0, 1). */
static inline float rg_gumbel(uint32_t bits)
{
    const double u = ((double)bits + 0.5) * 0x1p-32;

    return (float)-rg_ln(-rg_ln(u));
}

/* An upper bound of it, with room for its rounding.  -log u >= 1 - u, so the noise is at most -log(1 - u); and
 * 1 - u = (~bits + 1/2) / 2^32 >= 2^-(z + 1) for z leading zeros of ~bits. */
static inline float rg_gumbel_bound(uint32_t bits)
{
    const int z = ~bits ? __builtin_clz(~bits) : 32;

    return 0.6931472f * (float)(z + 1) + 1e-3f;
}

/* No noise exceeds it: -log(-log(1 - 2^-33)) < 22.9. */
#define RG_MOST_NOISE 23.0f

#endif
