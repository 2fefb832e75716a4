/* outliers.c -- the second half of LLM.int8(): values of an input that are too large for its row's scale, in f32.
 *
 * A row's outliers are its own.  Those of a stretch of rows are gathered by column, since models have them in the same
 * few columns: a column of weights is then decoded once for all rows that meet it. */
#include "ops/cpu/reader.h"

enum { STRETCH = 64, PIECE = 512, MOST = 128 }; /* rows, columns, columns that have outliers */

typedef struct found {
    int32_t col[PIECE];
    int n;
} found;

/* Of m rows whose bits are ld words apart: the columns among n from the first on in which one of them has an outlier.
 * */
static void find(const uint32_t *bits, size_t ld, int m, int first, int n, found *f)
{
    f->n = 0;
    for (int i = 0; i < n; i += 32) {
        uint32_t any = 0;

        for (int r = 0; r < m; r++)
            any |= bits[(size_t)r * ld + (size_t)(first + i) / 32];
        for (; any; any &= any - 1)
            f->col[f->n++] = first + i + __builtin_ctz(any);
    }
}

/* Rows of x by n of those columns. */
static void add(const rg_cpu *cpu, rg_layout layout, rg_columns *c, const float *x, size_t ldx)
{
    float own[STRETCH * MOST];

    for (int r = 0; r < c->m; r++)
        for (int i = 0; i < c->n; i++) {
            const float v = x[(size_t)r * ldx + (size_t)c->col[i]];

            own[r * MOST + i] = __builtin_fabsf(v) >= RG_OUTLIER ? v : 0.0f;
        }
    c->x = own;
    c->ldx = MOST;
    cpu->add_columns[layout](c);
}

void rg_cpu_add_outliers(const rg_cpu *cpu, rg_layout layout, const rg_product *p, const rg_operand *x, int first_row)
{
    rg_columns c = { .panel = p->panel, .panel_bytes = p->panel_bytes, .n_panels = p->n_panels, .ldy = p->ldy };
    const size_t words = x->ldr * sizeof(rg_rounded) / sizeof(uint32_t);
    found f;

    for (int row = 0; row < p->m; row += STRETCH) {
        const float *rows = x->x + (size_t)(first_row + row) * x->ldx;
        bool any = false;

        c.m = rg_min(STRETCH, p->m - row);
        c.y = p->y + (size_t)row * p->ldy;
        for (int first = 0; first < p->cols; first += PIECE) {
            const uint32_t *bits = x->outliers + (size_t)(first_row + row) * words;

            find(bits, words, c.m, first, rg_min(PIECE, p->cols - first), &f);
            for (int i = 0; i < f.n; i += MOST) {
                c.col = f.col + i;
                c.n = rg_min(MOST, f.n - i);
                add(cpu, layout, &c, rows, x->ldx);
                any = true;
            }
        }
        c.n = 0;
        if (!any) /* a zero is +0, whoever the others are */
            add(cpu, layout, &c, rows, x->ldx);
    }
}
