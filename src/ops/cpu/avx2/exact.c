/* exact.c -- the exact recipe: f32 weights (decoded where they are not) by f32 activations.
 *
 * Four chains per output by column modulo 4.  One row of x takes both parts of the panel, 8 chains; more rows take TILE
 * rows of one part, 12 chains.  A few rows read a float layout where it lies.  Many rows, and integer layouts always,
 * take a piece of the panel at a time, decoded into L1 (f32 needs no decoding), while the chains of a batch of rows
 * wait beside it. */
#include "ops/cpu/avx2/avx2.h"
#include "ops/cpu/exact_tmpl.h"

enum { TILE = 3 }; /* rows */

/* What add_columns walks: columns of weights, and rows of x. */
typedef struct walk {
    const uint8_t *w;
    soon next;
    int n;
    const float *x;
    size_t ldx;
} walk;

/* n columns, the first of them a multiple of 4, into the chains c[row][part]. */
ALWAYS_INLINE void add_columns(rg_layout layout, walk v, int n_rows, int part, int n_parts, chains (*c)[2])
{
    chains s[TILE][2]; /* in registers: through c, every sum would be stored at once */
    int k = 0;

#pragma GCC unroll 3
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < n_parts; p++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                s[r][p][i] = c[r][part + p][i];

    for (; k + 4 <= v.n; k += 4) {
        fetch(&v.next);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
            for (int p = 0; p < n_parts; p++) {
                const __m256 w = column(layout, v.w, (size_t)(k + i), part + p);
#pragma GCC unroll 3
                for (int r = 0; r < n_rows; r++)
                    s[r][p][i] =
                        _mm256_fmadd_ps(w, _mm256_set1_ps(v.x[(size_t)r * v.ldx + (size_t)(k + i)]), s[r][p][i]);
            }
    }
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
#pragma GCC unroll 2
        for (int p = 0; p < n_parts; p++) {
            if (k + i >= v.n)
                break;
            const __m256 w = column(layout, v.w, (size_t)(k + i), part + p);
#pragma GCC unroll 3
            for (int r = 0; r < n_rows; r++)
                s[r][p][i] = _mm256_fmadd_ps(w, _mm256_set1_ps(v.x[(size_t)r * v.ldx + (size_t)(k + i)]), s[r][p][i]);
        }
#pragma GCC unroll 3
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < n_parts; p++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                c[r][part + p][i] = s[r][p][i];
}

/* ---- a few rows of a float layout -------------------------------------------------------------------------------- */

ALWAYS_INLINE void float_rows(rg_layout layout, walk v, int n_rows, int part, int n_parts, float *y, size_t ldy)
{
    chains c[TILE][2];

    for (int r = 0; r < n_rows; r++)
        for (int p = 0; p < n_parts; p++)
            clear(c[r][part + p]);
    add_columns(layout, v, n_rows, part, n_parts, c);
    for (int r = 0; r < n_rows; r++)
        for (int p = 0; p < n_parts; p++)
            store_sum(y + (size_t)r * ldy + 8 * (part + p), c[r][part + p]);
}

ALWAYS_INLINE bool few_rows(rg_layout layout, const uint8_t *panel, int cols, const float *x, size_t ldx, int m,
                            float *y, size_t ldy)
{
    if (m >= TILE)
        return false;
    for (; m > 0; m--, x += ldx, y += ldy) {
        const soon ahead = { panel + AHEAD, 4 * column_bytes(layout) };
        float_rows(layout, (walk){ panel, ahead, cols, x, ldx }, 1, 0, 2, y, ldy);
    }
    return true;
}

/* ---- in pieces --------------------------------------------------------------------------------------------------- */

/* Apart, so that the compiler sees 12 chains and nothing else to keep in 16 registers. */
static __attribute__((noinline)) void add_tile(walk v, int part, chains (*c)[2])
{
    v.w += 32 * part;
    add_columns(RG_LAYOUT_F32, v, TILE, 0, 1, (chains(*)[2])(void *)&c[0][part]);
}

static void add_piece(const float *w, soon next, int n, const float *x, size_t ldx, int m, chains (*c)[2])
{
    walk v = { (const uint8_t *)w, next, n, x, ldx };

    for (; m >= TILE; m -= TILE, v.x += TILE * ldx, c += TILE) {
        add_tile(v, 0, c);
        v.next.each = 0;
        add_tile(v, 1, c);
    }
    for (; m > 0; m--, v.x += ldx, c++, v.next.each = 0)
        add_columns(RG_LAYOUT_F32, v, 1, 0, 2, c);
}

void rg_avx2_init_exact(rg_cpu *k)
{
    fill_exact(k);
}
