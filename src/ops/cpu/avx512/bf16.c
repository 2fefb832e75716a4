/* bf16.c -- the recipe `pairs` of BF16 weights: 16 rows of them by m rows of bf16 activations, with vdpbf16ps.
 *
 * A few rows take all of a panel with four chains at once, many a piece of two panels at a time; see tile_tmpl.h. */
#include "ops/cpu/avx512/avx512.h"
#include "ops/cpu/avx512/init.h"


enum {
    PANELS = 2,
    TILE = 12,    /* rows by two panels: 24 chains, 2 vectors of weights and x in 32 registers */
    FEW = 6,      /* rows: 24 chains and 4 pairs of columns of weights */
    PIECE = 512,  /* columns at most: 16 KiB of each panel */
    ROUNDED = 256, /* of f32, which are rounded together: 8 KiB of each panel */
    AHEAD = 8192, /* bytes prefetched ahead of a few rows' stream: the hardware stops at each page */
    CHAINS = 12,  /* of the peak */
};
#define TILES(DO)     DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12)
#define every4(x)     splat_at(x)
#define step(c, w, x) _mm512_dpbf16_ps(c, (__m512bh)(w), (__m512bh)(x))

#include "ops/cpu/probe_tmpl.h"
#include "ops/cpu/tile_tmpl.h"

/* All columns of a panel into n_rows sums; n_rows is a constant. */
ALWAYS_INLINE void add_columns(const rg_product *p, int n_rows)
{
    const uint8_t *w = p->panel;
    const uint16_t *xr[FEW];
    chains s[FEW];

#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++) {
        xr[r] = p->h + (size_t)r * p->ldx;
        clear(s[r]);
    }
    for (int n = p->cols; n > 0; n -= 8, w += 256) {
#pragma GCC unroll 6
        for (int r = 0; r < n_rows; r++)
            __asm__("" : "+r"(xr[r])); /* a pointer per row, not an index: the load stays one operation with its use */
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m512i wi = _mm512_loadu_si512(w + 64 * i);
            fetch_ahead(w + 64 * i, AHEAD);
#pragma GCC unroll 6
            for (int r = 0; r < n_rows; r++)
                s[r][i] = _mm512_dpbf16_ps(s[r][i], (__m512bh)wi, (__m512bh)two_of(xr[r] + 2 * i));
        }
#pragma GCC unroll 6
        for (int r = 0; r < n_rows; r++)
            xr[r] += 8;
    }
#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++)
        store_sum(p->y + (size_t)r * p->ldy, s[r]);
}

static void few_rows(const rg_product *p)
{
    for (int i = 0; i < p->n_panels; i++) {
        const rg_product q = part_of(p, i, 0, FEW);

        switch (q.m) {
        case 1: add_columns(&q, 1); break;
        case 2: add_columns(&q, 2); break;
        case 3: add_columns(&q, 3); break;
        case 4: add_columns(&q, 4); break;
        case 5: add_columns(&q, 5); break;
        default: add_columns(&q, FEW);
        }
    }
}

/* Up to PANELS panels by up to BATCH rows. */
static void in_pieces(const rg_product *p)
{
    const int piece = piece_of(p->cols, PIECE);
    chains c[BATCH][VECTORS];

    for (int k = 0; k < p->cols; k += piece) {
        const int n = p->cols - k < piece ? p->cols - k : piece;
        const size_t soon = k + n < p->cols ? 32 * (size_t)(k + n) : (size_t)p->n_panels * p->panel_bytes;

        add_piece((walk){ .w = p->panel + 32 * (size_t)k, .gap = p->panel_bytes, .n = n / 2, .n_panels = p->n_panels,
                          .first = k == 0, .x = (const uint8_t *)(p->h + k), .ldx = p->ldx * sizeof *p->h,
                          .y = k + n < p->cols ? NULL : p->y, .ldy = p->ldy, .soon = p->panel + soon,
                          .n_soon = n / 2, .soon_gap = p->panel_bytes }, p->m, c);
    }
}

static void pairs(const rg_product *p)
{
    const int near = rows_together((size_t)p->cols * sizeof *p->h, p->m), rows = near < BATCH ? near : BATCH;

    for (int row = 0; row < p->m; row += rows)
        for (int i = 0; i < p->n_panels; i += PANELS) {
            const rg_product q = panels_of(p, i, row, rows);
            if (q.m <= FEW)
                few_rows(&q);
            else
                in_pieces(&q);
        }
}

/* ---- weights of f32 ---------------------------------------------------------------------------------------------- */

/* n columns of a panel of f32, from the first on, to pairs of bf16. */
ALWAYS_INLINE void round_piece(const float *w, int n, uint8_t *to)
{
    const __m512i side_by_side = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                                  22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

    for (int k = 0; k < n; k += 2, w += 32, to += 64) {
        const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(w + 16), _mm512_loadu_ps(w));

        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(side_by_side, both));
    }
}

/* Up to PANELS panels by the rows of p. */
static void rounded_pieces(const rg_product *p)
{
    _Alignas(64) uint8_t room[PANELS][ROUNDED * 32];
    const int piece = piece_of(p->cols, ROUNDED);
    chains c[BATCH][VECTORS];

    for (int row = 0; row < p->m; row += BATCH) {
        const int here = p->m - row < BATCH ? p->m - row : BATCH;

        for (int k = 0, n; k < p->cols; k += n) {
            n = p->cols - k < piece ? p->cols - k : piece;
            const size_t soon = k + n < p->cols ? 64 * (size_t)(k + n) : (size_t)p->n_panels * p->panel_bytes;

            for (int i = 0; i < p->n_panels; i++)
                round_piece((const float *)(const void *)(p->panel + (size_t)i * p->panel_bytes) + 16 * (size_t)k, n,
                            room[i]);
            add_piece((walk){ .w = room[0], .gap = sizeof room[0], .n = n / 2, .n_panels = p->n_panels, .first = k == 0,
                              .x = (const uint8_t *)(p->h + (size_t)row * p->ldx + (size_t)k),
                              .ldx = p->ldx * sizeof *p->h,
                              .y = k + n < p->cols ? NULL : p->y + (size_t)row * p->ldy, .ldy = p->ldy,
                              .soon = p->panel + soon, .n_soon = row ? 0 : n, .soon_gap = p->panel_bytes },
                      here, c);
        }
    }
}

static void rounded(const rg_product *p)
{
    const int rows = rows_together((size_t)p->cols * sizeof *p->h, p->m);

    for (int row = 0; row < p->m; row += rows)
        for (int i = 0; i < p->n_panels; i += PANELS) {
            const rg_product q = panels_of(p, i, row, rows);

            rounded_pieces(&q);
        }
}

/* ---- peak -------------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE vec product_bf16(vec sum)
{
    const __m512i half = _mm512_set1_epi16(0x3f00);

    __asm__ volatile("vdpbf16ps %1, %1, %0" : "+v"(sum) : "v"(half));
    return sum;
}

PEAK(bf16, sizeof(vec) / sizeof(uint16_t))

void rg_cpu_init_avx512_bf16(rg_cpu *k)
{
    k->isa = "avx512_bf16";
    k->product[RG_BF16_PAIRS][RG_LAYOUT_BF16] = pairs;
    k->product[RG_BF16_ROUNDED][RG_LAYOUT_F32] = rounded;
    k->fast[RG_LAYOUT_BF16] = RG_BF16_PAIRS;
    k->peak_bf16 = peak_bf16;
}
