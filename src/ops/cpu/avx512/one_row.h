/* one_row.h -- one row of int8 activations by the layouts of two levels of scales, K2 to K6, a step of 256 columns at a
 * time: what all of its runs share is made once, and scales of fewer than 8 bits become bytes 64 at a time.
 *
 * The 64 bytes of a step are read once each, as they lie, and each read fetches the same place of a later step: a
 * processor that sees lines in their order fetches them early, and one whose scales are looked up again with every run
 * does not.
 *
 * Codes that lie in the upper four bits of a byte stay there: their sum is 16 times too large, which one shift mends.
 * (|sum| <= 16 * 127 * 112 in K3: exact.)  Part of fast.c. */
#ifndef RG_OPS_CPU_AVX512_ONE_ROW_H
#define RG_OPS_CPU_AVX512_ONE_ROW_H

#include "ops/cpu/avx512/piece.h"

/* Scales and minima of a step: those of the runs as bytes, [run][16]; of K2 s holds both, as rg_step_k2 does. */
typedef struct step_scales {
    __m512 d, minus_e;
    _Alignas(64) int8_t s[16][16];
    _Alignas(64) uint8_t t[16][16];
} step_scales;

/* 64 bytes at p, which comes behind what was read last; by name, so that the compiler keeps the order. */
ALWAYS_INLINE __m512i read_on(const void *p)
{
    typedef struct { uint8_t b[64]; } line;
    __m512i v;

    _mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
    __asm__ volatile("vmovdqu64 %1, %0" : "=v"(v) : "m"(*(const line *)p));
    return v;
}

ALWAYS_INLINE void put_lane(int8_t *to, __m128i v)
{
    _mm_store_si128((__m128i *)(void *)to, v);
}

/* Four runs of each half at a time: four bits of low, above them two of high, and 32 less. */
ALWAYS_INLINE void k3_scales(step_scales *l, const rg_step_k3 *k)
{
    const __m512i low[2] = { read_on(k->low[0]), read_on(k->low[4]) }, high = read_on(k->high);
    const __m512i four = _mm512_set1_epi8(15), six = _mm512_set1_epi8(63);

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const int part = i / 2, h = i % 2;
        const __m512i upper = shifted(high, 4 * part + 2 * h - 4);
        __m512i s = _mm512_ternarylogic_epi32(four, shifted(low[part], 4 * h), upper, 0xca);

        s = _mm512_sub_epi8(_mm512_and_si512(s, six), _mm512_set1_epi8(32));
        put_lane(l->s[8 * part + h], _mm512_castsi512_si128(s));
        put_lane(l->s[8 * part + h + 2], _mm512_extracti32x4_epi32(s, 1));
        put_lane(l->s[8 * part + h + 4], _mm512_extracti32x4_epi32(s, 2));
        put_lane(l->s[8 * part + h + 6], _mm512_extracti32x4_epi32(s, 3));
    }
}

/* n times 64 bytes. */
ALWAYS_INLINE void copy_on(void *to, const void *from, int n)
{
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
        _mm512_store_si512((uint8_t *)to + 64 * i, read_on((const uint8_t *)from + 64 * i));
}

ALWAYS_INLINE void load_step_scales(step_scales *l, rg_layout layout, const uint8_t *step)
{
    const rg_step_k4 *k4 = (const void *)step; /* in which s and t lie as in K5, d and e as in all that have them */

    _mm_prefetch((const char *)step + AHEAD, _MM_HINT_T0);
    l->d = load_f16(k4->d);
    if (has_minimum(layout))
        l->minus_e = -load_f16(k4->e);
    if (layout == RG_LAYOUT_K2) {
        copy_on(l->s, ((const rg_step_k2 *)(const void *)step)->st, 4);
    } else if (layout == RG_LAYOUT_K3) {
        k3_scales(l, (const void *)step);
    } else if (layout == RG_LAYOUT_K6) {
        copy_on(l->s, ((const rg_step_k6 *)(const void *)step)->s, 4);
    } else {
        copy_on(l->s, k4->s, 2);
        copy_on(l->t, k4->t, 2);
    }
}

