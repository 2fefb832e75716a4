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

static double peak_f32(double n)
{
    return peak(n, 16, product_f32);
}

static double peak_int8(double n)
{
    return peak(n, 64, product_int8);
}

static uint64_t stream(const void *p, size_t n)
{
    return read_words(p, n, 512, true);
}

void rg_avx512_init_probe(rg_cpu *k)
{
    k->peak_f32 = peak_f32;
    k->peak_int8 = peak_int8;
    k->stream = stream;
}
