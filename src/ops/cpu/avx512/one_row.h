/* one_row.h -- one row of int8 activations by a panel of integer weights, a step at a time: what all runs of a step
 * share is made once, and scales of fewer than 8 bits become bytes 64 at a time.
 *
 * The bytes of a panel are read once each, as they lie, and each read fetches what is further on: a processor that sees
 * lines in their order fetches them early, and one whose scales are looked up again with every run does not.
 *
 * Codes of K2, K3, K4 and Q2 that lie in the upper four bits of a byte stay there: their sum is 16 times too large,
 * which one shift mends.  (|sum| <= 16 * 127 * 112 in K3: exact.)  Part of fast.c. */
#ifndef RG_OPS_CPU_AVX512_ONE_ROW_H
#define RG_OPS_CPU_AVX512_ONE_ROW_H

#include "ops/cpu/avx512/piece.h"

/* Scales of a step; m: minima, or zero points.  Where runs have scales of their own, by which d and m are multiplied,
 * they are bytes, [run][16]; of K2 s holds both, as rg_step_k2 does.  Elsewhere d and m are those of each half. */
typedef struct step_scales {
    __m512 d[2], m[2];
    _Alignas(64) int8_t s[16][16];
    _Alignas(64) uint8_t t[16][16];
} step_scales;

/* 64 bytes at p, which comes behind what was read last; by name, so that the compiler keeps the order. */
ALWAYS_INLINE __m512i read_on(const void *p)
{
    typedef struct { uint8_t b[64]; } line;
    __m512i v;

    fetch_ahead(p, AHEAD);
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

/* Runs have scales of their own. */
ALWAYS_INLINE bool has_run_scales(rg_layout layout)
{
    return rg_layout_step(layout) == 256 && layout != RG_LAYOUT_Q2;
}

/* What runs multiply their scales by, and then those. */
ALWAYS_INLINE void load_two_levels(step_scales *l, rg_layout layout, const uint8_t *step)
{
    const rg_step_k4 *k4 = (const void *)step;   /* in which s and t lie as in K5, d and e as in K2 and K5; */
    const rg_step_tk4 *tk4 = (const void *)step; /* d and s as in TK4H */

    fetch_ahead(step, AHEAD);
    l->d[0] = has_table(layout) ? _mm512_loadu_ps(tk4->d) : load_f16(k4->d);
    if (has_minimum(layout))
        l->m[0] = -load_f16(k4->e);
    switch (layout) {
    case RG_LAYOUT_K2: copy_on(l->s, ((const rg_step_k2 *)(const void *)step)->st, 4); break;
    case RG_LAYOUT_K3: k3_scales(l, (const void *)step); break;
    case RG_LAYOUT_K6: copy_on(l->s, ((const rg_step_k6 *)(const void *)step)->s, 4); break;
    case RG_LAYOUT_TK4: copy_on(l->s, tk4->s, 2); break;
    case RG_LAYOUT_TK4H: copy_on(l->s, tk4->s, 4); break;
    default: copy_on(l->s, k4->s, 2); copy_on(l->t, k4->t, 2);
    }
}

/* Load the scales of the step that starts with run b. */
ALWAYS_INLINE void load_step_scales(step_scales *l, rg_layout layout, const uint8_t *panel, int b)
{
    const uint8_t *step = run_step(layout, panel, b);

    if (has_run_scales(layout)) {
        load_two_levels(l, layout, step);
        return;
    }
    fetch_on(step, rg_layout_codes_at(layout));
#pragma GCC unroll 2
    for (int h = 0; h < n_halves_of(layout); h++) {
        const scales s = run_int8_scales(layout, panel, b, h, 0);

        l->d[h] = s.d;
        l->m[h] = s.m;
    }
}

/* The scales of half h of a run of the step (or of the whole run). */
ALWAYS_INLINE scales run_of_step(rg_layout layout, const step_scales *l, int run, int h)
{
    const int i = n_halves_of(layout) * run + h;
    scales r = { l->d[h], l->m[h] };

    if (!has_run_scales(layout))
        return r;
    if (layout == RG_LAYOUT_K2) { /* a lookup, which sees four bits of its index, makes them floats */
        const __m512 number = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i st = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)l->s[i]));

        r.d = l->d[0] * _mm512_permutexvar_ps(st, number);
        r.m = l->m[0] * _mm512_permutexvar_ps(_mm512_srli_epi32(st, 4), number);
        return r;
    }
    r.d = l->d[0] * load_i8(l->s[i]);
    if (has_minimum(layout))
        r.m = l->m[0] * load_u8(l->t[i]);
    return r;
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

