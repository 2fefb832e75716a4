/* gemm.c -- products of matrices in the host's memory, by the back end's product of rows with panels.
 *
 * The right operand is put into panels of 16 columns, [k][16] each, the left one into rows.  The inner dimension is
 * taken RG_GEMM_DEPTH at a time, so that what a kernel reads stays in a near cache, and the sums of these pieces are
 * added in order: bits depend on the shapes alone. */
#include "ops/back/inside.h"

#include <string.h>

enum { PANEL = 16, TURN = 16 };

static int panels_of(int n)
{
    return rg_ceil_div(n, PANEL);
}

/* to [n][ld] = the columns first .. first + n of from [k][ldf], as rows. */
static void turn(float *to, size_t ld, const float *from, size_t ldf, int n, int k)
{
    for (int i0 = 0; i0 < n; i0 += TURN)
        for (int k0 = 0; k0 < k; k0 += TURN) {
            const int i1 = rg_back_min(i0 + TURN, n), k1 = rg_back_min(k0 + TURN, k);

            for (int i = i0; i < i1; i++)
                for (int j = k0; j < k1; j++)
                    to[(size_t)i * ld + (size_t)j] = from[(size_t)j * ldf + (size_t)i];
        }
}

/* Panel i of the right operand: [k][16], columns that are not there being 0. */
static void fill_panel(const rg_gemm *g, int i, float *to)
{
    const int first = i * PANEL, n = rg_back_min(PANEL, g->n - first);

    if (n < PANEL)
        memset(to, 0, (size_t)g->k * PANEL * sizeof *to);
    if (!g->b_turned) {
        const float *from = g->b + first;

        if (n == PANEL)
            for (int k = 0; k < g->k; k++, from += g->ldb)
                memcpy(to + (size_t)k * PANEL, from, PANEL * sizeof *to);
        else
            for (int k = 0; k < g->k; k++, from += g->ldb)
                memcpy(to + (size_t)k * PANEL, from, (size_t)n * sizeof *to);
        return;
    }
    turn(to, PANEL, g->b + (size_t)first * g->ldb, g->ldb, g->k, n);
}

static size_t padded(int n)
{
    return rg_back_whole((size_t)n);
}

/* A product whose operands lie as kernels want them. */
typedef struct laid {
    const rg_gemm *g;
    const float *a, *panels; /* [m][lda], [panels][k][16] */
    size_t lda;
} laid;

/* Rows [row, row + m) by panels [panel, panel + n): tile [m][16 n]. */
static void multiply(const rg_backend *backend, const laid *p, int row, int m, int panel, int n, float *tile)
{
    const rg_gemm *g = p->g;
    const int cols = rg_back_min(n * PANEL, g->n - panel * PANEL);

    for (int k = 0; k < g->k; k += RG_GEMM_DEPTH) {
        const int depth = rg_back_min(RG_GEMM_DEPTH, g->k - k);

        backend->host_multiply(
            backend, &(rg_host_product){ .x = p->a + (size_t)row * p->lda + k,
                                         .ldx = p->lda,
                                         .panels = p->panels + ((size_t)panel * (size_t)g->k + (size_t)k) * PANEL,
                                         .panel_floats = (size_t)g->k * PANEL,
                                         .n_panels = n,
                                         .cols = depth,
                                         .m = m,
                                         .y = tile,
                                         .ldy = (size_t)n * PANEL });
        for (int r = 0; r < m; r++) {
            float *y = g->y + (size_t)(row + r) * g->ldy + (size_t)panel * PANEL;
            const float *t = tile + (size_t)r * (size_t)n * PANEL;

            if (g->add || k)
                for (int c = 0; c < cols; c++)
                    y[c] += t[c];
            else
                memcpy(y, t, (size_t)cols * sizeof *y);
        }
    }
}

enum { TILE = RG_GEMM_ROWS * RG_GEMM_PANELS * PANEL };

size_t rg_gemm_room(int m, int n, int k)
{
    return padded(m) * padded(k) + padded(n) * (size_t)k + TILE;
}

void rg_gemm_here(const rg_backend *backend, const rg_gemm *g, float *scratch)
{
    laid p = { g, g->a, scratch + TILE, g->lda };
    float *panels = scratch + TILE, *rows = panels + (size_t)panels_of(g->n) * (size_t)g->k * PANEL;

    for (int i = 0; i < panels_of(g->n); i++)
        fill_panel(g, i, panels + (size_t)i * (size_t)g->k * PANEL);
    if (g->a_turned) {
        p.lda = padded(g->k);
        turn(rows, p.lda, g->a, g->lda, g->m, g->k);
        p.a = rows;
    }
    for (int row = 0; row < g->m; row += RG_GEMM_ROWS)
        for (int i = 0; i < panels_of(g->n); i += RG_GEMM_PANELS)
            multiply(backend, &p, row, rg_back_min(RG_GEMM_ROWS, g->m - row), i,
                     rg_back_min(RG_GEMM_PANELS, panels_of(g->n) - i), scratch);
}

typedef struct shared {
    const rg_back_lane *l;
    laid p;
    float *rows, *panels, *tiles;
    int n_groups;
} shared;

enum { TURN_ROWS = 32 };

static void lay_part(void *arg, int i, int thread)
{
    const shared *s = arg;
    const rg_gemm *g = s->p.g;
    const int n_panels = panels_of(g->n);

    (void)thread;
    if (i < n_panels) {
        fill_panel(g, i, s->panels + (size_t)i * (size_t)g->k * PANEL);
        return;
    }
    const int row = (i - n_panels) * TURN_ROWS;
    turn(s->rows + (size_t)row * s->p.lda, s->p.lda, g->a + row, g->lda, rg_back_min(TURN_ROWS, g->m - row), g->k);
}

static void multiply_part(void *arg, int i, int thread)
{
    const shared *s = arg;
    const rg_gemm *g = s->p.g;
    const int row = i / s->n_groups * RG_GEMM_ROWS, panel = i % s->n_groups * RG_GEMM_PANELS;

    multiply(s->l->backend, &s->p, row, rg_back_min(RG_GEMM_ROWS, g->m - row), panel,
             rg_back_min(RG_GEMM_PANELS, panels_of(g->n) - panel), s->tiles + (size_t)thread * TILE);
}

void rg_gemm_run(rg_back_lane *l, const rg_gemm *g)
{
    const rg_back_mark mark = rg_back_marked(l);
    const int n_panels = panels_of(g->n), n_groups = rg_ceil_div(n_panels, RG_GEMM_PANELS);
    shared s = { .l = l, .p = { g, g->a, NULL, g->lda }, .n_groups = n_groups };

    s.panels = rg_back_room(l, (size_t)n_panels * (size_t)g->k * PANEL);
    s.tiles = rg_back_room(l, (size_t)l->n_threads * TILE);
    if (g->a_turned) {
        s.p.lda = padded(g->k) + 16; /* not a power of two, or rows would meet in a few sets of the cache */
        s.rows = rg_back_room(l, (size_t)g->m * s.p.lda);
        s.p.a = s.rows;
    }
    s.p.panels = s.panels;
    rg_back_each(l, n_panels + (g->a_turned ? rg_ceil_div(g->m, TURN_ROWS) : 0), lay_part, &s);
    rg_back_each(l, rg_ceil_div(g->m, RG_GEMM_ROWS) * n_groups, multiply_part, &s);
    rg_back_give(l, mark);
}
