/* exact.c -- the exact recipe: f32 weights (decoded where they are not) by f32 activations.
 *
 * Four chains per output by column modulo 4, each a vector over the panel's 16 rows, and TILE rows of x at once: enough
 * independent sums for both multipliers.  A few rows read a float layout where it lies.  Many rows, and integer layouts
 * always, take a piece of the panel at a time, decoded into L1 (f32 needs no decoding), while the chains of a batch of
 * rows wait beside it. */
#include "ops/cpu/avx512/avx512.h"
#include "ops/cpu/exact_tmpl.h"

enum { TILE = 6 }; /* rows: 24 chains and 4 columns of weights in 32 registers */

/* n columns, the first of them a multiple of 4, into the chains of n_rows rows; layout and n_rows are constants. */
ALWAYS_INLINE void add_columns(rg_layout layout, const uint8_t *w, soon next, int n, const float *x, size_t ldx,
                               int n_rows, chains (*c)[1])
{
    const float *xr[TILE];
    chains s[TILE]; /* in registers: through c, every sum would be stored at once */
    int k = 0;

#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++) {
        xr[r] = x + (size_t)r * ldx;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            s[r][i] = c[r][0][i];
    }
    for (; k + 4 <= n; k += 4) {
#pragma GCC unroll 6
        for (int r = 0; r < n_rows; r++)
            __asm__("" : "+r"(xr[r])); /* a pointer per row, not an index: the load stays one operation with its use */
        fetch(&next);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m512 wi = column(layout, w, (size_t)(k + i), 0);
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
        if (k + i < n) {
            const __m512 wi = column(layout, w, (size_t)(k + i), 0);
#pragma GCC unroll 6
            for (int r = 0; r < n_rows; r++)
                s[r][i] = _mm512_fmadd_ps(wi, _mm512_set1_ps(xr[r][i]), s[r][i]);
        }
#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            c[r][0][i] = s[r][i];
}

/* The same for the first TILE of m rows, or as many as there are. */
ALWAYS_INLINE void add_tile(rg_layout layout, const uint8_t *w, soon next, int n, const float *x, size_t ldx, int m,
                            chains (*c)[1])
{
    switch (m) {
    case 1: add_columns(layout, w, next, n, x, ldx, 1, c); break;
    case 2: add_columns(layout, w, next, n, x, ldx, 2, c); break;
    case 3: add_columns(layout, w, next, n, x, ldx, 3, c); break;
    case 4: add_columns(layout, w, next, n, x, ldx, 4, c); break;
    case 5: add_columns(layout, w, next, n, x, ldx, 5, c); break;
    default: add_columns(layout, w, next, n, x, ldx, TILE, c);
    }
}

/* ---- a few rows of a float layout -------------------------------------------------------------------------------- */

ALWAYS_INLINE bool few_rows(rg_layout layout, const uint8_t *panel, int cols, const float *x, size_t ldx, int m,
                            float *y, size_t ldy)
{
    chains c[TILE][1];

    if (m > TILE)
        return false;
    for (int r = 0; r < m; r++)
        clear(c[r][0]);
    add_tile(layout, panel, (soon){ panel + AHEAD, 4 * column_bytes(layout) }, cols, x, ldx, m, c);
    for (int r = 0; r < m; r++)
        store_sum(y + (size_t)r * ldy, c[r][0]);
    return true;
}

/* ---- in pieces --------------------------------------------------------------------------------------------------- */

static void add_piece(const float *w, soon next, int n, const float *x, size_t ldx, int m, chains (*c)[1])
{
    const uint8_t *piece = (const uint8_t *)w;

    add_tile(RG_LAYOUT_F32, piece, next, n, x, ldx, m, c);
    while ((m -= TILE) > 0) {
        x += TILE * ldx;
        c += TILE;
        add_tile(RG_LAYOUT_F32, piece, (soon){ 0 }, n, x, ldx, m, c);
    }
}

void rg_avx512_init_exact(rg_cpu *k)
{
    fill_exact(k);
}
