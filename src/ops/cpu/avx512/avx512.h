/* avx512.h -- what the files of this folder share: the kernels that avx512.c puts in the table, and inline pieces.
 *
 * Everything here is compiled for AVX512 F, BW, VL, DQ and VNNI, and is called only where cpu.c has found them. */
#ifndef RG_OPS_CPU_AVX512_H
#define RG_OPS_CPU_AVX512_H

#include <immintrin.h>

#include "ops/cpu/kernels.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

void rg_avx512_init_fast(rg_cpu *k);  /* panel_fast */
void rg_avx512_init_exact(rg_cpu *k); /* panel_exact */
void rg_avx512_attend(const rg_attend *a, rg_softmax *s);
void rg_avx512_quantize(const float *x, int n, rg_xblock *out);
void rg_avx512_init_probe(rg_cpu *k); /* peaks and bandwidth */

/* 16 values of f16 to f32: exact. */
ALWAYS_INLINE __m512 load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* 16 small integers to f32: exact. */
ALWAYS_INLINE __m512 load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

ALWAYS_INLINE __m512 load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

ALWAYS_INLINE __m512 negate(__m512 a)
{
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)));
}

/* One run of 32 columns of a panel, as the dot product wants it: w[i] holds columns 4i .. 4i + 3 of 16 rows, unsigned.
 * Layouts with a scale per 16 columns fill both halves of d and m, the others the first. */
typedef struct rg_run {
    __m512i w[8];
    __m512 d[2], m[2];
} rg_run;

ALWAYS_INLINE void load_bytes(rg_run *r, const uint8_t *q)
{
    for (int i = 0; i < 8; i++)
        r->w[i] = _mm512_loadu_si512(q + 64 * i);
}

ALWAYS_INLINE void load_nibbles(rg_run *r, const uint8_t *q)
{
    const __m512i low = _mm512_set1_epi8(15);

    for (int i = 0; i < 4; i++) {
        __m512i both = _mm512_loadu_si512(q + 64 * i);
        r->w[i] = _mm512_and_si512(both, low);
        r->w[4 + i] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
}

/* Run b of a panel of any integer layout; `layout` is a constant wherever this is called. */
ALWAYS_INLINE void load_run(rg_run *r, rg_layout layout, const uint8_t *panel, int b)
{
    if (layout == RG_LAYOUT_Q4) {
        const rg_step_q4 *s = (const rg_step_q4 *)(const void *)panel + b;
        load_nibbles(r, s->q[0][0]);
        r->d[0] = load_f16(s->d);
    } else if (layout == RG_LAYOUT_Q4M) {
        const rg_step_q4m *s = (const rg_step_q4m *)(const void *)panel + b;
        load_nibbles(r, s->q[0][0]);
        r->d[0] = load_f16(s->d);
        r->m[0] = load_f16(s->m);
    } else if (layout == RG_LAYOUT_Q8) {
        const rg_step_q8 *s = (const rg_step_q8 *)(const void *)panel + b;
        load_bytes(r, s->q[0][0]);
        r->d[0] = load_f16(s->d);
    } else if (layout == RG_LAYOUT_Q8M) {
        const rg_step_q8m *s = (const rg_step_q8m *)(const void *)panel + b;
        load_bytes(r, s->q[0][0]);
        r->d[0] = load_f16(s->d);
        r->m[0] = load_f16(s->m);
    } else if (layout == RG_LAYOUT_K4) {
        const rg_step_k4 *s = (const rg_step_k4 *)(const void *)panel + b / 8;
        load_nibbles(r, s->q[b % 8][0][0]);
        r->d[0] = _mm512_mul_ps(load_f16(s->d), load_i8(s->s[b % 8]));
        r->m[0] = negate(_mm512_mul_ps(load_f16(s->e), load_u8(s->t[b % 8])));
    } else {
        const rg_step_k8 *s = (const rg_step_k8 *)(const void *)panel + b / 8;
        load_bytes(r, s->q[b % 8 * 2][0][0]);
        for (int h = 0; h < 2; h++) {
            r->d[h] = _mm512_mul_ps(load_f16(s->d), load_i8(s->s[b % 8 * 2 + h]));
            r->m[h] = negate(_mm512_mul_ps(load_f16(s->e), load_u8(s->t[b % 8 * 2 + h])));
        }
    }
}

ALWAYS_INLINE size_t run_bytes(rg_layout layout)
{
    switch (layout) {
    case RG_LAYOUT_Q4: return sizeof(rg_step_q4);
    case RG_LAYOUT_Q4M: return sizeof(rg_step_q4m);
    case RG_LAYOUT_Q8: return sizeof(rg_step_q8);
    case RG_LAYOUT_Q8M: return sizeof(rg_step_q8m);
    case RG_LAYOUT_K4: return sizeof(rg_step_k4) / 8;
    default: return sizeof(rg_step_k8) / 8;
    }
}

#endif
