/* fast.c -- the fast recipe with VNNI: 16 rows of integer weights by m rows of int8 activations.
 *
 * vpdpbusd multiplies unsigned by signed bytes and adds four products to an int32 exactly (it does not saturate): the
 * weights are the unsigned side as they are packed, and what their offset owes (-8 or -128 times the sum of x) is where
 * the sum starts.  |sum| <= 32 * 255 * 128 + 128 * 32 * 128 < 2^21: exact, and exact as a float.
 *
 * One row streams the panel once from memory.  A few rows unpack it in registers as it goes by.  More than ten take two
 * panels at a time, so that four bytes of x are loaded once for both: by one panel they wait for loads.  (Where a run
 * has scales of its own that gains nothing.)  Many rows unpack a piece of both panels into L1; the running sums wait in
 * y between pieces, and all panels of the product have their turn with a piece's columns of x, which stay in L2.
 *
 * Where rows make several tiles, memory is idle while the second and later ones meet a panel: so each tile fetches its
 * share of the panels that come next. */
#include "ops/cpu/avx512/one_row.h"

enum {
    FEW = 10,      /* rows that go by one panel together: 10 results, 10 sums, weights; a pointer for each */
    PAIR_ROWS = 6, /* rows by two panels: 12 results, 12 sums, weights and x */
    MANY = 128,    /* rows for which unpacking to L1 pays; */
    MANY_HALVES = 36, /* with two sums a run; each sum still needs its offset */
};

/* Four bytes at x in every lane. */
ALWAYS_INLINE __m512i four(const int8_t *x)
{
    typedef struct { int8_t b[4]; } bytes4;
    __m512i v;

    __asm__ volatile("vpbroadcastd %1, %0" : "=v"(v) : "m"(*(const bytes4 *)(const void *)x));
    return v;
}

/* sum + w . x, lane by lane; by name, so that the compiler does not fold the broadcast into it again. */
ALWAYS_INLINE __m512i dot4(__m512i sum, __m512i w, __m512i x)
{
    __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
}

/* ---- a few rows -------------------------------------------------------------------------------------------------- */

/* Half h (or all) of run b of n_panels panels, 1 or 2, into the results of n_rows rows at x; all but b and x are
 * constants. */
ALWAYS_INLINE void add_few(rg_layout layout, int n_panels, int n_rows, const uint8_t *const *panel, const book *t,
                           int b, int h, const rg_xblock *const *x, __m512 (*acc)[2])
{
    const kind kd = kind_of(layout);
    const int n_dots = 8 / halves_of(kd);
    const uint8_t *q[2];
    __m512i sum[FEW][2];
    scales s[2];

#pragma GCC unroll 2
    for (int i = 0; i < n_panels; i++) {
        s[i] = run_int8_scales(layout, panel[i], b, h, 0);
        q[i] = run_q(layout, panel[i], b);
    }
#pragma GCC unroll 10
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int i = 0; i < n_panels; i++)
            sum[r][i] = start(kd, s[i].m, x[r], h);
#pragma GCC unroll 8
    for (int g = h * n_dots; g < (h + 1) * n_dots; g++) {
        __m512i w[2];

#pragma GCC unroll 2
        for (int i = 0; i < n_panels; i++)
            w[i] = run_group(layout, &t[i], q[i], g);
#pragma GCC unroll 10
        for (int r = 0; r < n_rows; r++)
            if (n_panels == 1) {
                sum[r][0] = dot(sum[r][0], w[0], x[r]->q + 4 * g);
            } else {
                const __m512i xg = four(x[r]->q + 4 * g);

                sum[r][0] = dot4(sum[r][0], w[0], xg);
                sum[r][1] = dot4(sum[r][1], w[1], xg);
            }
    }
#pragma GCC unroll 10
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int i = 0; i < n_panels; i++)
            acc[r][i] = add_scaled(kd, acc[r][i], sum[r][i], s[i].d, s[i].m, x[r], h);
}

/* What one of several tiles fetches with every run: `each` bytes of the panels that come next, from `at` on; and if it
 * is the first to read its own panels, what is further on in them. */
typedef struct coming {
    const uint8_t *at;
    size_t each;
    bool own;
} coming;

/* n_rows rows from `row` on by n_panels panels; both are constants.  c: NULL, a constant too: the tile is alone, and so
 * reads its panel as fast as it can. */
