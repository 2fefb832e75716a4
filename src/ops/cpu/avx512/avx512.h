/* avx512.h -- what the files of this folder share: the kernels that avx512.c puts in the table, and inline pieces.
 *
 * Everything here is compiled for AVX512 F, BW, VL, DQ and VNNI, and is called only where cpu.c has found them. */
#ifndef RG_OPS_CPU_AVX512_H
#define RG_OPS_CPU_AVX512_H

#include <immintrin.h>

#include "ops/cpu/runs.h"

void rg_avx512_init_fast(rg_cpu *k);  /* the int8 recipe */
void rg_avx512_init_sketch(rg_cpu *k);
void rg_avx512_init_exact(rg_cpu *k); /* the exact recipe */
void rg_avx512_attend(const rg_attend *a, rg_softmax *s);
void rg_avx512_quantize(const float *x, int n, rg_xblock *out);
void rg_avx512_quantize_row(const float *x, int n, rg_xblock *out, uint32_t *outliers);
void rg_avx512_init_unfold(rg_cpu *k);
void rg_avx512_add_unfold_vbmi(rg_cpu *k); /* where the processor has it */
void rg_avx512_init_probe(rg_cpu *k); /* peaks and bandwidth */

typedef __m512 vec;
typedef __m512i bytes;
enum { WIDTH = 16 };

/* A stream of weights that is now at p: what lies `far` bytes on comes from memory to L2, what lies NEAR bytes on from
 * there to L1.  A line that came all the way to L1 would hold, for as long as memory takes, one of the few places that
 * L1 has for lines on their way: 16 on some processors, where L2 has 48. */
enum { NEAR = 1024 };
ALWAYS_INLINE void fetch_ahead(const void *p, size_t far)
{
    _mm_prefetch((const char *)p + far, _MM_HINT_T1);
    _mm_prefetch((const char *)p + NEAR, _MM_HINT_T0);
}

/* x in every lane; a * b + c, rounded once. */
ALWAYS_INLINE __m512 splat(float x)
{
    return _mm512_set1_ps(x);
}

/* The four bytes at x in every lane; by name, so that the compiler does not load them anew with every use. */
ALWAYS_INLINE __m512 splat_at(const void *x)
{
    typedef struct { uint8_t b[4]; } four;
    __m512 v;

    __asm__("vbroadcastss %1, %0" : "=v"(v) : "m"(*(const four *)x));
    return v;
}

ALWAYS_INLINE __m512 fused(__m512 a, __m512 b, __m512 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

ALWAYS_INLINE bool any_nan(__m512 v)
{
    return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
}

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

/* Bits [from, from + n) of each byte. */
ALWAYS_INLINE __m512 load_bits(const uint8_t *p, int from, int n)
{
    const __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));

    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(v, (unsigned)from), _mm512_set1_epi32((1 << n) - 1)));
}

/* 2^(e - 128); below 2^-126 it is subnormal: a shifted bit. */
ALWAYS_INLINE __m512 load_e8m0(const uint8_t *p)
{
    const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);

    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), small));
}

/* 2^-8 of 16 floats of e4m3, but for NaN: their bits are those of an f16 2^8 times smaller, with two more bits of
 * exponent and seven more of mantissa. */
ALWAYS_INLINE __m512 load_e4m3_small(const uint8_t *p)
{
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p)), 7);

    return _mm512_cvtph_ps(_mm256_and_si256(wide, _mm256_set1_epi16((short)0xbfff)));
}

/* One of 64 floats of e4m3 is NaN. */
ALWAYS_INLINE bool any_e4m3_nan(const uint8_t *p)
{
    return _mm512_cmpeq_epi8_mask(_mm512_or_si512(_mm512_loadu_si512(p), _mm512_set1_epi8((char)0x80)),
                                  _mm512_set1_epi8(-1));
}

ALWAYS_INLINE __m512 load_e4m3(const uint8_t *p)
{
    const __m128i code = _mm_or_si128(_mm_loadu_si128((const __m128i *)(const void *)p), _mm_set1_epi8((char)0x80));

    return _mm512_mask_mov_ps(load_e4m3_small(p) * 256.0f, _mm_cmpeq_epi8_mask(code, _mm_set1_epi8(-1)),
                              _mm512_set1_ps(__builtin_nanf("")));
}

