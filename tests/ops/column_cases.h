/* column_cases.h -- part of kernel_cases.c: kernels that read some columns of a matrix, those of outliers and those that do
 * not meet zeros. */
#ifndef RG_TEST_COLUMN_CASES_H
#define RG_TEST_COLUMN_CASES_H

/* Some columns of every integer layout by some rows, some of which do not meet them. */
static bool columns_same(cases *c, rg_layout layout, int mode, int rows)
{
    enum { MOST_COLS = 512, ROWS = 7 };
    static float x[ROWS * MOST_COLS], want[ROWS * (WIDE + GAP)], got[ROWS * (WIDE + GAP)];
    int32_t col[MOST_COLS];
    const int step = rg_layout_step(layout), cols = step > 32 ? MOST_COLS : 96;
    const size_t n_steps = (size_t)(cols / step);
    rg_columns p = { .panel_bytes = rg_layout_head_bytes(layout) + rg_layout_step_bytes(layout) * n_steps, .m = rows,
                     .n_panels = PANELS, .col = col, .x = x, .ldx = MOST_COLS, .ldy = WIDE + GAP };
    uint8_t *panel = walled(0, PANELS * p.panel_bytes);

    for (size_t i = 0; i < PANELS; i++)
        fill_panel(c, layout, mode, panel + i * p.panel_bytes, n_steps);
    p.panel = panel;
    floats(c, mode, x, RG_LEN(x));
    floats(c, 0, want, RG_LEN(want));
    for (size_t i = 0; i < RG_LEN(x); i++)
        x[i] = rg_rng_below(&c->rng, 4) ? x[i] : 0.0f;
    for (size_t i = 0; i < RG_LEN(want); i += 3)
        want[i] = -0.0f;
    memcpy(got, want, sizeof got);
    for (int k = 0; k < cols; k++)
        if (k == cols - 1 || !rg_rng_below(&c->rng, 3))
            col[p.n++] = k;
    p.y = want;
    c->ref->add_columns[layout](&p);
    p.y = got;
    c->k->add_columns[layout](&p);
    return same_floats(got, want, RG_LEN(got), rg_layout_name(layout));
}

enum { MOST_SPARSE = RG_COLUMN_PANELS + 3 }; /* panels */

/* Panels by a row that is mostly zeros: both halves with ref's bits, and their sum + 0 with those of the exact product +
 * 0. */
static bool sparse_same(cases *c, rg_layout layout, int cols, int n_panels, int mode)
{
    const size_t panel_bytes = rg_layout_step_bytes(layout), column_bytes = panel_bytes * (size_t)n_panels;
    float *x = walled(1, (size_t)cols * sizeof *x), *y = walled(2, 16 * (size_t)n_panels * sizeof *y);
    static float want[16 * MOST_SPARSE], sum[16 * MOST_SPARSE];
    uint8_t *panel = walled(0, (size_t)cols * column_bytes);
    rg_product p = { .panel = panel, .panel_bytes = panel_bytes, .column_bytes = column_bytes, .n_panels = n_panels,
                     .cols = cols, .m = 1, .x = x, .ldx = (size_t)cols, .ldy = 16 * MOST_SPARSE };
    char what[64];

    fill_panel(c, layout, mode, panel, (size_t)cols * (size_t)n_panels);
    floats(c, mode == 4 ? 0 : mode, x, (size_t)cols);
    for (int k = 0; k < cols; k++)
        x[k] = rg_rng_below(&c->rng, 3) ? 0.0f : x[k];
    snprintf(what, sizeof what, "%s sparse %s cols %d panels %d mode %d", c->k->isa, rg_layout_name(layout), cols,
             n_panels, mode);
    for (p.half = 0; p.half < 2; p.half++) {
        p.y = want;
        c->ref->sparse[layout](&p);
        p.y = y;
        c->k->sparse[layout](&p);
        if (!same_floats(y, want, 16 * (size_t)n_panels, what))
            return false;
        for (int i = 0; i < 16 * n_panels; i++)
            sum[i] = p.half ? (sum[i] + y[i]) + 0.0f : y[i];
    }
    p.y = want;
    c->ref->product[RG_EXACT][layout](&p);
    for (int i = 0; i < 16 * n_panels; i++)
        want[i] += 0.0f;
    return mode == 3 || same_floats(sum, want, 16 * (size_t)n_panels, what); /* 3: weights that are no numbers */
}

static bool cases_sparse(cases *c)
{
    static const int cols[] = { 1, 3, 4, 64, 513, 1100 };

    for (rg_layout layout = RG_LAYOUT_F32; layout < RG_LAYOUT_COUNT; layout++)
        if (c->ref->sparse[layout] && (!sparse_same(c, layout, 8199, 2, 0) || !sparse_same(c, layout, 40, MOST_SPARSE, 0)))
            return false; /* more than are listed at once, and more panels than have sums at once */
    for (rg_layout layout = RG_LAYOUT_F32; layout < RG_LAYOUT_COUNT; layout++)
        for (size_t i = 0; c->ref->sparse[layout] && i < RG_LEN(cols); i++)
            for (int mode = 0; mode < 4; mode++)
                if (!sparse_same(c, layout, cols[i], mode % 2 ? 16 : 1 + (int)i, mode))
                    return false;
    return true;
}

static bool cases_columns(cases *c)
{
    for (rg_layout layout = RG_LAYOUT_F32; layout < RG_LAYOUT_COUNT; layout++)
        for (int mode = 0; c->ref->add_columns[layout] && mode < N_MODES; mode++)
            if (!c->k->add_columns[layout] || !columns_same(c, layout, mode, 7) || !columns_same(c, layout, mode, 1))
                return false;
    return true;
}

#endif
