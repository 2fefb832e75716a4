/* exact.c -- the exact recipe: f32 weights (decoded where they are not) by f32 activations.
 *
 * A few rows read a float layout where it lies, four chains at once.  Many rows, and integer layouts always, take a
 * piece of two panels at a time, decoded into L1 (f32 needs no decoding); see tile_tmpl.h. */
#include "ops/cpu/avx512/avx512.h"

enum {
    PANELS = 2,
    TILE = 12, /* rows by two panels: 24 chains, 2 vectors of weights and x in 32 registers */
    FEW = 6,   /* rows: 24 chains and 4 columns of weights */
};
#define TILES(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12)

#include "ops/cpu/exact_tmpl.h"

/* All columns of a panel into n_rows sums; layout and n_rows are constants. */
ALWAYS_INLINE void add_columns(rg_layout layout, const rg_product *p, int n_rows)
{
    /* Measured: one row of F16 gains a tenth of its speed by being fetched further ahead, others lose some. */
    const size_t ahead = layout == RG_LAYOUT_F16 && n_rows == 1 ? 2 * AHEAD : AHEAD;
    const uint8_t *w = p->panel;
    const float *xr[FEW];
    chains s[FEW];
    int k = 0;

#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++) {
        xr[r] = p->x + (size_t)r * p->ldx;
        clear(s[r]);
    }
    for (; k + 4 <= p->cols; k += 4) {
#pragma GCC unroll 6
        for (int r = 0; r < n_rows; r++)
            __asm__("" : "+r"(xr[r])); /* a pointer per row, not an index: the load stays one operation with its use */
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const uint8_t *at = w + (size_t)(k + i) * column_bytes(layout);
            __m512 wi = column(layout, w, p->column_bytes, (size_t)(k + i), 0);

            if (!is_wide_layout(layout) && (size_t)i * column_bytes(layout) % 64 == 0) {
                __asm__("" : "+v"(wi), "+r"(at)); /* read first, then fetched: in other orders a tenth slower */
                fetch_ahead(at, ahead);
            }
#pragma GCC unroll 6
            for (int r = 0; r < n_rows; r++)
                s[r][i] = _mm512_fmadd_ps(wi, _mm512_set1_ps(xr[r][i]), s[r][i]);
        }
#pragma GCC unroll 6
        for (int r = 0; r < n_rows; r++)
            xr[r] += 4;
    }
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
        if (k + i < p->cols) {
            const __m512 wi = any_column(layout, w, p->column_bytes, p->cols, k + i, 0);
#pragma GCC unroll 6
            for (int r = 0; r < n_rows; r++)
                s[r][i] = _mm512_fmadd_ps(wi, _mm512_set1_ps(xr[r][i]), s[r][i]);
        }
#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++)
        store_sum(p->y + (size_t)r * p->ldy, s[r]);
}

ALWAYS_INLINE bool few_rows(rg_layout layout, const rg_product *p)
{
    for (int i = 0; i < p->n_panels && p->m <= FEW; i++) {
        const rg_product q = part_of(p, i, 0, FEW);

        switch (q.m) {
        case 1: add_columns(layout, &q, 1); break;
        case 2: add_columns(layout, &q, 2); break;
        case 3: add_columns(layout, &q, 3); break;
        case 4: add_columns(layout, &q, 4); break;
        case 5: add_columns(layout, &q, 5); break;
        default: add_columns(layout, &q, FEW);
        }
    }
    return p->m <= FEW;
}

void rg_avx512_init_exact(rg_cpu *k)
{
    fill_exact(k);
}
