/* dotprod.c -- the fast recipe with sdot, and how fast sdot can go.
 *
 * Its functions alone are compiled for the instruction, which cpu.c has found on this machine. */
#include "ops/cpu/neon/neon.h"

#if defined(__clang__)
#define TARGET __attribute__((target("dotprod")))
#else
#define TARGET __attribute__((target("arch=armv8.2-a+dotprod")))
#endif

/* By name: the intrinsic is declared only where the whole file is compiled for it. */
#define SDOT "sdot %0.4s, %1.16b, %2.16b"

TARGET ALWAYS_INLINE int32x4_t add_dot(int32x4_t sum, int8x16_t w, int8x16_t x)
{
    __asm__(SDOT : "+w"(sum) : "w"(w), "w"(x));
    return sum;
}

#include "ops/cpu/neon/fast.h"

enum { CHAINS = 16 };

TARGET static double peak_int8(double n)
{
    const int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(-5);
    const int64_t rounds = (int64_t)(n / (16 * CHAINS)) + 1;
    int32x4_t c[CHAINS];

#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        c[i] = vdupq_n_s32(0);
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile(SDOT : "+w"(c[i]) : "w"(a), "w"(b));
    return (double)rounds * 16 * CHAINS;
}

void rg_neon_init_fast_dotprod(rg_cpu *k)
{
    fill_fast(k);
    k->peak_int8 = peak_int8;
}
