/* fast.c -- the fast recipe with VNNI: 16 rows of integer weights by m rows of int8 activations.
 *
 * vpdpbusd multiplies unsigned by signed bytes and adds four products to an int32 exactly (it does not saturate): the
 * weights are the unsigned side as they are packed, and what their offset owes (-8 or -128 times the sum of x) is where
 * the sum starts.  |sum| <= 32 * 255 * 128 + 128 * 32 * 128 < 2^21: exact, and exact as a float.
 *
 * One row streams the panel once from memory.  More rows share an unpacked piece of the panel that stays in L1; the
 * running sums wait in y between pieces. */
#include "ops/cpu/avx512/piece.h"

enum {
    GROUP = 8,    /* rows whose sums are in flight together; the window overlaps groups */
    AHEAD = 4096, /* bytes prefetched ahead of one row's stream: the hardware stops at each page */
};

/* sum + w . four bytes at x, in every lane.  By name, because gcc does not fold the broadcast into the operand. */
ALWAYS_INLINE __m512i dot(__m512i sum, __m512i w, const int8_t *x)
{
    typedef struct { int8_t b[4]; } four;

    __asm__ volatile("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const four *)(const void *)x));
    return sum;
}

/* ---- one row ----------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE void one_row(rg_layout layout, const uint8_t *panel, int n, const rg_xblock *x, float *y)
{
    const kind kd = kind_of(layout);
    __m512 acc = _mm512_setzero_ps();

    for (int b = 0; b < n; b++) {
        const uint8_t *next = panel + (size_t)b * run_bytes(layout) + AHEAD;
        for (size_t i = 0; i < run_bytes(layout); i += 64)
            _mm_prefetch((const char *)next + i, _MM_HINT_T0);

        rg_run r;
        __m512i s0 = start(kd, x + b, 0); /* two chains: half the latency */
        __m512i s1 = kd == HALVES ? start(kd, x + b, 1) : _mm512_setzero_si512();
        load_run(&r, layout, panel, b);
        for (int i = 0; i < 4; i++) {
            s0 = dot(s0, r.w[i], x[b].q + 4 * i);
            s1 = dot(s1, r.w[4 + i], x[b].q + 16 + 4 * i);
        }
        if (kd == HALVES) {
            acc = add_run(acc, s0, r.s[0].d, x[b].d);
            acc = _mm512_fmadd_ps(r.s[0].m, _mm512_set1_ps(x[b].sh[0]), acc);
            acc = add_run(acc, s1, r.s[1].d, x[b].d);
            acc = _mm512_fmadd_ps(r.s[1].m, _mm512_set1_ps(x[b].sh[1]), acc);
        } else {
            acc = add_run(acc, _mm512_add_epi32(s0, s1), r.s[0].d, x[b].d);
            if (kd == MINIMUM)
                acc = _mm512_fmadd_ps(r.s[0].m, _mm512_set1_ps(x[b].s), acc);
        }
    }
    _mm512_storeu_ps(y, acc);
}

/* ---- more rows --------------------------------------------------------------------------------------------------- */

/* What all rows of a call share. */
typedef struct job {
    const rg_xblock *x;
    size_t ldx;
    float *y;
    size_t ldy;
    bool first; /* sums start from 0, not from y */
} job;

/* Half h (or all) of run b into the sums of n_rows rows, GROUP rows at a time.  Everything but b is a constant. */
ALWAYS_INLINE void add_half(kind kd, const piece *p, int b, int h, const rg_xblock **x, int n_rows, __m512 *acc)
{
    const int n_dots = kd == HALVES ? 4 : 8;
    const __m512 d = _mm512_load_ps(p->run[b].d[h]);
    __m512i w[8];

#pragma GCC unroll 8
    for (int i = 0; i < n_dots; i++)
        w[i] = _mm512_load_si512(p->run[b].q[h * 4 + i]);
#pragma GCC unroll 16
    for (int r0 = 0; r0 < n_rows; r0 += GROUP) {
        __m512i sum[GROUP];

        for (int r = 0; r < GROUP && r0 + r < n_rows; r++)
            sum[r] = start(kd, x[r0 + r], h);
#pragma GCC unroll 8
        for (int i = 0; i < n_dots; i++)
            for (int r = 0; r < GROUP && r0 + r < n_rows; r++)
                sum[r] = dot(sum[r], w[i], x[r0 + r]->q + 16 * h + 4 * i);
        for (int r = 0; r < GROUP && r0 + r < n_rows; r++) {
            const rg_xblock *xr = x[r0 + r];
            acc[r0 + r] = add_run(acc[r0 + r], sum[r], d, xr->d);
            if (kd == MINIMUM || kd == HALVES)
                acc[r0 + r] = _mm512_fmadd_ps(_mm512_load_ps(p->run[b].m[h]),
                                              _mm512_set1_ps(kd == HALVES ? xr->sh[h] : xr->s), acc[r0 + r]);
        }
    }
}

