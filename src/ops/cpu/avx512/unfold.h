/* unfold.h -- what unfold_tmpl.h wants, in this folder's vectors. */
#ifndef RG_OPS_CPU_AVX512_UNFOLD_H
#define RG_OPS_CPU_AVX512_UNFOLD_H

#include "ops/cpu/avx512/avx512.h"

typedef uint32_t words __attribute__((vector_size(64)));

ALWAYS_INLINE words load_octets(const uint8_t *p)
{
    return (words)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

ALWAYS_INLINE words load_halves(const uint16_t *p)
{
    return (words)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

ALWAYS_INLINE void store_octets(uint8_t *to, words v)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8((__m512i)v));
}

ALWAYS_INLINE words look(const uint32_t *table, words at)
{
    return (words)_mm512_i32gather_epi32((__m512i)at, table, 4);
}

#include "ops/cpu/unfold_tmpl.h"

#endif
