/* rows_tmpl.h -- the fast recipe: 16 rows of integer weights by m rows of int8 activations, whatever adds up products.
 *
 * A few rows stream the panel from memory and unpack it in registers as it goes by.  More rows share an unpacked piece
 * of it in L1, and the running sums wait in y.
 *
 * Included where these are defined:
 *     FEW, FEWS(DO, ...)    rows that meet a panel as it lies; DO(..., n) for n from 1 to FEW
 *     TILE, TILES(DO, ...)  rows that meet an unpacked piece; DO(..., n) for n from (TILE + 1) / 2 to TILE
 *     many                  rows for which unpacking pays, FEW + 1 at least
 *     BEGIN, as_float       where a sum of products begins; a sum that began there as a float
 *     taken                 what factors are less than the weights' unsigned integers
 *     factor_book, factor   the panel's table; four columns of one part of a run, as bytes that are multiplied
 *     factors, unpack_factors  all of a run in L1, and how they are made
 *     begin                 where the sum of half h of those begins: BEGIN, and what their form lacks
 *     sums, clear_sums      of one row over half a run, [part], and their beginning
 *     add_few               product n of half a run, of a factor
 *     add_unpacked          product n of half a run, of group i of factors
 *     total                 the sum as int32; start: where clear_sums began it */
#ifndef RG_OPS_CPU_AVX2_ROWS_TMPL_H
#define RG_OPS_CPU_AVX2_ROWS_TMPL_H

enum {
    RUNS = 16, /* of 32 columns in a piece, whole steps: 10 KiB, or 20 */
    MOST = FEW > TILE ? FEW : TILE,
    AHEAD = 2048, /* bytes prefetched ahead of the stream of a few rows: the hardware stops at each page */
};

/* A run of a panel, unpacked; scales per [half][part], zero points as integers. */
typedef struct run {
    factors f;
    scales s[2][2];
} run;

/* Scales of a step of K3, by half run. */
typedef struct k3_scales {
    int8_t s[16][16];
} k3_scales;

/* Where a run is: unpacked, or run b of a panel with the table t, or of K3 in a step with these scales. */
typedef struct place {
    const run *unpacked;
    const uint8_t *panel;
    const book *t;
    const k3_scales *k3;
    int b;
} place;

/* n runs of a panel, as they lie or unpacked; and rows of x and y that meet them. */
typedef struct meeting {
    const uint8_t *panel;
    const run *unpacked;
    int n;
    bool first; /* sums start from 0, not from y */
    const rg_xblock *x;
    size_t ldx;
    float *y;
    size_t ldy;
    ptrdiff_t next; /* of unpacked runs: bytes from these rows of x to those that come next */
    const uint8_t *coming; /* the weights that come next; each run fetches n_lines of them */
    int n_lines;
    bool own; /* also fetch what lies further on in the present panel */
} meeting;

ALWAYS_INLINE __m256i bits_of(const uint8_t *p, int from, int n)
{
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);

    return _mm256_and_si256(shifted(v, from), _mm256_set1_epi8((char)((1 << n) - 1)));
}

/* Before run b of a panel of K3, if it is the first of its step: two runs at a time, four bits, above them two, and 32
 * less. */
ALWAYS_INLINE void begin_step(rg_layout layout, k3_scales *to, const uint8_t *panel, int b)
{
    const rg_step_k3 *k = (const void *)run_step(layout, panel, b);

    if (layout != RG_LAYOUT_K3 || run_in_step(layout, b))
        return;
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m256i low = bits_of(k->low[i], 4 * h, 4);
            const __m256i high = _mm256_slli_epi16(bits_of(k->high[i % 4], i / 4 * 4 + 2 * h, 2), 4);
            const __m256i v = _mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32));

            _mm_storeu_si128((__m128i *)(void *)to->s[2 * i + h], _mm256_castsi256_si128(v));
            _mm_storeu_si128((__m128i *)(void *)to->s[2 * i + 2 + h], _mm256_extracti128_si256(v, 1));
        }
}

