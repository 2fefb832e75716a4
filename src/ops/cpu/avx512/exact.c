/* exact.c -- the exact recipe: f32 weights (decoded where they are not) by f32 activations.
 *
 * Four chains per output by column modulo 4, each a vector over the panel's 16 rows, and TILE rows of x at once: enough
 * independent sums for both multipliers.  A few rows read a float layout where it lies.  Many rows, and integer layouts
 * always, take a piece of the panel at a time, decoded into L1 (f32 needs no decoding), while the chains of a batch of
 * rows wait beside it. */
#include "ops/cpu/avx512/avx512.h"
#include "ops/cpu/exact_tmpl.h"

enum {
    TILE = 6,     /* rows: 24 chains and 4 columns of weights in 32 registers */
    AHEAD = 4096, /* bytes prefetched ahead of one row's stream: the hardware stops at each page */
};

/* n columns, the first of them a multiple of 4, into the chains of n_rows rows; layout and n_rows are constants. */
ALWAYS_INLINE void add_columns(rg_layout layout, const uint8_t *w, int n, const float *x, size_t ldx, int n_rows,
                               chains (*c)[1])
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
        if (n_rows == 1)
            for (size_t i = 0; i < 4 * column_bytes(layout); i += 64)
                _mm_prefetch((const char *)w + (size_t)k * column_bytes(layout) + AHEAD + i, _MM_HINT_T0);
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

/* ---- a few rows of a float layout -------------------------------------------------------------------------------- */

ALWAYS_INLINE void float_rows(rg_layout layout, const uint8_t *panel, int cols, const float *x, size_t ldx, int n_rows,
                              float *y, size_t ldy)
{
    chains c[TILE][1];

#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++)
        clear(c[r][0]);
    add_columns(layout, panel, cols, x, ldx, n_rows, c);
#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++)
        store_sum(y + (size_t)r * ldy, c[r][0]);
}

ALWAYS_INLINE bool few_rows(rg_layout layout, const uint8_t *panel, int cols, const float *x, size_t ldx, int m,
                            float *y, size_t ldy)
{
    if (m > TILE)
        return false;
    if (m == TILE) {
        float_rows(layout, panel, cols, x, ldx, TILE, y, ldy);
        return true;
    }
    for (; m >= 2; m -= 2, x += 2 * ldx, y += 2 * ldy)
        float_rows(layout, panel, cols, x, ldx, 2, y, ldy);
    if (m > 0)
        float_rows(layout, panel, cols, x, ldx, 1, y, ldy);
    return true;
}

/* ---- in pieces --------------------------------------------------------------------------------------------------- */

static void add_piece(const float *w, int n, const float *x, size_t ldx, int m, chains (*c)[1])
{
    const uint8_t *piece = (const uint8_t *)w;

    for (; m >= TILE; m -= TILE, x += TILE * ldx, c += TILE)
        add_columns(RG_LAYOUT_F32, piece, n, x, ldx, TILE, c);
    for (; m >= 2; m -= 2, x += 2 * ldx, c += 2)
        add_columns(RG_LAYOUT_F32, piece, n, x, ldx, 2, c);
    if (m)
        add_columns(RG_LAYOUT_F32, piece, n, x, ldx, 1, c);
}

void rg_avx512_init_exact(rg_cpu *k)
{
    fill_exact(k);
}
