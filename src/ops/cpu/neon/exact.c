/* exact.c -- the exact recipe: f32 weights (decoded where they are not) by f32 activations.
 *
 * Four columns of x are one vector, whose lanes multiply four columns of weights into the four chains of an output.
 * One row of x takes all four parts of the panel, 16 chains; more rows take TILE rows of one part, 16 as well.  Panels
 * are decoded a piece at a time (f32 needs no decoding), while the chains of a batch of rows wait. */
#include "ops/cpu/neon/neon.h"
#include "ops/cpu/exact_tmpl.h"

enum { TILE = 4 }; /* rows */

/* n columns of a decoded piece, the first of them a multiple of 4, into the chains c[row][part]. */
ALWAYS_INLINE void add_columns(const float *w, soon next, int n, const float *x, size_t ldx, int n_rows, int part,
                               int n_parts, chains (*c)[4])
{
    chains s[TILE][4]; /* in registers: through c, every sum would be stored at once */
    int k = 0;

    for (int r = 0; r < n_rows; r++)
        for (int p = 0; p < n_parts; p++)
            for (int i = 0; i < 4; i++)
                s[r][p][i] = c[r][part + p][i];
    for (; k + 4 <= n; k += 4) {
        fetch(&next);
        for (int r = 0; r < n_rows; r++) {
            const float32x4_t xk = vld1q_f32(x + (size_t)r * ldx + k);
            for (int p = 0; p < n_parts; p++) {
                const float *at = w + 16 * k + 4 * (part + p);
                s[r][p][0] = vfmaq_laneq_f32(s[r][p][0], vld1q_f32(at), xk, 0);
                s[r][p][1] = vfmaq_laneq_f32(s[r][p][1], vld1q_f32(at + 16), xk, 1);
                s[r][p][2] = vfmaq_laneq_f32(s[r][p][2], vld1q_f32(at + 32), xk, 2);
                s[r][p][3] = vfmaq_laneq_f32(s[r][p][3], vld1q_f32(at + 48), xk, 3);
            }
        }
    }
    for (int i = 0; i < 3; i++)
        for (int p = 0; p < n_parts; p++)
            for (int r = 0; r < n_rows && k + i < n; r++)
                s[r][p][i] = vfmaq_n_f32(s[r][p][i], vld1q_f32(w + 16 * (k + i) + 4 * (part + p)),
                                         x[(size_t)r * ldx + (size_t)(k + i)]);
    for (int r = 0; r < n_rows; r++)
        for (int p = 0; p < n_parts; p++)
            for (int i = 0; i < 4; i++)
                c[r][part + p][i] = s[r][p][i];
}

static void add_piece(const float *w, soon next, int n, const float *x, size_t ldx, int m, chains (*c)[4])
{
    for (; m >= TILE; m -= TILE, x += TILE * ldx, c += TILE)
        for (int part = 0; part < 4; part++, next.each = 0)
            add_columns(w, next, n, x, ldx, TILE, part, 1, c);
    for (; m > 0; m--, x += ldx, c++, next.each = 0)
        add_columns(w, next, n, x, ldx, 1, 0, 4, c);
}

/* Decoding pays for one row already. */
ALWAYS_INLINE bool few_rows(rg_layout layout, const uint8_t *panel, int cols, const float *x, size_t ldx, int m,
                            float *y, size_t ldy)
{
    (void)layout, (void)panel, (void)cols, (void)x, (void)ldx, (void)m, (void)y, (void)ldy;
    return false;
}

void rg_neon_init_exact(rg_cpu *k)
{
    fill_exact(k);
}