/* As sums want them: zero points as integers of 16 bits, what is taken from the factors too. */
ALWAYS_INLINE scales sum_scales(rg_layout layout, const uint8_t *panel, const k3_scales *k3, int b, int h, int part)
{
    const rg_step_k3 *k = (const void *)run_step(layout, panel, b);
    scales s = { 0 };

    if (layout == RG_LAYOUT_K3) {
        s.d = load_f16(k->d + WIDTH * part) * load_i8(k3->s[2 * run_in_step(layout, b) + h] + WIDTH * part);
        return s;
    }
    s = run_int8_scales(layout, panel, b, h, part);
    if (has_zero(layout)) {
        const __m256i z = _mm256_sub_epi32(_mm256_cvtps_epi32(s.m), _mm256_set1_epi32(taken(layout)));
        s.m = _mm256_castsi256_ps(_mm256_and_si256(z, _mm256_set1_epi32(0xffff)));
    }
    return s;
}

/* Where the sum of half h of a run starts; from: without its offset; m: the zero points. */
ALWAYS_INLINE __m256i start(rg_layout layout, __m256i from, __m256 m, const rg_xblock *x, int h)
{
    const int offset = offset_of(layout) - taken(layout);
    __m256i owed;

    if (has_zero(layout)) /* -sum of x is an integer of 16 bits too */
        owed = _mm256_madd_epi16(_mm256_castps_si256(m), _mm256_set1_epi32(x->neg8 >> 3));
    else if (offset == 0)
        return from;
    else if (n_halves_of(layout) == 2) /* powers of two: exact */
        owed = _mm256_set1_epi32(x->neg128h[h] >> __builtin_ctz((unsigned)(128 / offset)));
    else if (offset == 128)
        owed = _mm256_set1_epi32(x->neg128);
    else
        owed = _mm256_set1_epi32(offset == 1 ? x->neg8 >> 3 : x->neg8 * (offset / 8));
    return _mm256_add_epi32(from, owed);
}

ALWAYS_INLINE __m256i four(const int8_t *x)
{
    int32_t v;

    __builtin_memcpy(&v, x, 4);
    return _mm256_set1_epi32(v);
}

/* The sum of half h of a run, with its scales, into a result. */
ALWAYS_INLINE __m256 add_scaled(rg_layout layout, __m256 acc, __m256i sum, scales s, const rg_xblock *x, int h)
{
    acc = _mm256_fmadd_ps(as_float(sum), _mm256_mul_ps(s.d, _mm256_set1_ps(x->d)), acc);
    if (has_minimum(layout))
        acc = _mm256_fmadd_ps(s.m, _mm256_set1_ps(n_halves_of(layout) == 2 ? x->sh[h] : x->s), acc);
    return acc;
}

/* Half h (or all) of a run into acc of n_rows rows; everything but the place is a constant. */
ALWAYS_INLINE void add_half(rg_layout layout, bool unpacked, const place *w, int h, int n_rows,
                            const rg_xblock *const *x, __m256 (*acc)[2])
{
    const int n_groups = 8 / n_halves_of(layout), first = h * n_groups;
    __m256i from[2], v[2];
    scales s[2];
    sums sum[MOST];

#pragma GCC unroll 2
    for (int part = 0; part < 2; part++) {
        s[part] = unpacked ? w->unpacked->s[h][part] : sum_scales(layout, w->panel, w->k3, w->b, h, part);
        from[part] = unpacked ? begin(layout, &w->unpacked->f, h, part) : BEGIN;
    }
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int part = 0; part < 2; part++)
            clear_sums(layout, &sum[r], part, start(layout, from[part], s[part].m, x[r], h));
