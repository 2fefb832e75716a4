/* avx2.h -- what the files of this folder share: the kernels that avx2.c puts in the table, and inline pieces.
 *
 * Everything here is compiled for AVX2, FMA and F16C, and is called only where cpu.c has found them.  A panel's 16 rows
 * are two vectors: part 0 holds rows 0 .. 7, part 1 rows 8 .. 15. */
#ifndef RG_OPS_CPU_AVX2_H
#define RG_OPS_CPU_AVX2_H

#include <immintrin.h>

#include "ops/cpu/kernels.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

void rg_avx2_init_fast(rg_cpu *k);  /* panel_fast */
void rg_avx2_init_exact(rg_cpu *k); /* panel_exact */
void rg_avx2_init_probe(rg_cpu *k); /* peaks and bandwidth */
void rg_avx2_attend(const rg_attend *a, rg_softmax *s);

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

ALWAYS_INLINE __m256 negate(__m256 a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}

/* Does a layout pack 4 bits, and has it a minimum? */
ALWAYS_INLINE bool is_nibbles(rg_layout layout)
{
    return layout == RG_LAYOUT_Q4 || layout == RG_LAYOUT_Q4M || layout == RG_LAYOUT_K4;
}

ALWAYS_INLINE bool has_minimum(rg_layout layout)
{
    return layout != RG_LAYOUT_Q4 && layout != RG_LAYOUT_Q8;
}

/* The bytes of run b (32 columns) of a panel of any integer layout; `layout` is a constant wherever this is called. */
ALWAYS_INLINE const uint8_t *run_q(rg_layout layout, const uint8_t *panel, int b)
{
    switch (layout) {
    case RG_LAYOUT_Q4: return ((const rg_step_q4 *)(const void *)panel)[b].q[0][0];
    case RG_LAYOUT_Q4M: return ((const rg_step_q4m *)(const void *)panel)[b].q[0][0];
    case RG_LAYOUT_Q8: return ((const rg_step_q8 *)(const void *)panel)[b].q[0][0];
    case RG_LAYOUT_Q8M: return ((const rg_step_q8m *)(const void *)panel)[b].q[0][0];
    case RG_LAYOUT_K4: return ((const rg_step_k4 *)(const void *)panel)[b / 8].q[b % 8][0][0];
    default: return ((const rg_step_k8 *)(const void *)panel)[b / 8].q[b % 8 * 2][0][0];
    }
}

typedef struct rg_scales {
    __m256 d, m;
} rg_scales;

/* Scale, and minimum where there is one, of one part of half h of run b (h is 0 unless the layout has 16 columns to a
 * scale). */
ALWAYS_INLINE rg_scales run_scales(rg_layout layout, const uint8_t *panel, int b, int h, int part)
{
    const int at = 8 * part;
    rg_scales r = { _mm256_setzero_ps(), _mm256_setzero_ps() };

    if (layout == RG_LAYOUT_Q4) {
        r.d = load_f16(((const rg_step_q4 *)(const void *)panel)[b].d + at);
    } else if (layout == RG_LAYOUT_Q8) {
        r.d = load_f16(((const rg_step_q8 *)(const void *)panel)[b].d + at);
    } else if (layout == RG_LAYOUT_Q4M) {
        r.d = load_f16(((const rg_step_q4m *)(const void *)panel)[b].d + at);
        r.m = load_f16(((const rg_step_q4m *)(const void *)panel)[b].m + at);
    } else if (layout == RG_LAYOUT_Q8M) {
        r.d = load_f16(((const rg_step_q8m *)(const void *)panel)[b].d + at);
        r.m = load_f16(((const rg_step_q8m *)(const void *)panel)[b].m + at);
    } else if (layout == RG_LAYOUT_K4) {
        const rg_step_k4 *s = (const rg_step_k4 *)(const void *)panel + b / 8;
        r.d = _mm256_mul_ps(load_f16(s->d + at), load_i8(s->s[b % 8] + at));
        r.m = negate(_mm256_mul_ps(load_f16(s->e + at), load_u8(s->t[b % 8] + at)));
    } else {
        const rg_step_k8 *s = (const rg_step_k8 *)(const void *)panel + b / 8;
        r.d = _mm256_mul_ps(load_f16(s->d + at), load_i8(s->s[b % 8 * 2 + h] + at));
        r.m = negate(_mm256_mul_ps(load_f16(s->e + at), load_u8(s->t[b % 8 * 2 + h] + at)));
    }
    return r;
}

/* Bytes of columns 4i .. 4i + 3 of one part of a run, from its bytes q: the low nibble of each, or the high one.  Of 4-bit
 * layouts, group i >= 4 is the high nibble of group i - 4; see run_group. */
ALWAYS_INLINE __m256i low_nibbles(const uint8_t *q, int i, int part)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(q + 64 * i + 32 * part));

    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

ALWAYS_INLINE __m256i high_nibbles(const uint8_t *q, int i, int part)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(q + 64 * i + 32 * part));

    return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
}

/* Group i of a 4-bit layout. */
ALWAYS_INLINE __m256i run_group(const uint8_t *q, int i, int part)
{
    return i < 4 ? low_nibbles(q, i, part) : high_nibbles(q, i - 4, part);
}

#endif
