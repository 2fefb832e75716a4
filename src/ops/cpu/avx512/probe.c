/* probe.c -- what this instruction set can do at most; see probe_tmpl.h. */
#include "ops/cpu/avx512/avx512.h"

enum { CHAINS = 12 }; /* two multipliers, latency 4 or 5 */

#include "ops/cpu/probe_tmpl.h"

ALWAYS_INLINE vec product_f32(vec sum)
{
    __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(_mm512_set1_ps(0.5f)), "v"(_mm512_set1_ps(0.25f)));
    return sum;
}

ALWAYS_INLINE vec product_int8(vec sum)
{
    __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(_mm512_set1_epi8(3)), "v"(_mm512_set1_epi8(-5)));
    return sum;
}

PEAK(f32, sizeof(vec) / sizeof(float))
PEAK(int8, sizeof(vec))
STREAM(512, true)

void rg_avx512_init_probe(rg_cpu *k)
{
    k->peak_f32 = peak_f32;
    k->peak_int8 = peak_int8;
    k->stream = stream;
}
