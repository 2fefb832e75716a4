/* gemm.c -- products of matrices in the host's memory, by the back end's product of rows with panels.
 *
 * In f32 operands are read where they lie, but for a right one that is turned or has no whole number of panels of 16
 * columns, which is put into panels, [k][16] each.  Where a lane computes in bf16, every right operand is put into
 * panels, and rows of the left one are rounded; the kernel rounds panels.  The inner dimension is taken
 * RG_GEMM_DEPTH at a time, so that what a kernel reads stays in a near cache, and the sums of these pieces are added in
 * order: bits depend on the shapes alone. */
#include "ops/back/inside.h"

#include <string.h>

enum { PANEL = 16, TURN = 16, RUN = 32 /* columns that a product of bf16 takes together */ };

static int panels_of(int n)
{
    return rg_ceil_div(n, PANEL);
}

typedef float four __attribute__((vector_size(16)));

static four load_four(const float *p)
{
    four v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* Four rows of four values, turned. */
static void turn_four(float *to, size_t ld, const float *from, size_t ldf)
{
    const four a = load_four(from), b = load_four(from + ldf), c = load_four(from + 2 * ldf),
               d = load_four(from + 3 * ldf);
    const four ab = { a[0], b[0], a[1], b[1] }, cd = { c[0], d[0], c[1], d[1] };
    const four ef = { a[2], b[2], a[3], b[3] }, gh = { c[2], d[2], c[3], d[3] };
    const four row[4] = { { ab[0], ab[1], cd[0], cd[1] },
                          { ab[2], ab[3], cd[2], cd[3] },
                          { ef[0], ef[1], gh[0], gh[1] },
                          { ef[2], ef[3], gh[2], gh[3] } };

    for (int i = 0; i < 4; i++)
        memcpy(to + (size_t)i * ld, &row[i], sizeof row[i]);
}

/* to [n][ld] = the columns first .. first + n of from [k][ldf], as rows. */
static void turn(float *to, size_t ld, const float *from, size_t ldf, int n, int k)
{
    for (int i0 = 0; i0 < n; i0 += TURN)
        for (int k0 = 0; k0 < k; k0 += TURN) {
            const int i1 = rg_back_min(i0 + TURN, n), k1 = rg_back_min(k0 + TURN, k);
            const int i4 = i0 + (i1 - i0) / 4 * 4, k4 = k0 + (k1 - k0) / 4 * 4;

            for (int i = i0; i < i4; i += 4)
                for (int j = k0; j < k4; j += 4)
                    turn_four(to + (size_t)i * ld + (size_t)j, ld, from + (size_t)j * ldf + (size_t)i, ldf);
            for (int i = i0; i < i1; i++)
                for (int j = i < i4 ? k4 : k0; j < k1; j++)
                    to[(size_t)i * ld + (size_t)j] = from[(size_t)j * ldf + (size_t)i];
        }
}

enum { AT_ONCE = 4 }; /* panels that are filled together: whole lines of what they are filled from, side by side */

/* Panels first .. first + n_panels of the right operand: [depth][16] each, what is not there being 0. */
static void fill_panels(const rg_gemm *g, int depth, int first, int n_panels, float *to)
{
    const size_t each = (size_t)depth * PANEL;

    for (int i = 0; i < n_panels; i++) {
        const int cols = rg_back_min(PANEL, g->n - (first + i) * PANEL), from_row = cols < PANEL ? 0 : g->k;

        memset(to + (size_t)i * each + (size_t)from_row * PANEL, 0, (size_t)(depth - from_row) * PANEL * sizeof *to);
        if (g->b_turned)
            turn(to + (size_t)i * each, PANEL, g->b + (size_t)(first + i) * PANEL * g->ldb, g->ldb, g->k, cols);
    }
    for (int k = 0; k < g->k && !g->b_turned; k++)
        for (int i = 0; i < n_panels; i++) {
            const float *from = g->b + (size_t)k * g->ldb + (size_t)(first + i) * PANEL;
            float *at = to + (size_t)i * each + (size_t)k * PANEL;
            const int cols = g->n - (first + i) * PANEL;

            if (cols >= PANEL)
                memcpy(at, from, PANEL * sizeof *at);
            else
                memcpy(at, from, (size_t)cols * sizeof *at);
        }
}

static size_t padded(int n)
{
    return rg_back_whole((size_t)n);
}

/* A product whose operands lie as kernels want them. */
typedef struct laid {
    const rg_gemm *g;
    const float *a, *panels; /* [m][lda], or turned [depth][lda]; [panels][depth][16], */
    size_t column_floats, panel_floats; /*   so many floats from one to the next */
    const uint16_t *rounded; /* a in bf16, [m][lda]; NULL: f32 */
    size_t lda;
    int depth;  /* g->k, in bf16 rounded up to whole runs, all behind it being 0 */
    bool turned;
} laid;

/* f32 is multiplied where it lies: a right operand of whole panels, and any left one. */
static bool lies_in_panels(const rg_back_lane *l, const rg_gemm *g)
{
    return !l->bf16 && !g->b_turned && g->n % PANEL == 0;
}

static laid lay_out(const rg_back_lane *l, const rg_gemm *g, int depth, const float *panels)
{
    const bool there = lies_in_panels(l, g);

    return (laid){ .g = g,
                   .a = g->a,
                   .panels = there ? g->b : panels,
                   .column_floats = there ? g->ldb : PANEL,
                   .panel_floats = there ? PANEL : (size_t)depth * PANEL,
                   .lda = g->lda,
                   .depth = depth,
                   .turned = g->a_turned && !l->bf16 };
}

/* FAR: floats between steps of a turned operand from which on they meet in a few sets of the cache. */
enum { FAR = 1024, TILE = RG_GEMM_ROWS * RG_GEMM_PANELS * PANEL, NEAR = RG_GEMM_ROWS * RG_GEMM_DEPTH };

/* n steps of m rows of a turned operand, side by side. */
static void bring_near(float *to, const float *from, size_t lda, int m, int n)
{
    for (int k = 0; k < n; k++)
        memcpy(to + (size_t)k * RG_GEMM_ROWS, from + (size_t)k * lda, (size_t)m * sizeof *to);
}

/* Rows [row, row + m) by panels [panel, panel + n); tile: room for [m][16 n]; near: for [depth][m]. */
static void multiply(const rg_backend *backend, const laid *p, int row, int m, int panel, int n, float *tile,
                     float *near)
{
    const rg_gemm *g = p->g;
    const int cols = rg_back_min(n * PANEL, g->n - panel * PANEL);
    float *const first = g->y + (size_t)row * g->ldy + (size_t)panel * PANEL;

    for (int k = 0; k < g->k; k += RG_GEMM_DEPTH) {
        const bool add = g->add || k, straight = cols == n * PANEL && (!add || !p->rounded);
        const size_t at = p->turned ? (size_t)k * p->lda + (size_t)row : (size_t)row * p->lda + (size_t)k;
        const bool far = p->turned && p->lda >= FAR;
        const int depth = rg_back_min(RG_GEMM_DEPTH, p->depth - k);

        if (far)
            bring_near(near, p->a + at, p->lda, m, depth);
        backend->host_multiply(backend, &(rg_host_product){ .x = p->rounded ? NULL : far ? near : p->a + at,
                                                            .rounded = p->rounded ? p->rounded + at : NULL,
                                                            .ldx = far ? RG_GEMM_ROWS : p->lda,
                                                            .turned = p->turned,
                                                            .panels = p->panels + (size_t)panel * p->panel_floats +
                                                                      (size_t)k * p->column_floats,
                                                            .column_floats = p->column_floats,
                                                            .panel_floats = p->panel_floats,
                                                            .n_panels = n,
                                                            .cols = depth,
                                                            .m = m,
                                                            .y = straight ? first : tile,
                                                            .ldy = straight ? g->ldy : (size_t)n * PANEL,
                                                            .add = straight && add });
        for (int r = 0; r < m && !straight; r++) {
            float *y = first + (size_t)r * g->ldy;
            const float *t = tile + (size_t)r * (size_t)n * PANEL;

            if (add)
                for (int c = 0; c < cols; c++)
                    y[c] += t[c];
            else
                memcpy(y, t, (size_t)cols * sizeof *y);
        }
    }
}

enum { LAY_ROWS = 32, LAY_COLS = 256 };

/* Rows [row, row + m) of the left operand, rounded; room: [LAY_ROWS][LAY_COLS]. */
static void lay_rows(const rg_back_lane *l, const laid *p, int row, int m, float *rows, float *room)
{
    const rg_gemm *g = p->g;
    uint16_t *const rounded = (uint16_t *)(void *)rows;

    for (int k = 0; k < p->depth; k += LAY_COLS) {
        const int n = rg_back_min(LAY_COLS, g->k - k), all = rg_back_min(LAY_COLS, p->depth - k);

        if (g->a_turned)
            turn(room, LAY_COLS, g->a + (size_t)k * g->lda + row, g->lda, m, n);
        for (int r = 0; r < m; r++) {
            uint16_t *to = rounded + (size_t)(row + r) * p->lda + k;

            l->backend->host_round(
                l->backend, to, g->a_turned ? room + r * LAY_COLS : g->a + (size_t)(row + r) * g->lda + k, (size_t)n);
            memset(to + n, 0, (size_t)(all - n) * sizeof *to);
        }
    }
}

/* ---- by one thread ----------------------------------------------------------------------------------------------- */

static size_t depth_of(const rg_back_lane *l, int k)
{
    return l->bf16 ? (size_t)rg_ceil_div(k, RUN) * RUN : (size_t)k;
}

size_t rg_gemm_room(int m, int n, int k)
{
    const size_t depth = (size_t)rg_ceil_div(k, RUN) * RUN;

    return padded(m) * depth + padded(n) * depth + TILE + NEAR;
}

void rg_gemm_here(const rg_back_lane *l, const rg_gemm *g, float *scratch)
{
    const int depth = (int)depth_of(l, g->k), n_panels = panels_of(g->n);
    float *panels = scratch + TILE + NEAR, *rows = panels + (size_t)n_panels * (size_t)depth * PANEL;
    laid p = lay_out(l, g, depth, panels);

    if (p.panels == panels)
        fill_panels(g, depth, 0, n_panels, panels);
    if (l->bf16) {
        p.lda = (size_t)depth;
        p.rounded = (const uint16_t *)(const void *)rows;
        for (int row = 0; row < g->m; row += LAY_ROWS)
            lay_rows(l, &p, row, rg_back_min(LAY_ROWS, g->m - row), rows, scratch);
    }
    for (int row = 0; row < g->m; row += RG_GEMM_ROWS)
        for (int i = 0; i < n_panels; i += RG_GEMM_PANELS)
            multiply(l->backend, &p, row, rg_back_min(RG_GEMM_ROWS, g->m - row), i,
                     rg_back_min(RG_GEMM_PANELS, n_panels - i), scratch, scratch + TILE);
}

/* ---- by all threads ---------------------------------------------------------------------------------------------- */

/* Products, and the parts in which their operands are laid and in which they are computed. */
typedef struct shared {
    const rg_back_lane *l;
    laid p[RG_GEMM_MOST];
    float *panels[RG_GEMM_MOST], *rows[RG_GEMM_MOST]; /* to be filled; NULL: they are there */
    float *tiles;                                     /* of each thread a tile, and what is brought near */
    int n, cut;                                       /* cut: parts into which rows of a usual part are cut further */
    bool one_sum; /* all are added to one y */
    int lay_end[2 * RG_GEMM_MOST], end[RG_GEMM_MOST];
} shared;

static void lay_part(void *arg, int i, int thread)
{
    const shared *s = arg;
    int k = 0;

    while (i >= s->lay_end[k])
        k++;
    i -= k ? s->lay_end[k - 1] : 0;
    const laid *p = &s->p[k / 2];
    const int n_panels = panels_of(p->g->n);

    if (k % 2)
        lay_rows(s->l, p, i * LAY_ROWS, rg_back_min(LAY_ROWS, p->g->m - i * LAY_ROWS), s->rows[k / 2],
                 s->tiles + (size_t)thread * (TILE + NEAR));
    else
        fill_panels(p->g, p->depth, i * AT_ONCE, rg_back_min(AT_ONCE, n_panels - i * AT_ONCE),
                    s->panels[k / 2] + (size_t)i * AT_ONCE * (size_t)p->depth * PANEL);
}

static int groups_of(const rg_gemm *g)
{
    return rg_ceil_div(panels_of(g->n), RG_GEMM_PANELS);
}

/* Rows of a part: all parts of about a size. */
static int rows_of_part(const rg_gemm *g, int cut)
{
    const int most = RG_GEMM_ROWS / cut;

    return rg_ceil_div(g->m, rg_ceil_div(g->m, most));
}

/* How many parts all products have, and where those of each end. */
static int cut_parts(shared *s, int cut)
{
    int n_parts = 0;

    s->cut = cut;
    for (int k = 0; k < s->n; k++) {
        const rg_gemm *g = s->p[k].g;

        if (!s->one_sum || !k)
            n_parts += rg_ceil_div(g->m, rows_of_part(g, cut)) * groups_of(g);
        s->end[k] = n_parts;
    }
    return n_parts;
}

static void multiply_part(void *arg, int i, int thread)
{
    const shared *s = arg;
    float *tile = s->tiles + (size_t)thread * (TILE + NEAR);
    int k = 0;

    while (i >= s->end[k])
        k++;
    i -= k ? s->end[k - 1] : 0;
    for (const int last = s->one_sum ? s->n - 1 : k; k <= last; k++) {
        const laid *p = &s->p[k];
        const int each = rows_of_part(p->g, s->cut), n_groups = groups_of(p->g);
        const int row = i / n_groups * each, panel = i % n_groups * RG_GEMM_PANELS;

        multiply(s->l->backend, p, row, rg_back_min(each, p->g->m - row), panel,
                 rg_back_min(RG_GEMM_PANELS, panels_of(p->g->n) - panel), tile, tile + TILE);
    }
}

/* Room for the operands of product k, and how many parts it takes to lay them: panels, rows. */
static void make_room(rg_back_lane *l, shared *s, int k, int parts[2])
{
    laid *p = &s->p[k];
    const rg_gemm *g = p->g;

    if (lies_in_panels(l, g)) {
        ;
    } else if (k && s->p[k - 1].g->b == g->b && s->p[k - 1].g->n == g->n && s->p[k - 1].depth == p->depth) {
        p->panels = s->p[k - 1].panels;
    } else {
        p->panels = s->panels[k] = rg_back_room(l, (size_t)panels_of(g->n) * (size_t)p->depth * PANEL);
        parts[0] = rg_ceil_div(panels_of(g->n), AT_ONCE);
    }
    if (!l->bf16)
        return;
    p->lda = padded(p->depth) + 32; /* not a power of two, or rows would meet in a few sets of the cache */
    s->rows[k] = rg_back_room(l, (size_t)g->m * p->lda / 2);
    p->rounded = (const uint16_t *)(const void *)s->rows[k];
    parts[1] = rg_ceil_div(g->m, LAY_ROWS);
}

/* Parts of a thread that are enough to end together, and how far rows are cut for that. */
enum { ENOUGH = 6, MOST_CUT = 4 };

void rg_gemm_run_all(rg_back_lane *l, const rg_gemm *g, int n)
{
    const rg_back_mark mark = rg_back_marked(l);
    shared s = { .l = l, .n = n, .one_sum = n > 1 && g[0].y == g[1].y };
    int n_lay = 0, n_parts = 0;

    RG_ASSERT(n <= RG_GEMM_MOST);
    for (int k = 0; k < n; k++) {
        int parts[2] = { 0 };

        s.p[k] = lay_out(l, &g[k], (int)depth_of(l, g[k].k), NULL);
        make_room(l, &s, k, parts);
        s.lay_end[2 * k] = n_lay += parts[0];
        s.lay_end[2 * k + 1] = n_lay += parts[1];
    }
    s.tiles = rg_back_room(l, (size_t)l->n_threads * (TILE + NEAR));
    rg_back_each(l, n_lay, lay_part, &s);
    for (int cut = 1; cut <= MOST_CUT && (cut == 1 || n_parts < ENOUGH * l->n_threads); cut *= 2)
        n_parts = cut_parts(&s, cut);
    rg_back_each(l, n_parts, multiply_part, &s);
    rg_back_give(l, mark);
}

void rg_gemm_run(rg_back_lane *l, const rg_gemm *g)
{
    rg_gemm_run_all(l, g, 1);
}
