/* probe.c -- what this instruction set can do at most: chains of multiply-adds in registers, and a read of memory. */
#include "ops/cpu/avx2/avx2.h"

enum { CHAINS = 12 }; /* two multipliers, latency 4 or 5; with two operands, 14 of 16 registers */

/* The products are volatile asm, so that the compiler neither folds nor drops them. */
static double peak_f32(double n)
{
    const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
    const int64_t rounds = (int64_t)(n / (8 * CHAINS)) + 1;
    __m256 c[CHAINS];

#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        c[i] = _mm256_setzero_ps();
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(c[i]) : "x"(a), "x"(b));
    return (double)rounds * 8 * CHAINS;
}

/* 32 products, added to int16 sums: what the fast recipe is made of. */
static double peak_int8(double n)
{
    const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-5);
    const int64_t rounds = (int64_t)(n / (32 * CHAINS)) + 1;
    __m256i c[CHAINS], t;

#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        c[i] = _mm256_setzero_si256();
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(c[i]), "=&x"(t) : "x"(a), "x"(b));
    return (double)rounds * 32 * CHAINS;
}

static uint64_t stream(const void *p, size_t n)
{
    const char *from = p;
    __m256i s[4];
    uint64_t lane[4], sum = 0;
    size_t i = 0;

    for (int k = 0; k < 4; k++)
        s[k] = _mm256_setzero_si256();
    for (; i + 512 <= n; i += 512)
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++) {
            if (k % 2 == 0)
                _mm_prefetch(from + i + 4096 + 32 * k, _MM_HINT_T0); /* the hardware stops at each page */
            s[k % 4] = _mm256_add_epi64(s[k % 4], _mm256_loadu_si256((const __m256i *)(const void *)(from + i + 32 * k)));
        }
    for (; i < n; i++)
        sum += (uint8_t)from[i];
    s[0] = _mm256_add_epi64(_mm256_add_epi64(s[0], s[1]), _mm256_add_epi64(s[2], s[3]));
    __builtin_memcpy(lane, &s[0], sizeof lane);
    return sum + lane[0] + lane[1] + lane[2] + lane[3];
}

void rg_avx2_init_probe(rg_cpu *k)
{
    k->peak_f32 = peak_f32;
    k->peak_int8 = peak_int8;
    k->stream = stream;
}
