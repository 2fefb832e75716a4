/* one_row.h -- one row of int8 activations by the layouts of two levels of scales, K2 to K6, a step of 256 columns at a
 * time: what all of its runs share is made once, and scales of fewer than 8 bits become bytes 64 at a time.
 *
 * Codes that lie in the upper four bits of a byte stay there: their sum is 16 times too large, which one shift mends.
 * (|sum| <= 16 * 127 * 112 in K3: exact.)  Part of fast.c. */
#ifndef RG_OPS_CPU_AVX512_ONE_ROW_H
#define RG_OPS_CPU_AVX512_ONE_ROW_H

#include "ops/cpu/avx512/piece.h"

/* Scales and minima of a step: those of the runs as bytes, [run][16]. */
typedef struct step_scales {
    __m512 d, minus_e;
    const int8_t (*s)[16];
    const uint8_t (*t)[16];
    _Alignas(64) int8_t s_room[16][16];
    _Alignas(64) uint8_t t_room[16][16];
} step_scales;

ALWAYS_INLINE void put_lane(int8_t *to, __m128i v)
{
    _mm_store_si128((__m128i *)(void *)to, v);
}

/* Four runs of each half at a time: four bits of low, above them two of high, and 32 less. */
ALWAYS_INLINE void k3_scales(step_scales *l, const rg_step_k3 *k)
{
    const __m512i high = _mm512_loadu_si512(k->high), four = _mm512_set1_epi8(15), six = _mm512_set1_epi8(63);

#pragma GCC unroll 2
    for (int part = 0; part < 2; part++) {
        const __m512i low = _mm512_loadu_si512(k->low[4 * part]);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m512i upper = shifted(high, 4 * part + 2 * h - 4);
            __m512i s = _mm512_ternarylogic_epi32(four, shifted(low, 4 * h), upper, 0xca);

            s = _mm512_sub_epi8(_mm512_and_si512(s, six), _mm512_set1_epi8(32));
            put_lane(l->s_room[8 * part + h], _mm512_castsi512_si128(s));
            put_lane(l->s_room[8 * part + h + 2], _mm512_extracti32x4_epi32(s, 1));
            put_lane(l->s_room[8 * part + h + 4], _mm512_extracti32x4_epi32(s, 2));
            put_lane(l->s_room[8 * part + h + 6], _mm512_extracti32x4_epi32(s, 3));
        }
    }
}

ALWAYS_INLINE void k2_scales(step_scales *l, const rg_step_k2 *k)
{
    const __m512i four = _mm512_set1_epi8(15);

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512i st = _mm512_loadu_si512(k->st[4 * i]);

        _mm512_store_si512(l->s_room[4 * i], _mm512_and_si512(st, four));
        _mm512_store_si512(l->t_room[4 * i], _mm512_and_si512(_mm512_srli_epi16(st, 4), four));
    }
}

ALWAYS_INLINE void load_step_scales(step_scales *l, rg_layout layout, const uint8_t *step)
{
    const rg_step_k4 *k4 = (const void *)step; /* in which s and t lie as in K5, d and e as in all that have them */

    l->d = load_f16(k4->d);
    if (has_minimum(layout))
        l->minus_e = -load_f16(k4->e);
    l->s = (const int8_t(*)[16])l->s_room;
    l->t = (const uint8_t(*)[16])l->t_room;
    if (layout == RG_LAYOUT_K2) {
        k2_scales(l, (const void *)step);
    } else if (layout == RG_LAYOUT_K3) {
        k3_scales(l, (const void *)step);
    } else if (layout == RG_LAYOUT_K6) {
        l->s = ((const rg_step_k6 *)(const void *)step)->s;
    } else {
        l->s = k4->s;
        l->t = k4->t;
    }
}

/* Groups of a run in the lower and in the upper four bits of bytes: group i and group 4 + i. */
ALWAYS_INLINE void paired_codes(rg_layout layout, const uint8_t *q, __m512i *pair)
{
    const __m512i a = _mm512_loadu_si512(q), b = _mm512_loadu_si512(q + 64);

    if (layout == RG_LAYOUT_K4) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            pair[i] = _mm512_loadu_si512(q + 64 * i);
        return;
    }
    pair[0] = a;
    pair[1] = b;
    pair[2] = _mm512_srli_epi16(a, 2);
    pair[3] = _mm512_srli_epi16(b, 2);
    if (layout == RG_LAYOUT_K3) { /* bit i of the other plane, and bit 4 + i, above them */
        const __m512i high = _mm512_loadu_si512(q + 128);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            pair[i] = _mm512_ternarylogic_epi32(_mm512_set1_epi8(0x33), pair[i], shifted(high, i - 2), 0xca);
    }
}

/* Sums of both halves of a run of which paired_codes has the codes, without what their offset owes. */
ALWAYS_INLINE void paired_sums(rg_layout layout, const uint8_t *q, const rg_xblock *x, __m512i *s)
{
    const int mask = (1 << rg_layout_bits(layout)) - 1;
    __m512i pair[4];

    paired_codes(layout, q, pair);
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
    const kind kd = kind_of(layout);

    if (paired) {
        paired_sums(layout, q, x, s);
        if (offset_of(layout)) {
            s[0] = _mm512_add_epi32(s[0], start(kd, _mm512_setzero_ps(), x, 0));
            s[1] = _mm512_add_epi32(s[1], start(kd, _mm512_setzero_ps(), x, 1));
        }
        return;
    }
    s[0] = start(kd, _mm512_setzero_ps(), x, 0);
    s[1] = offset_of(layout) ? start(kd, _mm512_setzero_ps(), x, 1) : _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        s[0] = dot(s[0], run_codes(layout, q, i, 0), x->q + 4 * i);
        s[1] = dot(s[1], run_codes(layout, q, 4 + i, 0), x->q + 16 + 4 * i);
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
#pragma GCC unroll 8
        for (int run = 0; run < 8; run++, x++) {
            __m512i s[2];

            prefetch(panel + AHEAD + (size_t)run * run_bytes(layout), run_bytes(layout));
            run_sums(layout, run_q(layout, panel, run), x, s);
            if (halves == 1)
                s[0] = _mm512_add_epi32(s[0], s[1]);
#pragma GCC unroll 2
            for (int h = 0; h < halves; h++) {
                const int i = halves * run + h;
                const __m512 d = l.d * load_i8(l.s[i]);
                const __m512 m = has_second(kd) ? _mm512_mul_ps(l.minus_e, load_u8(l.t[i])) : d;

                acc = add_scaled(kd, acc, s[h], d, m, x, h);
            }
        }
    }
    _mm512_storeu_ps(y, acc);
}

#endif
