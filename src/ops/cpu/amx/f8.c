/* f8.c -- the recipe `tiles` of F8 weights: codes of e4m3 are decoded to tiles of bf16, in L1 or near it.
 *
 * Two lookups give the bytes of each value (e4m3.h), of codes that one permutation has put in pairs of columns.  Up to
 * 16 rows meet a step of two panels at once, and so decoding is nearly all that one row takes; more rows share a piece
 * of several panels.  At a step's end its sum takes the scale, behind the next step's products: what tiles store is
 * not read back at once. */
#include "ops/cpu/amx/bf16.h"

#include "ops/cpu/avx512/e4m3.h"

enum {
    STEP = 128,   /* columns */
    FEW = 16,     /* rows of one tile */
    PANELS = 8,   /* that are decoded at once, of many rows; of few 2, */
    STEPS = 2,    /* in a piece; of few rows 1: 8 KiB */
    AHEAD = 4096, /* bytes prefetched ahead of a panel's stream: the hardware stops at each page */
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
    bool first;
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
            to->d[j][s] = _mm512_loadu_ps(step->d);
            decode(to->w[j][s], step);
        }
}

static void fold(const sums *s)
{
    for (int r = 0; r < s->m; r++)
        for (int i = 0; i < s->n; i++) {
            float *y = s->y + (size_t)r * s->ldy + 16 * i;
            const __m512 acc = s->first ? _mm512_setzero_ps() : _mm512_loadu_ps(y);
            _mm512_storeu_ps(y, _mm512_fmadd_ps(_mm512_load_ps(s->sum[r] + 16 * i), s->d[i], acc));
        }
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
        now->first = k == 0;
        now->d[0] = w->d[j][s];
        now->d[1] = w->d[j + e.two][s];
        clear_sums();
        add_steps(e, STEP / 32, rows->h + k, rows->ldx * sizeof *rows->h, w->w[j][s], sizeof w->w[j]);
        store_sums(e, now->sum[0], sizeof now->sum[0]);
        t->now = !t->now;
        fold(&t->of[t->now]);
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

    t.of[1].m = t.now = 0;
    for (int i = 0; i < p->n_panels; i += n_panels)
        for (int k = 0; k < p->cols; k += n_steps * STEP) {
            rg_product all = *p, rows;

            decode_piece(&w, p, i, k, n_panels, n_steps);
            all.y += 16 * i;
            for (int row = 0; next_rows(&rows, &all, &row, &laid_out);)
                add_rows(&t, &w, &rows, k);
        }
    fold(&t.of[!t.now]);
    _tile_release();
}

void rg_amx_init_f8(rg_cpu *k)
{
    make_e4m3();
    k->product[RG_BF16_TILES][RG_LAYOUT_F8] = tiles_f8;
    k->fast[RG_LAYOUT_F8] = RG_BF16_TILES;
}