/* n_rows rows from `row` on, over n runs; n_rows is a constant wherever this is called. */
ALWAYS_INLINE void tile(kind kd, const piece *p, int n, const job *j, int row, int n_rows)
{
    float *y = j->y + (size_t)row * j->ldy;
    const rg_xblock *x[16];
    __m512 acc[16];

#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++) {
        x[r] = j->x + (size_t)(row + r) * j->ldx;
        acc[r] = j->first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + (size_t)r * j->ldy);
    }
    for (int b = 0; b < n; b++) {
        /* A pointer per row, kept in its register: an index would cost an operation with every operand. */
#pragma GCC unroll 16
        for (int r = 0; r < n_rows; r++)
            __asm__("" : "+r"(x[r]));
        add_half(kd, p, b, 0, x, n_rows, acc);
        if (kd == HALVES)
            add_half(kd, p, b, 1, x, n_rows, acc);
#pragma GCC unroll 16
        for (int r = 0; r < n_rows; r++)
            x[r]++;
    }
#pragma GCC unroll 16
    for (int r = 0; r < n_rows; r++)
        _mm512_storeu_ps(y + (size_t)r * j->ldy, acc[r]);
}

#define TILES(name, kd)                                                                                                \
    static __attribute__((noinline)) void name##_8(const piece *p, int n, const job *j, int row)                      \
    {                                                                                                                  \
        tile(kd, p, n, j, row, 8);                                                                                     \
    }                                                                                                                  \
    static __attribute__((noinline)) void name##_4(const piece *p, int n, const job *j, int row)                       \
    {                                                                                                                  \
        tile(kd, p, n, j, row, 4);                                                                                     \
    }                                                                                                                  \
    static __attribute__((noinline)) void name##_1(const piece *p, int n, const job *j, int row)                       \
    {                                                                                                                  \
        tile(kd, p, n, j, row, 1);                                                                                     \
    }                                                                                                                  \
    static void name(const piece *p, int n, const job *j, int m)                                                       \
    {                                                                                                                  \
        int row = 0;                                                                                                   \
        for (; row + 8 <= m; row += 8)                                                                               \
            name##_8(p, n, j, row);                                                                                   \
        for (; row + 4 <= m; row += 4)                                                                                 \
            name##_4(p, n, j, row);                                                                                    \
        for (; row < m; row++)                                                                                         \
            name##_1(p, n, j, row);                                                                                    \
    }

TILES(rows_scale_4, SCALE_4)
TILES(rows_scale_8, SCALE_8)
TILES(rows_minimum, MINIMUM)
TILES(rows_halves, HALVES)

ALWAYS_INLINE void panel_rows(rg_layout layout, const uint8_t *panel, int n, const rg_xblock *x, size_t ldx, int m,
                              float *y, size_t ldy)
{
    job j = { .x = x, .ldx = ldx, .y = y, .ldy = ldy };
    piece p;

    if (m == 1) {
        one_row(layout, panel, n, x, y);
        return;
    }
    for (int b = 0; b < n; b += RUNS) {
        const int here = n - b < RUNS ? n - b : RUNS;

        unpack(&p, layout, panel, b, here);
        j.x = x + b;
        j.first = b == 0;
        switch (kind_of(layout)) {
        case SCALE_4: rows_scale_4(&p, here, &j, m); break;
        case SCALE_8: rows_scale_8(&p, here, &j, m); break;
        case MINIMUM: rows_minimum(&p, here, &j, m); break;
        case HALVES: rows_halves(&p, here, &j, m); break;
        }
    }
}

#define TARGET
#include "ops/cpu/fast_tmpl.h"

void rg_avx512_init_fast(rg_cpu *k)
{
    fill_fast(k);
}
