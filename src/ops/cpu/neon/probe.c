/* probe.c -- what NEON can do at most: chains of multiply-adds in registers, and a read of memory. */
#include "ops/cpu/neon/neon.h"

enum { CHAINS = 16 }; /* four multipliers, latency 4 */

/* The products are volatile asm, so that the compiler neither folds nor drops them. */
static double peak_f32(double n)
{
    const float32x4_t a = vdupq_n_f32(0.5f), b = vdupq_n_f32(0.25f);
    const int64_t rounds = (int64_t)(n / (4 * CHAINS)) + 1;
    float32x4_t c[CHAINS];

#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        c[i] = vdupq_n_f32(0.0f);
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(c[i]) : "w"(a), "w"(b));
    return (double)rounds * 4 * CHAINS;
}

static uint64_t stream(const void *p, size_t n)
{
    const uint8_t *from = p;
    uint64x2_t s[4];
    uint64_t sum = 0;
    size_t i = 0;

    for (int k = 0; k < 4; k++)
        s[k] = vdupq_n_u64(0);
    for (; i + 128 <= n; i += 128)
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++)
            s[k % 4] = vaddq_u64(s[k % 4], vreinterpretq_u64_u8(vld1q_u8(from + i + 16 * k)));
    for (; i < n; i++)
        sum += from[i];
    for (int k = 0; k < 4; k++)
        sum += vaddvq_u64(s[k]);
    return sum;
}

void rg_neon_init_probe(rg_cpu *k)
{
    k->peak_f32 = peak_f32;
    k->stream = stream;
}
