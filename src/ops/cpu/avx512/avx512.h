/* avx512.h -- what the files of this folder share: the kernels that avx512.c puts in the table, and inline pieces.
 *
 * Everything here is compiled for AVX512 F, BW, VL, DQ and VNNI, and is called only where cpu.c has found them. */
#ifndef RG_OPS_CPU_AVX512_H
#define RG_OPS_CPU_AVX512_H

#include <immintrin.h>

#include "ops/cpu/runs.h"

void rg_avx512_init_fast(rg_cpu *k);  /* the int8 recipe */
void rg_avx512_init_exact(rg_cpu *k); /* the exact recipe */
void rg_avx512_attend(const rg_attend *a, rg_softmax *s);
void rg_avx512_quantize(const float *x, int n, rg_xblock *out);
void rg_avx512_init_probe(rg_cpu *k); /* peaks and bandwidth */

typedef __m512 vec;
typedef __m512i bytes;
enum { WIDTH = 16 };

/* 16 values to f32: exact. */
ALWAYS_INLINE __m512 load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

ALWAYS_INLINE __m512 load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
}

ALWAYS_INLINE __m512 load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

ALWAYS_INLINE __m512 load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

/* Columns 4i .. 4i + 3 of a run, from its bytes q, unsigned; of 4-bit layouts, group i >= 4 is the high nibbles of
 * group i - 4.  A part is the whole of the 16 rows. */
ALWAYS_INLINE __m512i run_group(rg_layout layout, const uint8_t *q, int i, int part)
{
    (void)part;
    if (!is_nibbles(layout))
        return _mm512_loadu_si512(q + 64 * i);
    if (i < 4)
        return _mm512_and_si512(_mm512_loadu_si512(q + 64 * i), _mm512_set1_epi8(15));
    return _mm512_and_si512(_mm512_srli_epi16(_mm512_loadu_si512(q + 64 * (i - 4)), 4), _mm512_set1_epi8(15));
}

ALWAYS_INLINE __m512 weights(rg_layout layout, __m512i group, int k)
{
    __m512i v = _mm512_and_si512(_mm512_srli_epi32(group, (unsigned)(8 * k)), _mm512_set1_epi32(255));

    return _mm512_cvtepi32_ps(_mm512_sub_epi32(v, _mm512_set1_epi32(offset_of(layout))));
}

/* Two columns of bf16 weights, [2][16] at p, as [16][2]: what a dot product of pairs wants. */
ALWAYS_INLINE __m512i load_pairs(const uint8_t *p)
{
    const __m512i order = _mm512_set_epi32(0x1f000f, 0x1e000e, 0x1d000d, 0x1c000c, 0x1b000b, 0x1a000a, 0x190009,
                                           0x180008, 0x170007, 0x160006, 0x150005, 0x140004, 0x130003, 0x120002,
                                           0x110001, 0x100000);

    return _mm512_permutexvar_epi16(order, _mm512_loadu_si512(p));
}

/* Two neighbouring values of bf16 in every lane. */
ALWAYS_INLINE __m512i two_of(const uint16_t *p)
{
    int32_t v;

    __builtin_memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

#include "ops/cpu/panel_tmpl.h"

/* One run of 32 columns of a panel, as the dot product wants it: w[i] holds columns 4i .. 4i + 3 of 16 rows, unsigned.
 * Layouts with a scale per 16 columns have two scales, the others one. */
typedef struct rg_weight_run {
    __m512i w[8];
    scales s[2];
} rg_weight_run;

/* Run b of a panel of any integer layout. */
ALWAYS_INLINE void load_run(rg_weight_run *r, rg_layout layout, const uint8_t *panel, int b)
{
    const uint8_t *q = run_q(layout, panel, b);

    for (int i = 0; i < 8; i++)
        r->w[i] = run_group(layout, q, i, 0);
    for (int h = 0; h < n_halves_of(layout); h++)
        r->s[h] = run_scales(layout, panel, b, h, 0);
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