ALWAYS_INLINE void few_rows(rg_layout layout, int n_panels, int n_rows, const rg_product *p, int row, const coming *c)
{
    const uint8_t *next = c ? c->at : NULL, *end = next;
    const uint8_t *const panel[2] = { p->panel, p->panel + (n_panels == 2 ? p->panel_bytes : 0) };
    const book t[2] = { load_book(layout, panel[0]), load_book(layout, panel[1]) };
    const rg_xblock *x[FEW];
    __m512 acc[FEW][2];

#pragma GCC unroll 10
    for (int r = 0; r < n_rows; r++) {
        x[r] = p->q + (size_t)(row + r) * p->ldx;
        acc[r][0] = acc[r][1] = _mm512_setzero_ps();
    }
    for (int b = 0; b < p->cols / 32; b++) {
        /* A pointer per row, kept in its register: an index would cost an operation with every operand. */
#pragma GCC unroll 10
        for (int r = 0; r < n_rows; r++)
            __asm__("" : "+r"(x[r]));
        if (!c || c->own)
#pragma GCC unroll 2
            for (int i = 0; i < n_panels; i++)
                fetch_on(run_share(layout, panel[i], b), run_bytes(layout));
        for (end += c ? c->each : 0; c && next < end; next += 64)
            _mm_prefetch((const char *)next, _MM_HINT_T0);
        add_few(layout, n_panels, n_rows, panel, t, b, 0, x, acc);
        if (n_halves_of(layout) == 2)
            add_few(layout, n_panels, n_rows, panel, t, b, 1, x, acc);
#pragma GCC unroll 10
        for (int r = 0; r < n_rows; r++)
            x[r]++;
    }
#pragma GCC unroll 10
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int i = 0; i < n_panels; i++)
            _mm512_storeu_ps(p->y + (size_t)(row + r) * p->ldy + 16 * i, acc[r][i]);
}

/* Tiles of rows by one panel, as few as there can be, since each unpacks it. */
ALWAYS_INLINE void one_panel(rg_layout layout, rg_product p)
{
    for (int row = 0, tiles = (p.m + FEW - 1) / FEW, here; row < p.m; tiles--, row += here) {
        here = (p.m - row + tiles - 1) / tiles;
        switch (here) {
        case 1: one_row(layout, p.panel, p.cols / 32, p.q + (size_t)row * p.ldx, p.y + (size_t)row * p.ldy); break;
        case 2: few_rows(layout, 1, 2, &p, row, NULL); break;
        case 3: few_rows(layout, 1, 3, &p, row, NULL); break;
        case 4: few_rows(layout, 1, 4, &p, row, NULL); break;
        case 5: few_rows(layout, 1, 5, &p, row, NULL); break;
        case 6: few_rows(layout, 1, 6, &p, row, NULL); break;
        case 7: few_rows(layout, 1, 7, &p, row, NULL); break;
        case 8: few_rows(layout, 1, 8, &p, row, NULL); break;
        case 9: few_rows(layout, 1, 9, &p, row, NULL); break;
        default: few_rows(layout, 1, FEW, &p, row, NULL);
        }
    }
}

/* Several tiles of up to `most` rows, PAIR_ROWS by two panels or FEW by one; the first panel is number `first`.
 * n_panels is a constant. */