/* Dot products of both halves of a run to their sums. */
ALWAYS_INLINE void add_paired(rg_layout layout, const __m512i *plane, const rg_xblock *x, __m512i *s)
{
    const int mask = (1 << rg_layout_bits(layout)) - 1;
    __m512i pair[4], upper = _mm512_setzero_si512();

    paired_codes(layout, plane, pair);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        s[0] = dot(s[0], _mm512_and_si512(pair[i], _mm512_set1_epi8((char)mask)), x->q + 4 * i);
        upper = dot(upper, _mm512_and_si512(pair[i], _mm512_set1_epi8((char)(mask << 4))), x->q + 16 + 4 * i);
    }
    s[1] = _mm512_add_epi32(s[1], _mm512_srai_epi32(upper, 4));
}

ALWAYS_INLINE void add_plain(rg_layout layout, const book *t, const __m512i *plane, const rg_xblock *x, __m512i *s)
{
    const int low = rg_layout_low_bits(layout), high = rg_layout_bits(layout) - low;

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        __m512i codes = joined_codes(layout, plane[i % low], plane[high ? low + i % high : 0], i);

        if (has_table(layout))
            codes = _mm512_shuffle_epi8(t->byte, codes);
        s[i / 4] = dot(s[i / 4], codes, x->q + 4 * i);
    }
}

/* The sums of a run: of its halves, or of all of it in s[0].  z: the zero points. */
ALWAYS_INLINE void run_sums(rg_layout layout, const book *t, const uint8_t *q, __m512 z, const rg_xblock *x, __m512i *s)
{
    const bool paired = rg_layout_low_bits(layout) == 2 || layout == RG_LAYOUT_K4;
    const kind kd = kind_of(layout);
    __m512i plane[8], first[2] = { start(kd, z, x, 0), _mm512_setzero_si512() };

    if (halves_of(kd) == 2)
        first[1] = start(kd, z, x, 1);
#pragma GCC unroll 8
    for (int i = 0; i < rg_layout_bits(layout); i++)
        plane[i] = read_on(q + 64 * i);
    s[0] = first[0];
    s[1] = first[1];
    if (paired)
        add_paired(layout, plane, x, s);
    else
        add_plain(layout, t, plane, x, s);
    if (halves_of(kd) == 1)
        s[0] = _mm512_add_epi32(s[0], s[1]);
}

/* n runs, a multiple of those of a step. */
ALWAYS_INLINE void one_row(rg_layout layout, const uint8_t *panel, int n, const rg_xblock *x, float *y)
{
    const kind kd = kind_of(layout);
    const book t = load_book(layout, panel);
    __m512 acc = _mm512_setzero_ps();

    fetch_on(panel, rg_layout_head_bytes(layout));
    for (int b = 0; b < n; b += rg_layout_step(layout) / 32) {
        step_scales l;

        load_step_scales(&l, layout, panel, b);
#pragma GCC unroll 1
        for (int run = 0; run < rg_layout_step(layout) / 32; run++, x++) {
            __m512i s[2];

            run_sums(layout, &t, run_q(layout, panel, b) + 64 * rg_layout_bits(layout) * run, l.m[0], x, s);
#pragma GCC unroll 2
            for (int h = 0; h < halves_of(kd); h++) {
                const scales r = run_of_step(layout, &l, run, h);

                acc = add_scaled(kd, acc, s[h], r.d, r.m, x, h);
            }
        }
    }
    _mm512_storeu_ps(y, acc);
}

#endif