#pragma GCC unroll 8
    for (int i = 0; i < n_groups; i++) {
#pragma GCC unroll 2
        for (int part = 0; part < 2 && !unpacked; part++)
            v[part] = factor(layout, w->t, run_q(layout, w->panel, w->b), first + i, part);
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++) {
            const __m256i xi = four(x[r]->q + 4 * (first + i));
#pragma GCC unroll 2
            for (int part = 0; part < 2; part++)
                if (unpacked)
                    add_unpacked(layout, &sum[r], part, i, &w->unpacked->f, first + i, xi);
                else
                    add_few(layout, &sum[r], part, i, v[part], xi);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int part = 0; part < 2; part++) {
            const __m256i more = start(layout, from[part], s[part].m, x[r], h);
            acc[r][part] = add_scaled(layout, acc[r][part], total(layout, &sum[r], part, more), s[part], x[r], h);
        }
}

/* What is needed soon: the weights that come next; of a panel what lies further on, of unpacked runs the next rows. */
ALWAYS_INLINE void fetch(rg_layout layout, bool unpacked, const place *w, int n_rows, const rg_xblock *const *x,
                         const meeting *m, ptrdiff_t next)
{
#pragma GCC unroll 8
    for (int r = 0; r < n_rows && unpacked; r++)
        _mm_prefetch((const char *)x[r] + next, _MM_HINT_T0);
    for (int i = w->b * m->n_lines; i < (w->b + 1) * m->n_lines; i++)
        _mm_prefetch((const char *)m->coming + 64 * i, _MM_HINT_T0);
    for (size_t i = 0; i < run_bytes(layout) && !unpacked && m->own; i += 64)
        _mm_prefetch((const char *)run_share(layout, w->panel, w->b) + AHEAD + i, _MM_HINT_T0);
}

/* n_rows rows; n_rows is a constant. */
ALWAYS_INLINE void meet(rg_layout layout, bool unpacked, const meeting *m, int n_rows)
{
    const book t = unpacked ? (book){ 0 } : factor_book(layout, m->panel);
    const ptrdiff_t next = m->next;
    const int n = m->n;
    k3_scales k3;
    place w = { .unpacked = m->unpacked, .panel = m->panel, .t = &t, .k3 = &k3 };
    const rg_xblock *x[MOST];
    __m256 acc[MOST][2];

#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++) {
        x[r] = m->x + (size_t)r * m->ldx;
        for (int part = 0; part < 2; part++)
            acc[r][part] = m->first ? _mm256_setzero_ps() : _mm256_loadu_ps(m->y + (size_t)r * m->ldy + 8 * part);
    }
    for (; w.b < n; w.b++, w.unpacked++) {
        /* A pointer per row, kept in its register: an index would cost an operation with every operand. */
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++)
            __asm__("" : "+r"(x[r]));
        fetch(layout, unpacked, &w, n_rows, x, m, next);
        if (!unpacked)
            begin_step(layout, &k3, m->panel, w.b);
        add_half(layout, unpacked, &w, 0, n_rows, x, acc);
        if (n_halves_of(layout) == 2)
            add_half(layout, unpacked, &w, 1, n_rows, x, acc);
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++)
            x[r]++;
    }
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
        for (int part = 0; part < 2; part++)
            _mm256_storeu_ps(m->y + (size_t)r * m->ldy + 8 * part, acc[r][part]);
}

/* Each as a function of its own: the compiler then sees its sums and nothing else to keep in 16 registers. */
#define MEET_FEW(name, layout, rows)                                                                                   \
    static __attribute__((noinline)) void few_##name##_##rows(const meeting *m)                                        \
    {                                                                                                                  \
        meet(layout, false, m, rows);                                                                                  \
    }
#define MEET_TILE(name, layout, rows)                                                                                  \
    static __attribute__((noinline)) void tile_##name##_##rows(const meeting *m)                                       \
    {                                                                                                                  \
        meet(layout, true, m, rows);                                                                                   \
    }
#define CASE_FEW(name, layout, rows)                                                                                   \
    case rows: few_##name##_##rows(m); return;
#define CASE_TILE(name, layout, rows)                                                                                  \
    case rows: tile_##name##_##rows(m); return;