/* Of the i-th run that has scales of its own: d * s, and with a minimum -(e * t). */
ALWAYS_INLINE void load_scaled(rg_layout layout, const step_scales *l, int i, __m512 *ds, __m512 *et)
{
    if (layout == RG_LAYOUT_K2) { /* a lookup, which sees four bits of its index, makes them floats */
        const __m512 number = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i st = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)l->s[i]));

        *ds = l->d * _mm512_permutexvar_ps(st, number);
        *et = l->minus_e * _mm512_permutexvar_ps(_mm512_srli_epi32(st, 4), number);
        return;
    }
    *ds = l->d * load_i8(l->s[i]);
    if (has_minimum(layout))
        *et = l->minus_e * load_u8(l->t[i]);
}

/* Groups of a run in the lower and in the upper four bits of bytes: group i and group 4 + i. */
ALWAYS_INLINE void paired_codes(rg_layout layout, const __m512i *plane, __m512i *pair)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        pair[i] = layout == RG_LAYOUT_K4 ? plane[i] : shifted(plane[i % 2], i / 2 * 2);
    if (layout == RG_LAYOUT_K3) /* bit i of the other plane, and bit 4 + i, above them */
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            pair[i] = _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x33), pair[i], shifted(plane[2], i - 2), 0xca);
}

/* Sums of both halves of a run, without what their offset owes. */
ALWAYS_INLINE void paired_sums(rg_layout layout, const __m512i *plane, const rg_xblock *x, __m512i *s)
{
    const int mask = (1 << rg_layout_bits(layout)) - 1;
    __m512i pair[4];

    paired_codes(layout, plane, pair);
    s[0] = s[1] = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        s[0] = dot(s[0], _mm512_and_si512(pair[i], _mm512_set1_epi8((char)mask)), x->q + 4 * i);
        s[1] = dot(s[1], _mm512_and_si512(pair[i], _mm512_set1_epi8((char)(mask << 4))), x->q + 16 + 4 * i);
    }
    s[1] = _mm512_srai_epi32(s[1], 4);
}

ALWAYS_INLINE void run_sums(rg_layout layout, const uint8_t *q, const rg_xblock *x, __m512i *s)
{
    const bool paired = layout == RG_LAYOUT_K2 || layout == RG_LAYOUT_K3 || layout == RG_LAYOUT_K4;
    const int bits = rg_layout_bits(layout), low = rg_layout_low_bits(layout), high = bits - low;
    const kind kd = kind_of(layout);
    __m512i plane[6];

#pragma GCC unroll 6
    for (int i = 0; i < bits; i++)
        plane[i] = read_on(q + 64 * i);
    if (paired) {
        paired_sums(layout, plane, x, s);
        if (offset_of(layout)) {
            s[0] = _mm512_add_epi32(s[0], start(kd, _mm512_setzero_ps(), x, 0));
            s[1] = _mm512_add_epi32(s[1], start(kd, _mm512_setzero_ps(), x, 1));
        }
        return;
    }
    s[0] = start(kd, _mm512_setzero_ps(), x, 0);
    s[1] = offset_of(layout) ? start(kd, _mm512_setzero_ps(), x, 1) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const __m512i codes = joined_codes(layout, plane[i % low], plane[high ? low + i % high : 0], i);

        s[i / 4] = dot(s[i / 4], codes, x->q + 4 * i);
    }
}

ALWAYS_INLINE void one_row_of_steps(rg_layout layout, const uint8_t *panel, int n, const rg_xblock *x, float *y)
{
    const kind kd = kind_of(layout);
    const int halves = halves_of(kd);
    __m512 acc = _mm512_setzero_ps();

    for (int b = 0; b < n; b += 8, panel += rg_layout_step_bytes(layout)) {
        step_scales l;

        load_step_scales(&l, layout, panel);
#pragma GCC unroll 1
        for (int run = 0; run < 8; run++, x++) {
            __m512i s[2];

            run_sums(layout, run_q(layout, panel, run), x, s);
            if (halves == 1)
                s[0] = _mm512_add_epi32(s[0], s[1]);
#pragma GCC unroll 2
            for (int h = 0; h < halves; h++) {
                __m512 d, m = _mm512_setzero_ps();

                load_scaled(layout, &l, halves * run + h, &d, &m);
                acc = add_scaled(kd, acc, s[h], d, m, x, h);
            }
        }
    }
    _mm512_storeu_ps(y, acc);
}

#endif
