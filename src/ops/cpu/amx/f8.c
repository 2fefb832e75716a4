/* f8.c -- the recipe `tiles` of F8 weights: codes of e4m3 are decoded to tiles of bf16, in L1 or near it.
 *
 * Two lookups give the bytes of each value (e4m3.h), of codes that one permutation has put in pairs of columns.  Up to
 * 16 rows meet a step of two panels at once, and decoding is nearly all that one row takes; more rows share a piece of
 * several panels.  The sums of a step take its scale, and join those in y, between the products of the next step: so
 * nobody waits for what tiles have stored. */
#include <string.h>

#include "ops/cpu/amx/bf16.h"

#include "ops/cpu/avx512/e4m3.h"

enum {
    STEP = 128,   /* columns */
    PART = 8,     /* rows that take their scale between two steps of 32 columns */
    FEW = 16,     /* rows of one tile */
    PANELS = 8,   /* that are decoded at once, of many rows; of few 2, */
    STEPS = 2,    /* in a piece, 64 KiB; of few rows 1, 8 KiB */
    AHEAD = 2048, /* bytes prefetched ahead of a panel's stream: the hardware stops at each page */
};

/* A piece of some panels. */
typedef struct piece {
    _Alignas(64) uint8_t w[PANELS][STEPS][STEP * 32];
    __m512 d[PANELS][STEPS];
    int n_panels, n_steps;
} piece;

/* Sums of one step by m rows, those of n panels side by side, their scales, and where they belong. */
typedef struct sums {
    _Alignas(64) float sum[32][32];
    __m512 d[2];
    float *y;
    size_t ldy;
    int n, m;
} sums;

/* What is being summed, and what was before. */
typedef struct two_sums {
    sums of[2];
    int now;
} two_sums;

/* Not inlined: its tables stay in registers. */
static __attribute__((noinline)) void decode(uint8_t *to, const rg_step_f8 *s)
{
    const lookup t = load_e4m3_lookup();
    const __m512i four = _mm512_setr_epi32(0, 2, 32, 34, 4, 6, 36, 38, 8, 10, 40, 42, 12, 14, 44, 46);
    const __m512i order = _mm512_add_epi8(_mm512_mullo_epi32(four, _mm512_set1_epi32(0x01010101)),
                                          _mm512_set1_epi32(0x11011000)); /* two rows of two columns */

    __builtin_prefetch((const uint8_t *)s->d + AHEAD);
#pragma GCC unroll 4
    for (int k = 0; k < STEP; k += 4) {
        __m512i lows, highs;

        __builtin_prefetch(s->q[k] + AHEAD);
        look_up_codes(&t, _mm512_permutexvar_epi8(order, _mm512_loadu_si512(s->q[k])), &lows, &highs);
        _mm512_store_si512(to + 32 * k, _mm512_unpacklo_epi8(lows, highs));
        _mm512_store_si512(to + 32 * k + 64, _mm512_unpackhi_epi8(lows, highs));
    }
}

/* Panels i .. of p from column k on. */
static void decode_piece(piece *to, const rg_product *p, int i, int k, int n_panels, int n_steps)
{
    to->n_panels = p->n_panels - i < n_panels ? p->n_panels - i : n_panels;
    to->n_steps = (p->cols - k) / STEP < n_steps ? (p->cols - k) / STEP : n_steps;
    for (int j = 0; j < to->n_panels; j++)
        for (int s = 0; s < to->n_steps; s++) {
            const rg_step_f8 *step = (const void *)(p->panel + (size_t)(i + j) * p->panel_bytes);

            step += k / STEP + s;
            to->d[j][s] = load_f32(step->d);
            decode(to->w[j][s], step);
        }
}

/* The q-th part of the rows of s to where they belong; n, their panels, is a constant. */
ALWAYS_INLINE void fold_part(const sums *s, int q, int n)
{
    const int end = s->m < (q + 1) * PART ? s->m : (q + 1) * PART;
    const float *sum = s->sum[q * PART];
    float *y = s->y + (size_t)(q * PART) * s->ldy;
    __m512 d[2];

    for (int i = 0; i < n; i++)
        d[i] = s->d[i];
    for (int r = q * PART; r < end; r++, y += s->ldy, sum += 32)
#pragma GCC unroll 2
        for (int i = 0; i < n; i++)
            store_f32(y + 16 * i, _mm512_fmadd_ps(load_f32(sum + 16 * i), d[i], load_f32(y + 16 * i)));
}

ALWAYS_INLINE void fold(const sums *s, int q)
{
    if (s->n == 2)
        fold_part(s, q, 2);
    else
        fold_part(s, q, 1);
}

/* Panel j of a piece and, maybe, the next one by rows, from column k on. */
ALWAYS_INLINE void add_piece(extent e, two_sums *t, const piece *w, int j, const rg_product *rows, int k)
{
    for (int s = 0; s < w->n_steps; s++, k += STEP) {
        sums *now = &t->of[t->now];

        now->y = rows->y + 16 * j;
        now->ldy = rows->ldy;
        now->n = 1 + e.two;
        now->m = rows->m;
        now->d[0] = w->d[j][s];
        now->d[1] = w->d[j + e.two][s];
        clear_sums();
        for (int q = 0; q < STEP / 32; q++) {
            add_steps(e, 1, rows->h + k + 32 * q, rows->ldx * sizeof *rows->h, w->w[j][s] + 1024 * q, sizeof w->w[j],
                      &(coming){ 0 });
            fold(&t->of[!t->now], q);
        }
        store_sums(e, now->sum[0], sizeof now->sum[0]);
        t->now = !t->now;
    }
}

static void add_rows(two_sums *t, const piece *w, const rg_product *rows, int k)
{
    for (int j = 0; j < w->n_panels; j += 2) {
        const bool two = j + 1 < w->n_panels;

        if (rows->m > 16 && two)
            add_piece((extent){ true, true }, t, w, j, rows, k);
        else if (rows->m > 16)
            add_piece((extent){ true, false }, t, w, j, rows, k);
        else if (two)
            add_piece((extent){ false, true }, t, w, j, rows, k);
        else
            add_piece((extent){ false, false }, t, w, j, rows, k);
    }
}

static void tiles_f8(const rg_product *p)
{
    const int n_panels = p->m > FEW ? PANELS : 2, n_steps = p->m > FEW ? STEPS : 1;
    int laid_out = 0;
    two_sums t;
    piece w;

    t.now = t.of[1].m = t.of[1].n = 0; /* nothing was before */
    for (int r = 0; r < p->m; r++)
        memset(p->y + (size_t)r * p->ldy, 0, 16 * (size_t)p->n_panels * sizeof *p->y);
    for (int i = 0; i < p->n_panels; i += n_panels)
        for (int k = 0; k < p->cols; k += n_steps * STEP) {
            rg_product all = *p, rows;

            decode_piece(&w, p, i, k, n_panels, n_steps);
            all.y += 16 * i;
            for (int row = 0; next_rows(&rows, &all, &row, &laid_out);)
                add_rows(&t, &w, &rows, k);
        }
    for (int q = 0; q < STEP / 32; q++)
        fold(&t.of[!t.now], q);
    _tile_release();
}

void rg_amx_init_f8(rg_cpu *k)
{
    make_e4m3();
    k->product[RG_BF16_TILES][RG_LAYOUT_F8] = tiles_f8;
    k->fast[RG_LAYOUT_F8] = RG_BF16_TILES;
}