#define MEETINGS(name, layout)                                                                                         \
    FEWS(MEET_FEW, name, layout)                                                                                       \
    TILES(MEET_TILE, name, layout)                                                                                     \
    static void few_##name(const meeting *m, int rows)                                                                 \
    {                                                                                                                  \
        switch (rows) {                                                                                                \
            FEWS(CASE_FEW, name, layout)                                                                               \
        }                                                                                                              \
    }                                                                                                                  \
    static void tile_##name(const meeting *m, int rows)                                                                \
    {                                                                                                                  \
        switch (rows) {                                                                                                \
            TILES(CASE_TILE, name, layout)                                                                             \
        }                                                                                                              \
    }

INTEGER_LAYOUTS(MEETINGS)

ALWAYS_INLINE void meet_rows(rg_layout l, bool unpacked, const meeting *m, int rows)
{
#define MEET(name, layout)                                                                                             \
    if (l == layout)                                                                                                   \
        unpacked ? tile_##name(m, rows) : few_##name(m, rows);
    INTEGER_LAYOUTS(MEET)
}

/* n runs of a panel, the first one and on. */
ALWAYS_INLINE void unpack(run *u, rg_layout layout, const uint8_t *panel, int first, int n)
{
    const book t = factor_book(layout, panel);
    k3_scales k3;

    for (int b = first; b < first + n; b++, u++) {
        begin_step(layout, &k3, panel, b);
        unpack_factors(layout, &u->f, &t, run_q(layout, panel, b));
#pragma GCC unroll 2
        for (int h = 0; h < n_halves_of(layout); h++)
            for (int part = 0; part < 2; part++)
                u->s[h][part] = sum_scales(layout, panel, &k3, b, h, part);
    }
}

/* m rows, in as few tiles as there can be, all of about a size; behind them come the same rows, RUNS further on.  Of
 * the n bytes of weights that come next each of several tiles fetches its share, since memory is idle meanwhile. */
ALWAYS_INLINE void meet_all(rg_layout layout, bool unpacked, meeting t, int m, size_t n)
{
    const int most = unpacked ? TILE : FEW;
    const uint8_t *const end = t.coming + n;
    int tiles = (m + most - 1) / most;

    t.own = true;
    t.n_lines = tiles < 2 ? 0 : ((int)n / 64 + tiles * t.n - 1) / (tiles * t.n);
    for (int row = 0, here; row < m; row += here, tiles--, t.own = false) {
        here = (m - row + tiles - 1) / tiles;
        t.n_lines = t.coming < end ? t.n_lines : 0;
        t.next = (ptrdiff_t)sizeof *t.x * (tiles > 1 ? here * (ptrdiff_t)t.ldx : RUNS - row * (ptrdiff_t)t.ldx);
        meet_rows(layout, unpacked, &t, here);
        t.x += (size_t)here * t.ldx;
        t.y += (size_t)here * t.ldy;
        t.coming += 64 * t.n_lines * t.n;
    }
}

ALWAYS_INLINE void panel_rows(rg_layout layout, const rg_product *p)
{
    const int n = p->cols / 32;
    const uint8_t *const next = p->next ? p->next : p->panel; /* again: there is no next one to fetch */
    meeting t = { .panel = p->panel, .n = n, .first = true, .x = p->q, .ldx = p->ldx, .y = p->y, .ldy = p->ldy,
                  .coming = next };
    run piece[RUNS];

    if (p->m < many(layout)) {
        meet_all(layout, false, t, p->m, p->panel_bytes);
        return;
    }
    t.unpacked = piece;
    for (int b = 0; b < n; b += RUNS, t.x += RUNS, t.first = false) {
        t.n = n - b < RUNS ? n - b : RUNS;
        t.coming = b + RUNS < n ? run_step(layout, p->panel, b + RUNS) : next;
        unpack(piece, layout, p->panel, b, t.n);
        meet_all(layout, true, t, p->m, RUNS * run_bytes(layout));
    }
}

#define TARGET
#include "ops/cpu/fast_tmpl.h"

#endif
