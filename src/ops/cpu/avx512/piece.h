/* piece.h -- how a run of integer weights becomes part of a sum, and a piece of a panel unpacked for many rows.
 *
 * Shared by the VNNI and the tile kernels of the fast recipe. */
#ifndef RG_OPS_CPU_AVX512_PIECE_H
#define RG_OPS_CPU_AVX512_PIECE_H

#include "ops/cpu/avx512/avx512.h"

enum { RUNS = 16 }; /* per piece: 8 KiB of bytes and 1 to 4 KiB of scales, a third of L1 */

/* How a run becomes part of the result. */
typedef enum kind {
    SCALE_4, /* Q4: offset 8, scale */
    SCALE_8, /* Q8: offset 128, scale */
    MINIMUM, /* Q4M, Q8M, K4: no offset, scale and minimum */
    HALVES,  /* K8: offset 128, scale and minimum per 16 columns */
} kind;

ALWAYS_INLINE kind kind_of(rg_layout layout)
{
    switch (layout) {
    case RG_LAYOUT_Q4: return SCALE_4;
    case RG_LAYOUT_Q8: return SCALE_8;
    case RG_LAYOUT_K8: return HALVES;
    default: return MINIMUM;
    }
}

/* Where the sum of half h of a run starts. */
ALWAYS_INLINE __m512i start(kind kd, const rg_xblock *x, int h)
{
    switch (kd) {
    case SCALE_4: return _mm512_set1_epi32(x->neg8);
    case SCALE_8: return _mm512_set1_epi32(x->neg128);
    case HALVES: return _mm512_set1_epi32(x->neg128h[h]);
    default: return _mm512_setzero_si512();
    }
}

ALWAYS_INLINE __m512 add_run(__m512 acc, __m512i sum, __m512 d, float xd)
{
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(d, _mm512_set1_ps(xd)), acc);
}

/* RUNS runs of a panel; d and m per half. */
typedef struct piece {
    struct {
        _Alignas(64) uint8_t q[8][64];
        float d[2][16], m[2][16];
    } run[RUNS];
} piece;

ALWAYS_INLINE void unpack(piece *p, rg_layout layout, const uint8_t *panel, int first, int n)
{
    const kind kd = kind_of(layout);

    for (int b = 0; b < n; b++) {
        rg_weight_run r;
        load_run(&r, layout, panel, first + b);
        for (int i = 0; i < 8; i++)
            _mm512_store_si512(p->run[b].q[i], r.w[i]);
        for (int h = 0; h < (kd == HALVES ? 2 : 1); h++) {
            _mm512_store_ps(p->run[b].d[h], r.s[h].d);
            if (kd == MINIMUM || kd == HALVES)
                _mm512_store_ps(p->run[b].m[h], r.s[h].m);
        }
    }
}

#endif
