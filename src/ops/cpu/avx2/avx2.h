/* avx2.h -- what the files of this folder share: the kernels that avx2.c puts in the table, and inline pieces.
 *
 * Everything here is compiled for AVX2, FMA and F16C, and is called only where cpu.c has found them.  A panel's 16 rows
 * are two vectors: part 0 holds rows 0 .. 7, part 1 rows 8 .. 15. */
#ifndef RG_OPS_CPU_AVX2_H
#define RG_OPS_CPU_AVX2_H

#include <immintrin.h>

#include "ops/cpu/runs.h"

void rg_avx2_init_fast(rg_cpu *k);  /* the int8 recipe */
void rg_avx2_init_exact(rg_cpu *k); /* the exact recipe */
void rg_avx2_init_probe(rg_cpu *k); /* peaks and bandwidth */
void rg_avx2_attend(const rg_attend *a, rg_softmax *s);

typedef __m256 vec;
typedef __m256i bytes;
enum { WIDTH = 8 };

/* 8 values to f32: exact. */
ALWAYS_INLINE __m256 load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

ALWAYS_INLINE __m256 load_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16));
}

ALWAYS_INLINE __m256 load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

ALWAYS_INLINE __m256 load_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

/* Columns 4i .. 4i + 3 of one part of a run, from its bytes q, as they are packed; the low nibble of each byte, the
 * high. */
ALWAYS_INLINE __m256i packed(const uint8_t *q, int i, int part)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)(q + 64 * i + 32 * part));
}

ALWAYS_INLINE __m256i low_nibbles(const uint8_t *q, int i, int part)
{
    return _mm256_and_si256(packed(q, i, part), _mm256_set1_epi8(15));
}

ALWAYS_INLINE __m256i high_nibbles(const uint8_t *q, int i, int part)
{
    return _mm256_and_si256(_mm256_srli_epi16(packed(q, i, part), 4), _mm256_set1_epi8(15));
}

/* The same columns unsigned, whatever the layout: of 4 bits, group i >= 4 is the high nibbles of group i - 4. */
ALWAYS_INLINE __m256i run_group(rg_layout layout, const uint8_t *q, int i, int part)
{
    if (!is_nibbles(layout))
        return packed(q, i, part);
    return i < 4 ? low_nibbles(q, i, part) : high_nibbles(q, i - 4, part);
}

ALWAYS_INLINE __m256 weights(rg_layout layout, __m256i group, int k)
{
    __m256i v = _mm256_and_si256(_mm256_srli_epi32(group, 8 * k), _mm256_set1_epi32(255));

    return _mm256_cvtepi32_ps(_mm256_sub_epi32(v, _mm256_set1_epi32(offset_of(layout))));
}

#include "ops/cpu/panel_tmpl.h"

#endif