ALWAYS_INLINE void tiles(rg_layout layout, int n_panels, int most, const rg_product *all, int first)
{
    const int behind = first + n_panels, n = (all->m + most - 1) / most, n_runs = all->cols / 32;
    const rg_product p = part_of(all, first, 0, all->m);
    coming c = { all->panel + (size_t)behind * p.panel_bytes, (size_t)n_panels * p.panel_bytes / (size_t)(n * n_runs),
                 first == 0 };

    if (behind >= all->n_panels)
        c.at = all->next ? all->next : all->panel; /* again: there is no next one to fetch */
    for (int row = 0, left = n, here; left; left--, row += here, c.at += c.each * (size_t)n_runs, c.own = false) {
        here = (p.m - row + left - 1) / left;
        switch (here) {
        case 4: few_rows(layout, n_panels, 4, &p, row, &c); continue;
        case 5: few_rows(layout, n_panels, 5, &p, row, &c); continue;
        case 6: few_rows(layout, n_panels, 6, &p, row, &c); continue;
        }
        if (n_panels == 1)
            switch (here) {
            case 7: few_rows(layout, 1, 7, &p, row, &c); break;
            case 8: few_rows(layout, 1, 8, &p, row, &c); break;
            case 9: few_rows(layout, 1, 9, &p, row, &c); break;
            default: few_rows(layout, 1, FEW, &p, row, &c);
            }
    }
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

/* The same piece of two panels, and the rows that meet it. */
typedef struct pair {
    piece of[2];
    int n_runs;
    bool first; /* sums start from 0, not from y */
    const rg_xblock *x;
    size_t ldx;
    float *y;
    size_t ldy;
    const uint8_t *next; /* what will be unpacked after it, of either panel, next_gap apart: */
    size_t next_each, next_gap; /* bytes of it that are fetched with each run of six rows */
} pair;

/* Half h (or all) of run b of both panels into the results of n_rows rows; everything but b is a constant. */
ALWAYS_INLINE void add_pair(kind kd, const pair *p, int b, int h, const rg_xblock *const *x, int n_rows,
                            __m512 (*acc)[2])
{
    const int n_dots = 8 / halves_of(kd);
    __m512i sum[PAIR_ROWS][2];
    __m512 d[2], m[2];

#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        d[i] = _mm512_load_ps(p->of[i].run[b].d[h]);
        m[i] = has_second(kd) ? _mm512_load_ps(p->of[i].run[b].m[h]) : d[i];
    }
#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            sum[r][i] = start(kd, m[i], x[r], h);
#pragma GCC unroll 8
    for (int i = 0; i < n_dots; i++) {
        const __m512i w0 = _mm512_load_si512(p->of[0].run[b].q[h * 4 + i]);
        const __m512i w1 = _mm512_load_si512(p->of[1].run[b].q[h * 4 + i]);
#pragma GCC unroll 6
        for (int r = 0; r < n_rows; r++) {
            const __m512i xi = four(x[r]->q + 16 * h + 4 * i);
            sum[r][0] = dot4(sum[r][0], w0, xi);
            sum[r][1] = dot4(sum[r][1], w1, xi);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            acc[r][i] = add_scaled(kd, acc[r][i], sum[r][i], d[i], m[i], x[r], h);
}

/* n_rows rows from `row` on; n_rows is a constant. */
ALWAYS_INLINE void pair_rows(kind kd, const pair *p, int row, int n_rows)
{
    const uint8_t *next = p->next + (size_t)(row / PAIR_ROWS * p->n_runs) * p->next_each, *end = next;
    float *y = p->y + (size_t)row * p->ldy;
    const rg_xblock *x[PAIR_ROWS];
    __m512 acc[PAIR_ROWS][2];

#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++) {
        x[r] = p->x + (size_t)(row + r) * p->ldx;
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            acc[r][i] = p->first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + (size_t)r * p->ldy + 16 * i);
    }
    for (int b = 0; b < p->n_runs; b++) {
#pragma GCC unroll 6
        for (int r = 0; r < n_rows; r++)
            __asm__("" : "+r"(x[r]));
        for (end += p->next_each; n_rows == PAIR_ROWS && next < end; next += 64) {
            _mm_prefetch((const char *)next, _MM_HINT_T0);
            _mm_prefetch((const char *)next + p->next_gap, _MM_HINT_T0);
        }
        add_pair(kd, p, b, 0, x, n_rows, acc);
        if (halves_of(kd) == 2)
            add_pair(kd, p, b, 1, x, n_rows, acc);
#pragma GCC unroll 6
        for (int r = 0; r < n_rows; r++)
            x[r]++;
    }
#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
            _mm512_storeu_ps(y + (size_t)r * p->ldy + 16 * i, acc[r][i]);
}

/* Rows in sixes, the last of them in fours and ones: m is so large that one or two sixes can be given up for fours. */
#define PAIRS(name, kd)                                                                                                \
    static __attribute__((noinline)) void name##_6(const pair *p, int row)                                             \
    {                                                                                                                  \
        pair_rows(kd, p, row, 6);                                                                                      \
    }                                                                                                                  \
    static __attribute__((noinline)) void name##_4(const pair *p, int row)                                             \
    {                                                                                                                  \
        pair_rows(kd, p, row, 4);                                                                                      \
    }                                                                                                                  \
    static __attribute__((noinline)) void name##_1(const pair *p, int row)                                             \
    {                                                                                                                  \
        pair_rows(kd, p, row, 1);                                                                                      \
    }                                                                                                                  \
    static void name(const pair *p, int m)                                                                             \
    {                                                                                                                  \
        const int sixes = m / 6 - (m % 6 == 2 || m % 6 == 3);                                                          \
        int row = 0;                                                                                                   \
                                                                                                                       \
        for (; row < 6 * sixes; row += 6)                                                                              \
            name##_6(p, row);                                                                                          \
        for (; row + 4 <= m; row += 4)                                                                                 \
            name##_4(p, row);                                                                                          \
        for (; row < m; row++)                                                                                         \
            name##_1(p, row);                                                                                          \
    }

