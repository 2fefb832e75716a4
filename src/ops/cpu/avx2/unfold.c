/* unfold.c -- panels of folded layouts in this folder's vectors. */
#include "ops/cpu/avx2/avx2.h"

typedef uint32_t words __attribute__((vector_size(32)));

ALWAYS_INLINE words load_octets(const uint8_t *p)
{
    return (words)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

ALWAYS_INLINE words load_halves(const uint16_t *p)
{
    return (words)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

ALWAYS_INLINE void store_octets(uint8_t *to, words v)
{
    const __m256i bytes4 = _mm256_shuffle_epi8((__m256i)v, _mm256_set1_epi32(0x0c080400));
    const __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes4), _mm256_extracti128_si256(bytes4, 1));

    _mm_storel_epi64((__m128i *)(void *)to, both);
}

ALWAYS_INLINE words look(const uint32_t *table, words at)
{
    return (words)_mm256_i32gather_epi32((const int *)(const void *)table, (__m256i)at, 4);
}

#include "ops/cpu/unfold_tmpl.h"

void rg_avx2_init_unfold(rg_cpu *k)
{
    k->unfold = unfold;
}
