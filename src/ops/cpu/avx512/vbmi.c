/* vbmi.c -- a few rows by weights of F8 in the exact recipe, where the processor looks up bytes in a table of 128.
 *
 * 64 codes are four columns of 16 rows, and column k goes into chain k % 4: the four chains of a row lie in the four
 * lanes of 128 bits of one register, so that no value has to change its lane. */
#include "ops/cpu/avx512/e4m3.h"
#include "ops/cpu/avx512/init.h"

enum {
    ROWS = 4,     /* of x together: 16 sums, 4 scales, 4 values */
    AHEAD = 4096, /* bytes prefetched ahead of a panel's stream: the hardware stops at each page */
};

/* What rows and layouts that this file has nothing for use; set once, when the table is built. */
static rg_cpu below;

/* Rows 0 2 4 6, 1 3 5 7, 8 10 12 14 and 9 11 13 15: the order in which values come apart. */
ALWAYS_INLINE void take_apart(const float *d, __m512 *to)
{
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6);
    const __m512 all = _mm512_loadu_ps(d);

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        to[i] = _mm512_permutexvar_ps(_mm512_add_epi32(evens, _mm512_set1_epi32(i / 2 * 8 + i % 2)), all);
}

/* Four columns at q as f32, in that order. */
ALWAYS_INLINE void decode(const lookup *t, const uint8_t *q, const __m512 *d, __m512 *w)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    __m512i lows, highs, first, second;

    look_up(t, q, &lows, &highs);
    first = _mm512_unpacklo_epi8(lows, highs);
    second = _mm512_unpackhi_epi8(lows, highs);
    w[0] = _mm512_mul_ps(d[0], _mm512_castsi512_ps(_mm512_slli_epi32(first, 16)));
    w[1] = _mm512_mul_ps(d[1], _mm512_castsi512_ps(_mm512_and_si512(first, upper)));
    w[2] = _mm512_mul_ps(d[2], _mm512_castsi512_ps(_mm512_slli_epi32(second, 16)));
    w[3] = _mm512_mul_ps(d[3], _mm512_castsi512_ps(_mm512_and_si512(second, upper)));
}

/* Each of four neighbours in a lane of 128 bits. */
ALWAYS_INLINE __m512 four_lanes(const float *x)
{
    const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);

    return _mm512_permutexvar_ps(lane, _mm512_castps128_ps512(_mm_loadu_ps(x)));
}

ALWAYS_INLINE void store_sums(float *y, const __m512 *sum)
{
    for (int i = 0; i < 4; i++) {
        const __m128 one = _mm_add_ps(_mm512_extractf32x4_ps(sum[i], 0), _mm512_extractf32x4_ps(sum[i], 1));
        const __m128 two = _mm_add_ps(_mm512_extractf32x4_ps(sum[i], 2), _mm512_extractf32x4_ps(sum[i], 3));
        float four[4];

        _mm_storeu_ps(four, _mm_add_ps(one, two));
        for (int k = 0; k < 4; k++)
            y[i / 2 * 8 + i % 2 + 2 * k] = four[k];
    }
}

/* A panel by n_rows rows, a constant. */
ALWAYS_INLINE void panel_rows(const rg_product *p, int n_rows)
{
    const lookup t = load_e4m3_lookup();
    const uint8_t *step = p->panel;
    const float *x[ROWS];
    __m512 sum[ROWS][4];

#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++) {
        x[r] = p->x + (size_t)r * p->ldx;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum[r][i] = _mm512_setzero_ps();
    }
    for (int first = 0; first < p->cols; first += 128, step += sizeof(rg_step_f8)) {
        const rg_step_f8 *s = (const void *)step;
        __m512 d[4], w[4];

        take_apart(s->d, d);
        _mm_prefetch((const char *)step + AHEAD, _MM_HINT_T0);
        for (int k = 0; k < 128; k += 4) {
            _mm_prefetch((const char *)s->q[k] + AHEAD, _MM_HINT_T0);
            decode(&t, s->q[k], d, w);
#pragma GCC unroll 4
            for (int r = 0; r < n_rows; r++) {
                const __m512 xr = four_lanes(x[r] + k);
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++)
                    sum[r][i] = _mm512_fmadd_ps(w[i], xr, sum[r][i]);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++)
            x[r] += 128;
    }
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
        store_sums(p->y + (size_t)r * p->ldy, sum[r]);
}

static void exact_f8(const rg_product *p)
{
    if (p->m > 2 * ROWS) {
        below.product[RG_EXACT][RG_LAYOUT_F8](p);
        return;
    }
    for (int i = 0; i < p->n_panels; i++)
        for (int row = 0; row < p->m; row += ROWS) {
            const rg_product q = part_of(p, i, row, ROWS);

            switch (q.m) {
            case 1: panel_rows(&q, 1); break;
            case 2: panel_rows(&q, 2); break;
            case 3: panel_rows(&q, 3); break;
            default: panel_rows(&q, ROWS);
            }
        }
}

void rg_cpu_add_avx512_vbmi(rg_cpu *k)
{
    make_e4m3();
    below = *k;
    k->product[RG_EXACT][RG_LAYOUT_F8] = exact_f8;
    rg_avx512_add_unfold_vbmi(k);
}
