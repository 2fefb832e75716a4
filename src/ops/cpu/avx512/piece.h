/* piece.h -- how a run of integer weights becomes part of a sum, and a piece of a panel unpacked for many rows.
 *
 * Shared by the VNNI and the tile kernels of the fast recipe. */
#ifndef RG_OPS_CPU_AVX512_PIECE_H
#define RG_OPS_CPU_AVX512_PIECE_H

#include "ops/cpu/avx512/avx512.h"

enum { RUNS = 16 }; /* per piece: 8 KiB of bytes and 1 to 4 KiB of scales, a third of L1 */

/* sum + w . four bytes at x, in every lane.  By name, because gcc does not fold the broadcast into the operand. */
ALWAYS_INLINE __m512i dot(__m512i sum, __m512i w, const int8_t *x)
{
    typedef struct { int8_t b[4]; } four;

    __asm__ volatile("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const four *)(const void *)x));
    return sum;
}

/* How far ahead of a panel's stream memory is read: the hardware stops at each page. */
enum { AHEAD = 4096 };

/* What a stream will read, which is now at the n bytes at p, on its way from memory. */
ALWAYS_INLINE void fetch_on(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 64)
        fetch_ahead(p + i, AHEAD);
}

/* How a run becomes part of the result. */
typedef enum kind {
    SCALE_1,     /* Q2: offset 1, scale */
    SCALE_4,     /* Q4: offset 8, scale */
    SCALE_5,     /* Q5: offset 16, scale */
    SCALE_8,     /* Q8, T4, T4E, T4F, TK4: offset 128, scale */
    HALVES_3,    /* K3: offset 4, scale per 16 columns */
    HALVES_6,    /* K6: offset 32, the same */
    HALVES_8,    /* T4N, TK4H: offset 128, the same */
    ZERO,        /* Z4, Z4W, Z8, Z8W: scale and zero point */
    MINIMUM,     /* Q4M, Q5M, K4, K5: no offset, scale and minimum */
    HALF_MINIMA, /* K2: no offset, scale and minimum per 16 columns */
} kind;

ALWAYS_INLINE kind kind_of(rg_layout layout)
{
    if (has_zero(layout))
        return ZERO;
    switch (offset_of(layout)) {
    case 0: return n_halves_of(layout) == 2 ? HALF_MINIMA : MINIMUM;
    case 1: return SCALE_1;
    case 4: return HALVES_3;
    case 8: return SCALE_4;
    case 16: return SCALE_5;
    case 32: return HALVES_6;
    default: return n_halves_of(layout) == 2 ? HALVES_8 : SCALE_8;
    }
}

/* Sums per run. */
ALWAYS_INLINE int halves_of(kind kd)
{
    return kd == HALVES_3 || kd == HALVES_6 || kd == HALVES_8 || kd == HALF_MINIMA ? 2 : 1;
}

/* There is a second vector of scales: a minimum, or a zero point. */
ALWAYS_INLINE bool has_second(kind kd)
{
    return kd == HALF_MINIMA || kd == MINIMUM || kd == ZERO;
}

/* Where the sum of half h of a run starts; z: the zero points. */
ALWAYS_INLINE __m512i start(kind kd, __m512 z, const rg_xblock *x, int h)
{
    switch (kd) {
    case SCALE_1: return _mm512_set1_epi32(x->neg8 >> 3); /* exact: it is -8 times the sum of x */
    case SCALE_4: return _mm512_set1_epi32(x->neg8);
    case SCALE_5: return _mm512_set1_epi32(x->neg8 * 2);
    case SCALE_8: return _mm512_set1_epi32(x->neg128);
    case HALVES_3: return _mm512_set1_epi32(x->neg128h[h] >> 5); /* likewise */
    case HALVES_6: return _mm512_set1_epi32(x->neg128h[h] >> 2);
    case HALVES_8: return _mm512_set1_epi32(x->neg128h[h]);
    case ZERO: return _mm512_srai_epi32(_mm512_mullo_epi32(_mm512_cvtps_epi32(z), _mm512_set1_epi32(x->neg8)), 3);
    default: return _mm512_setzero_si512();
    }
}

ALWAYS_INLINE __m512 add_run(__m512 acc, __m512i sum, __m512 d, float xd)
{
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, _mm512_set1_ps(xd)), acc);
}

/* The sum of half h of a run, with its scales, into a result. */
ALWAYS_INLINE __m512 add_scaled(kind kd, __m512 acc, __m512i sum, __m512 d, __m512 m, const rg_xblock *x, int h)
{
    acc = add_run(acc, sum, d, x->d);
    if (kd == MINIMUM || kd == HALF_MINIMA)
        acc = _mm512_fmadd_ps(m, _mm512_set1_ps(kd == HALF_MINIMA ? x->sh[h] : x->s), acc);
    return acc;
}

/* RUNS runs of a panel; d and m (or zero points) per half. */
typedef struct piece {
    struct {
        _Alignas(64) uint8_t q[8][64];
        float d[2][16], m[2][16];
    } run[RUNS];
} piece;

ALWAYS_INLINE void unpack(piece *p, rg_layout layout, const uint8_t *panel, int first, int n)
{
    const kind kd = kind_of(layout);
    const book t = load_book(layout, panel);

    for (int b = 0; b < n; b++) {
        rg_weight_run r;
        load_run(&r, layout, panel, &t, first + b);
        for (int i = 0; i < 8; i++)
            _mm512_store_si512(p->run[b].q[i], r.w[i]);
        for (int h = 0; h < halves_of(kd); h++) {
            _mm512_store_ps(p->run[b].d[h], r.s[h].d);
            if (has_second(kd))
                _mm512_store_ps(p->run[b].m[h], r.s[h].m);
        }
    }
}

#endif