/* Every 16 bits of v shifted: to the right by n, or to the left by -n; a constant. */
ALWAYS_INLINE __m512i shifted(__m512i v, int n)
{
    return n > 0 ? _mm512_srli_epi16(v, (unsigned)n) : n < 0 ? _mm512_slli_epi16(v, (unsigned)-n) : v;
}

/* Columns 4i .. 4i + 3 of a run, unsigned, from the bytes of both planes that hold them; in a plane of fewer than 8
 * bits, later groups are the upper bits of the first ones. */
ALWAYS_INLINE __m512i joined_codes(rg_layout layout, __m512i lower, __m512i upper, int i)
{
    const int bits = rg_layout_bits(layout), low = rg_layout_low_bits(layout), high = bits - low;
    __m512i v = shifted(lower, i / low * low);

    if (bits == 8)
        return v;
    if (high) /* what the mask chooses from v, the rest from the other plane */
        v = _mm512_ternarylogic_epi32(_mm512_set1_epi8((char)((1 << low) - 1)), v,
                                      shifted(upper, i / high * high - low), 0xca);
    return _mm512_and_si512(v, _mm512_set1_epi8((char)((1 << bits) - 1)));
}

/* The same from the run's bytes q.  A part is the whole of the 16 rows. */
ALWAYS_INLINE __m512i run_codes(rg_layout layout, const uint8_t *q, int i, int part)
{
    const int low = rg_layout_low_bits(layout), high = rg_layout_bits(layout) - low;
    const __m512i lower = _mm512_loadu_si512(q + 64 * (i % low));

    (void)part;
    return joined_codes(layout, lower, high ? _mm512_loadu_si512(q + 64 * (low + i % high)) : lower, i);
}

/* Column k of a run in the lowest bits of every lane, the others 0. */
ALWAYS_INLINE __m512i column_codes(rg_layout layout, const uint8_t *q, int k, int part)
{
    const int bits = rg_layout_bits(layout), low = rg_layout_low_bits(layout), high = bits - low, i = k / 4;
    __m512i v = _mm512_srl_epi32(_mm512_loadu_si512(q + 64 * (i % low)), _mm_cvtsi32_si128(k % 4 * 8 + i / low * low));

    (void)part;
    v = _mm512_and_si512(v, _mm512_set1_epi32((1 << low) - 1));
    if (!high)
        return v;
    const __m512i more = _mm512_srl_epi32(_mm512_loadu_si512(q + 64 * (low + i % high)),
                                          _mm_cvtsi32_si128(k % 4 * 8 + i / high * high));
    return _mm512_or_si512(
        v, _mm512_slli_epi32(_mm512_and_si512(more, _mm512_set1_epi32((1 << high) - 1)), (unsigned)low));
}

/* A panel's table: as it is, and as bytes in each 128 bits. */
typedef struct book {
    __m512 value;
    __m512i byte;
} book;

ALWAYS_INLINE book load_book(rg_layout layout, const uint8_t *panel)
{
    const rg_table *t = (const void *)panel;

    if (!has_table(layout))
        return (book){ _mm512_setzero_ps(), _mm512_setzero_si512() };
    return (book){ _mm512_loadu_ps(t->value),
                   _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)t->byte)) };
}

/* The unsigned bytes that are multiplied. */
ALWAYS_INLINE __m512i run_group(rg_layout layout, const book *t, const uint8_t *q, int i)
{
    const __m512i codes = run_codes(layout, q, i, 0);

    return has_table(layout) ? _mm512_shuffle_epi8(t->byte, codes) : codes;
}

ALWAYS_INLINE __m512 weights(rg_layout layout, const book *t, __m512i group, int k)
{
    const __m512i v = _mm512_srli_epi32(group, (unsigned)(8 * k));

    if (has_table(layout)) /* which looks at the lowest four bits only */
        return _mm512_permutexvar_ps(v, t->value);
    return _mm512_cvtepi32_ps(
        _mm512_sub_epi32(_mm512_and_si512(v, _mm512_set1_epi32(255)), _mm512_set1_epi32(offset_of(layout))));
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
ALWAYS_INLINE void load_run(rg_weight_run *r, rg_layout layout, const uint8_t *panel, const book *t, int b)
{
    const uint8_t *q = run_q(layout, panel, b);

    for (int i = 0; i < 8; i++)
        r->w[i] = run_group(layout, t, q, i);
    for (int h = 0; h < n_halves_of(layout); h++)
        r->s[h] = run_int8_scales(layout, panel, b, h, 0);
}

#endif
