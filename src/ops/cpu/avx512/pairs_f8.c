/* pairs_f8.c -- the recipe `pairs` of F8 weights, where there is vdpbf16ps and a byte lookup in a table of 128.
 *
 * Two lookups give the bytes of each value as bf16 (e4m3.h), and two more put them in pairs of columns.  A few rows
 * decode on the way to their sums; many share a step of two panels that is decoded to L1 once.  At a step's end its
 * sum takes the scale.  So four chains of few rows in registers are quicker than one chain of many rows (tile_tmpl.h),
 * whose sums would be stored four times for each step. */
#include "ops/cpu/avx512/e4m3.h"
#include "ops/cpu/avx512/init.h"

enum {
    STEP = 128,   /* columns */
    PANELS = 2,   /* that share a row's values */
    FEW = 8,      /* rows: 16 chains, 6 vectors of tables and 4 of weights in 32 registers */
    TILE = 3,     /* rows by two panels: 24 chains, 2 vectors of weights and x */
    BATCH = 96,   /* rows that share a decoded step */
    AHEAD = 4096, /* bytes prefetched ahead of a few rows' stream: the hardware stops at each page */
};

/* The tables, and where the bytes of a pair of columns are among 64 low and 64 high ones. */
typedef struct pair_lookup {
    lookup bytes;
    __m512i pair[2];
} pair_lookup;

ALWAYS_INLINE pair_lookup load_lookup(void)
{
    const __m512i rows = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i first = _mm512_add_epi8(_mm512_mullo_epi32(rows, _mm512_set1_epi32(0x01010101)),
                                          _mm512_set1_epi32(0x50104000)); /* low, high, low, high */

    return (pair_lookup){ load_e4m3_lookup(), { first, _mm512_add_epi8(first, _mm512_set1_epi8(32)) } };
}

/* Four columns at q as two vectors of pairs. */
ALWAYS_INLINE void decode(const pair_lookup *t, const uint8_t *q, __m512i w[2])
{
    __m512i lows, highs;

    look_up(&t->bytes, q, &lows, &highs);
    w[0] = _mm512_permutex2var_epi8(lows, t->pair[0], highs);
    w[1] = _mm512_permutex2var_epi8(lows, t->pair[1], highs);
}

typedef vec chains[4]; /* by pair of columns modulo 4 */

/* Chains [first, first + n) of rows [0, n_rows) at 0; all constants, as below. */
ALWAYS_INLINE void clear(chains *c, int n_rows, int first, int n)
{
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int i = first; i < first + n; i++)
            c[r][i] = splat(0.0f);
}

/* acc + d * the sum of a step, a being c[0] + c[1] of its chains, b the rest. */
ALWAYS_INLINE vec fold(vec acc, vec a, vec b, vec d)
{
    return _mm512_fmadd_ps(a + b, d, acc);
}

/* ---- a few rows -------------------------------------------------------------------------------------------------- */

/* Add the chains [first, first + n) of a step, for rows of x that are ldx apart; n is 2 or 4. */
ALWAYS_INLINE void add_chains(const pair_lookup *t, const rg_step_f8 *s, const uint16_t *x, size_t ldx, int n_rows,
                              int first, int n, chains *c)
{
    const uint16_t *xr[FEW];

#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
        xr[r] = x + (size_t)r * ldx + 2 * first;
    for (int k = 2 * first; k < STEP; k += 8) {
        __m512i w[4];

#pragma GCC unroll 2
        for (int i = 0; i < n; i += 2) {
            __builtin_prefetch(s->q[k + 2 * i] + AHEAD);
            decode(t, s->q[k + 2 * i], w + i);
        }
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++) {
            __asm__("" : "+r"(xr[r])); /* a pointer per row, not an index */
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                c[r][first + i] = _mm512_dpbf16_ps(c[r][first + i], (__m512bh)w[i], (__m512bh)two_of(xr[r] + 2 * i));
            xr[r] += 8;
        }
    }
}

/* A panel by n_rows rows, a constant: two chains at once where four of each row have no room. */
ALWAYS_INLINE void panel_rows(const rg_product *p, int n_rows)
{
    const int at_once = n_rows <= FEW / 2 ? 4 : 2;
    const pair_lookup t = load_lookup();
    const rg_step_f8 *s = (const void *)p->panel;
    vec acc[FEW];

#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
        acc[r] = splat(0.0f);
    for (int k = 0; k < p->cols; k += STEP, s++) {
        chains c[FEW];
        vec sum[FEW];

        __builtin_prefetch((const uint8_t *)s->d + AHEAD);
        clear(c, n_rows, 0, at_once);
        add_chains(&t, s, p->h + k, p->ldx, n_rows, 0, at_once, c);
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++)
            sum[r] = c[r][0] + c[r][1];
        if (at_once == 2) {
            clear(c, n_rows, 2, 2);
            add_chains(&t, s, p->h + k, p->ldx, n_rows, 2, 2, c);
        }
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++)
            acc[r] = fold(acc[r], sum[r], c[r][2] + c[r][3], load_f32(s->d));
    }
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
        store_f32(p->y + (size_t)r * p->ldy, acc[r]);
}

