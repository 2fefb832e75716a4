/* outliers.c -- the second half of LLM.int8(): values of an input that are too large for its row's scale, in f32.
 *
 * A row's outliers are its own.  Those of a stretch of rows are gathered by column, since models have them in the same
 * few columns: a column of weights is then decoded once for all rows that meet it. */
#include "ops/cpu/reader.h"

enum { STRETCH = 32, PIECE = 512 }; /* rows, columns */

typedef struct found {
    int32_t col[PIECE];
    uint32_t rows[PIECE];
    int n;
} found;

/* The outliers among columns [first, first + n) of m rows. */
static void find(const rg_cpu *cpu, const float *x, size_t ldx, int m, int first, int n, found *f)
{
    uint32_t rows[PIECE];
    int32_t at[PIECE];
    bool any = false;

    f->n = 0;
    for (int r = 0; r < m; r++) {
        const int n_at = cpu->find_outliers(x + (size_t)r * ldx + first, n, at);

        for (int i = 0; !any && n_at && i < n; i++)
            rows[i] = 0;
        any = any || n_at;
        for (int i = 0; i < n_at; i++)
            rows[at[i]] |= (uint32_t)1 << r;
    }
    for (int i = 0; any && i < n; i++)
        if (rows[i]) {
            f->col[f->n] = first + i;
            f->rows[f->n++] = rows[i];
        }
}

void rg_cpu_add_outliers(const rg_cpu *cpu, rg_layout layout, const rg_product *p, const float *x, size_t ldx)
{
    found f;

    for (int row = 0; row < p->m; row += STRETCH)
        for (int first = 0; first < p->cols; first += PIECE) {
            const float *rows = x + (size_t)row * ldx;

            find(cpu, rows, ldx, rg_min(STRETCH, p->m - row), first, rg_min(PIECE, p->cols - first), &f);
            if (!f.n)
                continue;
            cpu->add_columns[layout](&(rg_columns){ .panel = p->panel,
                                                    .panel_bytes = p->panel_bytes,
                                                    .n_panels = p->n_panels,
                                                    .n = f.n,
                                                    .col = f.col,
                                                    .rows = f.rows,
                                                    .x = rows,
                                                    .ldx = ldx,
                                                    .y = p->y + (size_t)row * p->ldy,
                                                    .ldy = p->ldy });
        }
}
