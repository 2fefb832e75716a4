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

#include "ops/cpu/probe_tmpl.h"

TARGET ALWAYS_INLINE vec product_int8(vec sum)
{
    __asm__ volatile(SDOT : "+w"(sum) : "w"(vdupq_n_s8(3)), "w"(vdupq_n_s8(-5)));
    return sum;
}

TARGET PEAK(int8, sizeof(vec))

void rg_neon_init_fast_dotprod(rg_cpu *k)
{
    fill_fast(k);
    k->sketch = sketch;
    k->sketches = true;
    k->peak_int8 = peak_int8;
}