static void few_rows(const rg_product *p)
{
    for (int i = 0; i < p->n_panels; i++) {
        const rg_product q = part_of(p, i, 0, FEW);

        switch (q.m) {
        case 1: panel_rows(&q, 1); break;
        case 2: panel_rows(&q, 2); break;
        case 3: panel_rows(&q, 3); break;
        case 4: panel_rows(&q, 4); break;
        case 5: panel_rows(&q, 5); break;
        case 6: panel_rows(&q, 6); break;
        case 7: panel_rows(&q, 7); break;
        default: panel_rows(&q, FEW);
        }
    }
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

/* A step of up to PANELS panels as bf16, its scales, and the sums of the rows that share it. */
typedef struct shared {
    _Alignas(64) uint8_t w[PANELS][STEP * 16 * 2];
    vec d[PANELS], acc[BATCH][PANELS];
} shared;

/* The step of each panel that lies `at` bytes behind its begin; the next one comes near meanwhile, but not
 * to L1, which has no room.  Not inlined: its tables would take registers from the tiles. */
static __attribute__((noinline)) void decode_step(shared *to, const rg_product *p, size_t at)
{
    const pair_lookup t = load_lookup();

    for (int i = 0; i < p->n_panels; i++) {
        const rg_step_f8 *s = (const void *)(p->panel + (size_t)i * p->panel_bytes + at);

        to->d[i] = load_f32(s->d);
        __builtin_prefetch(s[1].d, 0, 2);
        for (int k = 0; k < STEP; k += 4) {
            __m512i w[2];

            __builtin_prefetch(s[1].q[k], 0, 2);
            decode(&t, s->q[k], w);
            _mm512_store_si512(to->w[i] + 32 * k, w[0]);
            _mm512_store_si512(to->w[i] + 32 * k + 64, w[1]);
        }
    }
}

/* n_rows rows of x, ldx apart, by n panels, both constants: four chains at once, so that none of them leaves its
 * register. */
ALWAYS_INLINE void add_tile(const shared *s, const uint16_t *x, size_t ldx, int n_rows, int n, vec (*acc)[PANELS])
{
    chains c[TILE * PANELS];

    clear(c, n_rows * n, 0, 4);
    for (int k = 0; k < STEP; k += 8)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m512i w[PANELS];
#pragma GCC unroll 2
            for (int v = 0; v < n; v++)
                w[v] = _mm512_load_si512(s->w[v] + 32 * k + 64 * i);
#pragma GCC unroll 3
            for (int r = 0; r < n_rows; r++) {
                const __m512 xr = splat_at(x + (size_t)r * ldx + k + 2 * i);
#pragma GCC unroll 2
                for (int v = 0; v < n; v++)
                    c[r * n + v][i] = _mm512_dpbf16_ps(c[r * n + v][i], (__m512bh)w[v], (__m512bh)xr);
            }
        }
#pragma GCC unroll 6
    for (int i = 0; i < n_rows * n; i++)
        acc[i / n][i % n] = fold(acc[i / n][i % n], c[i][0] + c[i][1], c[i][2] + c[i][3], s->d[i % n]);
}

/* All rows of p, that is, by the step at hand of n panels, a constant, from column k on. */
ALWAYS_INLINE void add_rows(shared *s, const rg_product *p, int k, int n)
{
    const uint16_t *x = p->h + k;
    int r = 0;

    for (; r + TILE <= p->m; r += TILE, x += TILE * p->ldx)
        add_tile(s, x, p->ldx, TILE, n, s->acc + r);
    if (p->m - r == 2)
        add_tile(s, x, p->ldx, 2, n, s->acc + r);
    else if (p->m - r == 1)
        add_tile(s, x, p->ldx, 1, n, s->acc + r);
}

/* Up to PANELS panels by up to BATCH rows. */
static void in_steps(const rg_product *p)
{
    shared s;

    for (int r = 0; r < p->m; r++)
        for (int i = 0; i < PANELS; i++)
            s.acc[r][i] = splat(0.0f);
    for (int k = 0; k < p->cols; k += STEP) {
        decode_step(&s, p, (size_t)(k / STEP) * sizeof(rg_step_f8));
        if (p->n_panels == PANELS)
            add_rows(&s, p, k, PANELS);
        else
            add_rows(&s, p, k, 1);
    }
    for (int r = 0; r < p->m; r++)
        for (int i = 0; i < p->n_panels; i++)
            store_f32(p->y + (size_t)r * p->ldy + 16 * i, s.acc[r][i]);
}

static void pairs_f8(const rg_product *p)
{
    const int near = near_rows((size_t)p->cols * sizeof *p->h);
    const int rows = near < BATCH / 2 ? BATCH / 2 : near < BATCH ? near : BATCH; /* some, to make decoding cheap */

    for (int row = 0; row < p->m; row += rows)
        for (int i = 0; i < p->n_panels; i += PANELS) {
            rg_product q = part_of(p, i, row, rows);

            q.n_panels = p->n_panels - i < PANELS ? p->n_panels - i : PANELS;
            if (q.m <= FEW)
                few_rows(&q);
            else
                in_steps(&q);
        }
}

void rg_cpu_add_avx512_pairs_f8(rg_cpu *k)
{
    make_e4m3();
    k->product[RG_BF16_PAIRS][RG_LAYOUT_F8] = pairs_f8;
    k->fast[RG_LAYOUT_F8] = RG_BF16_PAIRS;
}
