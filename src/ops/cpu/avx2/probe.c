/* probe.c -- what this instruction set can do at most; see probe_tmpl.h. */
#include "ops/cpu/avx2/avx2.h"

enum { CHAINS = 12 }; /* two multipliers, latency 4 or 5; with two operands, 14 of 16 registers */

#include "ops/cpu/probe_tmpl.h"

ALWAYS_INLINE vec product_f32(vec sum)
{
    __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(_mm256_set1_ps(0.5f)), "x"(_mm256_set1_ps(0.25f)));
    return sum;
}

/* 32 products, added to int16 sums: what the fast recipe is made of. */
ALWAYS_INLINE vec product_int8(vec sum)
{
    __m256i t;

    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
                     : "+x"(sum), "=&x"(t)
                     : "x"(_mm256_set1_epi8(3)), "x"(_mm256_set1_epi8(-5)));
    return sum;
}

PEAK(f32, sizeof(vec) / sizeof(float))
PEAK(int8, sizeof(vec))
STREAM(512, true)

void rg_avx2_init_probe(rg_cpu *k)
{
    k->peak_f32 = peak_f32;
    k->peak_int8 = peak_int8;
    k->stream = stream;
}
