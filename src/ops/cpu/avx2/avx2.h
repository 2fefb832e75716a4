/* avx2.h -- what the files of this folder share: the kernels that avx2.c puts in the table, and inline pieces.
 *
 * Everything here is compiled for AVX2, FMA and F16C, and is called only where cpu.c has found them.  A panel's 16 rows
 * are two vectors: part 0 holds rows 0 .. 7, part 1 rows 8 .. 15. */
#ifndef RG_OPS_CPU_AVX2_H
#define RG_OPS_CPU_AVX2_H

#include <immintrin.h>

#include "ops/cpu/runs.h"

void rg_avx2_init_fast(rg_cpu *k);  /* the int8 recipe */
void rg_avx2_init_sketch(rg_cpu *k);
void rg_avx2_init_exact(rg_cpu *k); /* the exact recipe */
void rg_avx2_init_unfold(rg_cpu *k);
void rg_avx2_init_probe(rg_cpu *k); /* peaks and bandwidth */
void rg_avx2_attend(const rg_attend *a, rg_softmax *s);

typedef __m256 vec;
typedef __m256i bytes;
enum { WIDTH = 8 };

/* x in every lane; a * b + c, rounded once. */
ALWAYS_INLINE __m256 splat(float x)
{
    return _mm256_set1_ps(x);
}

/* The float at x, which need not be aligned, in every lane. */
ALWAYS_INLINE __m256 splat_at(const void *x)
{
    float v;

    __builtin_memcpy(&v, x, sizeof v);
    return _mm256_set1_ps(v);
}

ALWAYS_INLINE __m256 fused(__m256 a, __m256 b, __m256 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

ALWAYS_INLINE bool any_nan(__m256 v)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

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

/* Bits [from, from + n) of each byte. */
ALWAYS_INLINE __m256 load_bits(const uint8_t *p, int from, int n)
{
    const __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));

    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(v, from), _mm256_set1_epi32((1 << n) - 1)));
}

/* 2^(e - 128); below 2^-126 it is subnormal: a shifted bit. */
ALWAYS_INLINE __m256 load_e8m0(const uint8_t *p)
{
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);

    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

/* 2^-8 of 8 floats of e4m3, but for NaN: their bits are those of an f16 2^8 times smaller, with two more bits of
 * exponent and seven more of mantissa. */
ALWAYS_INLINE __m256 load_e4m3_small(const uint8_t *p)
{
    const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p)), 7);

    return _mm256_cvtph_ps(_mm_and_si128(wide, _mm_set1_epi16((short)0xbfff)));
}

/* One of 64 floats of e4m3 is NaN. */
ALWAYS_INLINE bool any_e4m3_nan(const uint8_t *p)
{
    const __m256i sign = _mm256_set1_epi8((char)0x80), nan = _mm256_set1_epi8(-1);
    const __m256i a = _mm256_or_si256(_mm256_loadu_si256((const __m256i *)(const void *)p), sign);
    const __m256i b = _mm256_or_si256(_mm256_loadu_si256((const __m256i *)(const void *)(p + 32)), sign);

    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(a, b), nan));
}

ALWAYS_INLINE __m256 load_e4m3(const uint8_t *p)
{
    const __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    const __m256i is_nan = _mm256_cmpeq_epi32(_mm256_or_si256(code, _mm256_set1_epi32(0x80)), _mm256_set1_epi32(0xff));

    return _mm256_blendv_ps(load_e4m3_small(p) * 256.0f, _mm256_set1_ps(__builtin_nanf("")),
                            _mm256_castsi256_ps(is_nan));
}

/* Every 16 bits of v shifted: to the right by n, or to the left by -n; a constant. */
ALWAYS_INLINE __m256i shifted(__m256i v, int n)
{
    return n > 0 ? _mm256_srli_epi16(v, n) : n < 0 ? _mm256_slli_epi16(v, -n) : v;
}

/* Columns 4i .. 4i + 3 of one part of a run, from its bytes q, unsigned; in a plane of fewer than 8 bits, later groups
 * are the upper bits of the first ones. */
ALWAYS_INLINE __m256i run_codes(rg_layout layout, const uint8_t *q, int i, int part)
{
    const int bits = rg_layout_bits(layout), low = rg_layout_low_bits(layout), high = bits - low;
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(q + 64 * (i % low) + 32 * part)), more;

    if (bits == 8)
        return v;
    v = _mm256_and_si256(shifted(v, i / low * low), _mm256_set1_epi8((char)((1 << low) - 1)));
    if (!high)
        return v;
    more = _mm256_loadu_si256((const __m256i *)(const void *)(q + 64 * (low + i % high) + 32 * part));
    more = _mm256_and_si256(shifted(more, i / high * high - low), _mm256_set1_epi8((char)((1 << bits) - (1 << low))));
    return _mm256_or_si256(v, more);
}

/* Column k of a run in the lowest bits of every lane, the others 0. */
ALWAYS_INLINE __m256i column_codes(rg_layout layout, const uint8_t *q, int k, int part)
{
    const int bits = rg_layout_bits(layout), low = rg_layout_low_bits(layout), high = bits - low, i = k / 4;
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(q + 64 * (i % low) + 32 * part)), more;

    v = _mm256_srl_epi32(v, _mm_cvtsi32_si128(k % 4 * 8 + i / low * low));
    v = _mm256_and_si256(v, _mm256_set1_epi32((1 << low) - 1));
    if (!high)
        return v;
    more = _mm256_loadu_si256((const __m256i *)(const void *)(q + 64 * (low + i % high) + 32 * part));
    more = _mm256_srl_epi32(more, _mm_cvtsi32_si128(k % 4 * 8 + i / high * high));
    more = _mm256_and_si256(more, _mm256_set1_epi32((1 << high) - 1));
    return _mm256_or_si256(v, _mm256_slli_epi32(more, low));
}

/* A panel's table: as it is, and its bytes in each 128 bits. */
typedef struct book {
    __m256 value[2];
    __m256i byte;
} book;

ALWAYS_INLINE book load_book(rg_layout layout, const uint8_t *panel)
{
    const rg_table *t = (const void *)panel;
    book r = { 0 };

    if (has_table(layout)) {
        r.value[0] = _mm256_loadu_ps(t->value);
        r.value[1] = _mm256_loadu_ps(t->value + 8);
        r.byte = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)t->byte));
    }
    return r;
}

/* The unsigned bytes that are multiplied. */
ALWAYS_INLINE __m256i run_group(rg_layout layout, const book *t, const uint8_t *q, int i, int part)
{
    const __m256i codes = run_codes(layout, q, i, part);

    return has_table(layout) ? _mm256_shuffle_epi8(t->byte, codes) : codes;
}

ALWAYS_INLINE __m256 weights(rg_layout layout, const book *t, __m256i group, int k)
{
    const __m256i v = _mm256_srli_epi32(group, 8 * k);

    if (has_table(layout)) { /* the lowest three bits choose from either half, the fourth between them */
        const __m256 first = _mm256_permutevar8x32_ps(t->value[0], v);
        const __m256 second = _mm256_permutevar8x32_ps(t->value[1], v);
        return _mm256_blendv_ps(first, second, _mm256_castsi256_ps(_mm256_slli_epi32(v, 28)));
    }
    return _mm256_cvtepi32_ps(
        _mm256_sub_epi32(_mm256_and_si256(v, _mm256_set1_epi32(255)), _mm256_set1_epi32(offset_of(layout))));
}

#include "ops/cpu/panel_tmpl.h"

#endif
