/* outliers.c -- the second half of LLM.int8(): values of an input that are too large for its row's scale, in f32.
 *
 * A row's outliers are its own.  Those of a stretch of rows are gathered by column, since models have them in the same
 * few columns: a column of weights is then decoded once for all rows that meet it.  Their values are read where
 * rg_cpu_round_row has put them side by side, since in the input each lies in a cache line of its own. */
#include "ops/cpu/reader.h"

enum { STRETCH = 64, PIECE = 2048, MOST = 128 }; /* rows; columns that are searched, and that are added, at a time */

/* Rows of an input whose outliers are looked for, from left to right. */
typedef struct rows {
    const uint32_t *bits; /* of the first block of columns, `words` apart */
    const float *values;  /* the first n_values outliers of a row, `words` apart; the others are in x */
    const float *x;
    size_t words, ldx;
    int m, n_values;
    int32_t passed[STRETCH]; /* outliers of each row that have been added, or are of columns before these */
} rows;

/* The columns among n from the first on in which one of the rows has an outlier; returns how many, and puts them into
 * col, rising. */
static int find(const rows *a, int first, int n, int32_t *col)
{
    uint32_t any[PIECE / 32] = { 0 };
    int found = 0;

    for (int r = 0; r < a->m; r++)
        for (int b = 0; b < n / 32; b++)
            any[b] |= a->bits[(size_t)r * a->words + (size_t)(first / 32 + b)];
    for (int b = 0; b < n / 32; b++)
        for (uint32_t bits = any[b]; bits; bits &= bits - 1)
            col[found++] = first + 32 * b + __builtin_ctz(bits);
    return found;
}

/* The rows by n of those columns. */
static void add(const rg_cpu *cpu, rg_layout layout, rows *a, rg_columns *c)
{
    float own[STRETCH * MOST];

    for (int r = 0; r < a->m; r++) {
        const uint32_t *bits = a->bits + (size_t)r * a->words;
        const float *values = a->values + (size_t)r * a->words, *x = a->x + (size_t)r * a->ldx;
        int passed = a->passed[r];

        for (int i = 0; i < c->n; i++) {
            const int col = c->col[i];
            const bool meets = bits[col / 32] >> col % 32 & 1;

            own[r * MOST + i] = !meets ? 0.0f : passed < a->n_values ? values[passed] : x[col];
            passed += meets;
        }
        a->passed[r] = passed;
    }
    c->x = own;
    c->ldx = MOST;
    cpu->add_columns[layout](c);
}

static void add_stretch(const rg_cpu *cpu, rg_layout layout, rows *a, int cols, rg_columns *c)
{
    int32_t col[PIECE];
    bool any = false;

    for (int first = 0; first < cols; first += PIECE) {
        const int n = find(a, first, rg_min(PIECE, cols - first), col);

        for (int i = 0; i < n; i += MOST) {
            c->col = col + i;
            c->n = rg_min(MOST, n - i);
            add(cpu, layout, a, c);
            any = true;
        }
    }
    c->n = 0;
    if (!any) /* a zero is +0, whoever the others are */
        add(cpu, layout, a, c);
}

void rg_cpu_add_outliers(const rg_cpu *cpu, rg_layout layout, const rg_product *p, const rg_operand *x, int first_row)
{
    rg_columns c = { .panel = p->panel, .panel_bytes = p->panel_bytes, .n_panels = p->n_panels, .ldy = p->ldy };
    rows a = { .words = x->ldr * sizeof(rg_rounded) / sizeof(uint32_t), .ldx = x->ldx, .n_values = x->n_blocks };

    for (int row = 0; row < p->m; row += STRETCH) {
        const rg_rounded *r = x->r + (size_t)(first_row + row) * x->ldr - x->first_block;
        const rg_outliers o = rg_outliers_behind(r, x->n_blocks);

        a.m = c.m = rg_min(STRETCH, p->m - row);
        a.bits = o.bits + x->first_block;
        a.values = o.values;
        a.x = x->x + (size_t)(first_row + row) * x->ldx;
        c.y = p->y + (size_t)row * p->ldy;
        for (int i = 0; i < a.m; i++) {
            a.passed[i] = 0;
            for (int b = 0; b < x->first_block; b++)
                a.passed[i] += __builtin_popcount(o.bits[(size_t)i * a.words + (size_t)b]);
        }
        add_stretch(cpu, layout, &a, p->cols, &c);
    }
}
