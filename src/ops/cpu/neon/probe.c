/* probe.c -- what NEON can do at most; see probe_tmpl.h. */
#include "ops/cpu/neon/neon.h"

enum { CHAINS = 16 }; /* four multipliers, latency 4 */

#include "ops/cpu/probe_tmpl.h"

ALWAYS_INLINE vec product_f32(vec sum)
{
    __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(sum) : "w"(vdupq_n_f32(0.5f)), "w"(vdupq_n_f32(0.25f)));
    return sum;
}

PEAK(f32, sizeof(vec) / sizeof(float))
STREAM(128, false)

void rg_neon_init_probe(rg_cpu *k)
{
    k->peak_f32 = peak_f32;
    k->stream = stream;
}