PAIRS(pairs_scale_1, SCALE_1)
PAIRS(pairs_scale_4, SCALE_4)
PAIRS(pairs_scale_5, SCALE_5)
PAIRS(pairs_scale_8, SCALE_8)
PAIRS(pairs_halves_3, HALVES_3)
PAIRS(pairs_halves_6, HALVES_6)
PAIRS(pairs_halves_8, HALVES_8)
PAIRS(pairs_zero, ZERO)
PAIRS(pairs_minimum, MINIMUM)
PAIRS(pairs_half_minima, HALF_MINIMA)

/* All pairs of panels of a product, piece by piece; an odd panel is left. */
ALWAYS_INLINE void all_pairs(rg_layout layout, const rg_product *p)
{
    const int n = p->cols / 32;
    pair a = { .ldx = p->ldx, .ldy = p->ldy, .next_gap = p->panel_bytes,
               .next_each = run_bytes(layout) / (size_t)(p->m / PAIR_ROWS) };

    for (int b = 0; b < n; b += RUNS) {
        a.n_runs = n - b < RUNS ? n - b : RUNS;
        a.first = b == 0;
        a.x = p->q + b;
        for (int i = 0; i + 2 <= p->n_panels; i += 2) {
            const uint8_t *panel = p->panel + (size_t)i * p->panel_bytes;

            unpack(&a.of[0], layout, panel, b, a.n_runs);
            unpack(&a.of[1], layout, panel + p->panel_bytes, b, a.n_runs);
            a.y = p->y + 16 * i;
            if (i + 4 <= p->n_panels)
                a.next = run_step(layout, panel + 2 * p->panel_bytes, b);
            else if (b + RUNS < n) /* the first pair again, a piece further on */
                a.next = run_step(layout, p->panel, b + RUNS);
            else
                a.next = p->next ? p->next : p->panel;
            switch (kind_of(layout)) {
            case SCALE_1: pairs_scale_1(&a, p->m); break;
            case SCALE_4: pairs_scale_4(&a, p->m); break;
            case SCALE_5: pairs_scale_5(&a, p->m); break;
            case SCALE_8: pairs_scale_8(&a, p->m); break;
            case HALVES_3: pairs_halves_3(&a, p->m); break;
            case HALVES_6: pairs_halves_6(&a, p->m); break;
            case HALVES_8: pairs_halves_8(&a, p->m); break;
            case ZERO: pairs_zero(&a, p->m); break;
            case MINIMUM: pairs_minimum(&a, p->m); break;
            case HALF_MINIMA: pairs_half_minima(&a, p->m); break;
            }
        }
    }
}

/* Rows that unpack panels of a layout to L1. */
ALWAYS_INLINE int many(rg_layout layout)
{
    const kind kd = kind_of(layout);

    return halves_of(kd) == 2 && !has_second(kd) ? MANY_HALVES : MANY;
}

#define FAST_PRODUCT(name, layout)                                                                                     \
    static void fast_##name(const rg_product *p)                                                                       \
    {                                                                                                                  \
        int i = 0;                                                                                                     \
                                                                                                                       \
        if (p->m >= many(layout)) {                                                                                    \
            all_pairs(layout, p);                                                                                      \
            i = p->n_panels / 2 * 2;                                                                                   \
        }                                                                                                              \
        for (; p->m > FEW && has_run_scales(layout) && i < p->n_panels; i++)                                           \
            tiles(layout, 1, FEW, p, i);                                                                               \
        for (; p->m > FEW && !has_run_scales(layout) && i + 2 <= p->n_panels; i += 2)                                  \
            tiles(layout, 2, PAIR_ROWS, p, i);                                                                         \
        for (; i < p->n_panels; i++)                                                                                   \
            one_panel(layout, part_of(p, i, 0, p->m));                                                                 \
    }

INTEGER_LAYOUTS(FAST_PRODUCT)

void rg_avx512_init_fast(rg_cpu *k)
{
    INTEGER_LAYOUTS(FILL_FAST)
}
