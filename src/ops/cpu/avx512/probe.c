/* probe.c -- what this instruction set can do at most: chains of multiply-adds in registers, and a read of memory. */
#include "ops/cpu/avx512/avx512.h"

enum { CHAINS = 12 }; /* two multipliers, latency 4 or 5 */

/* The products are volatile asm, so that the compiler neither folds nor drops them. */
static double peak_f32(double n)
{
    const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
    const int64_t rounds = (int64_t)(n / (16 * CHAINS)) + 1;
    __m512 c[CHAINS];

#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        c[i] = _mm512_setzero_ps();
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(c[i]) : "v"(a), "v"(b));
    return (double)rounds * 16 * CHAINS;
}

static double peak_int8(double n)
{
    const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
    const int64_t rounds = (int64_t)(n / (64 * CHAINS)) + 1;
    __m512i c[CHAINS];

#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        c[i] = _mm512_setzero_si512();
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(c[i]) : "v"(a), "v"(b));
    return (double)rounds * 64 * CHAINS;
}

static uint64_t stream(const void *p, size_t n)
{
    const char *from = p;
    __m512i s[4];
    uint64_t lane[8], sum = 0;
    size_t i = 0;

    for (int k = 0; k < 4; k++)
        s[k] = _mm512_setzero_si512();
    for (; i + 512 <= n; i += 512)
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            _mm_prefetch(from + i + 4096 + 64 * k, _MM_HINT_T0); /* the hardware stops at each page */
            s[k % 4] = _mm512_add_epi64(s[k % 4], _mm512_loadu_si512(from + i + 64 * k));
        }
    for (; i < n; i++)
        sum += (uint8_t)from[i];
    s[0] = _mm512_add_epi64(_mm512_add_epi64(s[0], s[1]), _mm512_add_epi64(s[2], s[3]));
    _mm512_storeu_si512(lane, s[0]);
    for (int k = 0; k < 8; k++)
        sum += lane[k];
    return sum;
}

void rg_avx512_init_probe(rg_cpu *k)
{
    k->peak_f32 = peak_f32;
    k->peak_int8 = peak_int8;
    k->stream = stream;
}
