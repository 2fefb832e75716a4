/* fast.c -- the fast recipe with vpmaddubsw: 16 rows of integer weights by m rows of int8 activations.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds neighbours to int16, saturating; here it never saturates, nor
 * do the int16 sums wrap: the signed side is within +-127, and a lane takes so few pairs before it is widened that
 * |sum| <= pairs * 2 * 127 * (the largest unsigned integer) < 32768: 8 pairs of 4 bits (30480), 4 of 5 bits (31496), 2
 * of 6 bits (32004).  Eight-bit weights are two 4-bit ones: q = 16 high + low, summed apart, and put together in int32,
 * where 32 * 255 * 127 < 2^20.  What an offset owes is added there too.  All of it exact.
 *
 * One row streams the panel from memory; more rows share an unpacked piece of it in L1, and the running sums wait in
 * y. */
#include "ops/cpu/avx2/avx2.h"

enum {
    RUNS = 8, /* of 32 columns in an unpacked piece: 6 or 10 KiB */
    TILE = 2, /* rows at once: with both parts, 4 (or 8) int16 sums in flight */
    AHEAD = 4096, /* bytes prefetched ahead of one row's stream: the hardware stops at each page */
};

/* Sums of one row over the groups of a run: [part].  Of 8-bit weights the low and the high nibbles; of others the first
 * groups, and those that the same lane has no room for. */
typedef struct sums {
    __m256i low[2], high[2];
} sums;

/* Weights of 8 bits, summed as two of 4. */
ALWAYS_INLINE bool is_split(rg_layout layout)
{
    return factor_bits(layout) == 8;
}

/* Groups of four columns that an int16 sum has room for. */
ALWAYS_INLINE int groups_per_sum(rg_layout layout)
{
    const int bits = factor_bits(layout);

    return bits == 6 ? 2 : bits == 5 ? 4 : 8;
}

/* What the sum of half h of a block owes to the weights' offset, or to their zero points z. */
ALWAYS_INLINE __m256i owed(rg_layout layout, __m256 z, const rg_xblock *x, int h)
{
    if (has_zero(layout))
        return _mm256_srai_epi32(_mm256_mullo_epi32(_mm256_cvtps_epi32(z), _mm256_set1_epi32(x->neg8)), 3);
    if (n_halves_of(layout) == 2) /* powers of two: exact */
        return _mm256_set1_epi32(x->neg128h[h] >> __builtin_ctz((unsigned)(128 / offset_of(layout))));
    return _mm256_set1_epi32(offset_of(layout) == 1 ? x->neg8 >> 3 : x->neg8 * (offset_of(layout) / 8));
}

ALWAYS_INLINE __m256i four(const int8_t *x)
{
    int32_t v;

    __builtin_memcpy(&v, x, 4);
    return _mm256_set1_epi32(v);
}

ALWAYS_INLINE __m256i add_dot(__m256i sum, __m256i w, __m256i x)
{
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
}

/* The n-th group of a run or half of it, of one part of one row. */
ALWAYS_INLINE void add_group(rg_layout layout, sums *s, int part, int n, __m256i low, __m256i high, __m256i x)
{
    if (n < groups_per_sum(layout))
        s->low[part] = add_dot(s->low[part], low, x);
    else
        s->high[part] = add_dot(s->high[part], low, x);
    if (is_split(layout))
        s->high[part] = add_dot(s->high[part], high, x);
}

/* One part of one row: sums of half h of a run become part of acc. */
ALWAYS_INLINE __m256 add_run(rg_layout layout, __m256 acc, const sums *s, int part, scales w, const rg_xblock *x, int h)
{
    __m256i sum = _mm256_madd_epi16(s->low[part], _mm256_set1_epi16(1));

    if (is_split(layout) || 8 / n_halves_of(layout) > groups_per_sum(layout))
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(s->high[part], _mm256_set1_epi16(is_split(layout) ? 16 : 1)));
    if (offset_of(layout) || has_zero(layout))
        sum = _mm256_add_epi32(sum, owed(layout, w.m, x, h));
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(w.d, _mm256_set1_ps(x->d)), acc);
    if (has_minimum(layout))
        acc = _mm256_fmadd_ps(w.m, _mm256_set1_ps(n_halves_of(layout) == 2 ? x->sh[h] : x->s), acc);
    return acc;
}

ALWAYS_INLINE void clear(sums *s)
{
    s->low[0] = s->low[1] = s->high[0] = s->high[1] = _mm256_setzero_si256();
}

/* ---- one row ----------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE void one_row(rg_layout layout, const uint8_t *panel, int n, const rg_xblock *x, float *y)
{
    const int n_halves = n_halves_of(layout), n_groups = 8 / n_halves;
    const book t = load_book(layout, panel);
    __m256 acc[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() };

    for (int b = 0; b < n; b++) {
        const uint8_t *q = run_q(layout, panel, b);

        for (size_t i = 0; i < run_bytes(layout); i += 64)
            _mm_prefetch((const char *)q + AHEAD + i, _MM_HINT_T0);
#pragma GCC unroll 2
        for (int h = 0; h < n_halves; h++) {
            sums s;
            clear(&s);
#pragma GCC unroll 8
            for (int i = h * n_groups; i < (h + 1) * n_groups; i++) {
                const __m256i xi = four(x[b].q + 4 * i);
#pragma GCC unroll 2
                for (int part = 0; part < 2; part++)
                    add_group(layout, &s, part, i % n_groups, low_nibbles(layout, &t, q, i, part),
                              high_nibbles(layout, &t, q, i, part), xi);
            }
#pragma GCC unroll 2
            for (int part = 0; part < 2; part++)
                acc[part] = add_run(layout, acc[part], &s, part, run_int8_scales(layout, panel, b, h, part), x + b, h);
        }
    }
    _mm256_storeu_ps(y, acc[0]);
    _mm256_storeu_ps(y + 8, acc[1]);
}

/* ---- more rows --------------------------------------------------------------------------------------------------- */

/* RUNS runs of a panel: nibbles in bytes, [group][part]; d and m per half. */
typedef struct piece {
    struct {
        __m256i low[8][2], high[8][2];
        scales scales[2][2]; /* [half][part] */
    } run[RUNS];
} piece;

ALWAYS_INLINE void unpack(piece *p, rg_layout layout, const uint8_t *panel, int first, int n)
{
    const book t = load_book(layout, panel);

    for (int b = 0; b < n; b++) {
        const uint8_t *q = run_q(layout, panel, first + b);
        for (int i = 0; i < 8; i++)
            for (int part = 0; part < 2; part++) {
                p->run[b].low[i][part] = low_nibbles(layout, &t, q, i, part);
                if (is_split(layout))
                    p->run[b].high[i][part] = high_nibbles(layout, &t, q, i, part);
            }
        for (int h = 0; h < n_halves_of(layout); h++)
            for (int part = 0; part < 2; part++)
                p->run[b].scales[h][part] = run_int8_scales(layout, panel, first + b, h, part);
    }
}

/* Half h (or all) of run b of a piece into acc of n_rows rows; everything but b is a constant. */
ALWAYS_INLINE void add_half(rg_layout layout, const piece *p, int b, int h, const rg_xblock *const *x, int n_rows,
                            __m256 (*acc)[2])
{
    const int n_groups = 8 / n_halves_of(layout);
    sums s[TILE];

#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
        clear(&s[r]);
#pragma GCC unroll 8
    for (int i = h * n_groups; i < (h + 1) * n_groups; i++)
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            const __m256i xi = four(x[r]->q + 4 * i);
#pragma GCC unroll 2
            for (int part = 0; part < 2; part++)
                add_group(layout, &s[r], part, i % n_groups, p->run[b].low[i][part], p->run[b].high[i][part], xi);
        }
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int part = 0; part < 2; part++)
            acc[r][part] = add_run(layout, acc[r][part], &s[r], part, p->run[b].scales[h][part], x[r], h);
}

/* n_rows rows of x over n runs, the sums going on from y unless this is the first piece; n_rows is a constant. */
ALWAYS_INLINE void tile(rg_layout layout, const piece *p, int n, bool first, const rg_xblock *x, size_t ldx, int n_rows,
                        float *y, size_t ldy)
{
    const rg_xblock *xr[TILE];
    __m256 acc[TILE][2];

#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
        for (int part = 0; part < 2; part++)
            acc[r][part] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(y + (size_t)r * ldy + 8 * part);
    for (int b = 0; b < n; b++) {
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++)
            xr[r] = x + (size_t)r * ldx + b;
        add_half(layout, p, b, 0, xr, n_rows, acc);
        if (n_halves_of(layout) == 2)
            add_half(layout, p, b, 1, xr, n_rows, acc);
    }
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
        for (int part = 0; part < 2; part++)
            _mm256_storeu_ps(y + (size_t)r * ldy + 8 * part, acc[r][part]);
}

/* A tile of rows, as a function of its own: the compiler then sees its sums and nothing else to keep in 16
 * registers. */
typedef void tile_fn(const piece *p, int n, bool first, const rg_xblock *x, size_t ldx, float *y, size_t ldy);

#define TILE_OF(name, layout)                                                                                          \
    static __attribute__((noinline)) void tile_##name(const piece *p, int n, bool first, const rg_xblock *x,           \
                                                      size_t ldx, float *y, size_t ldy)                                \
    {                                                                                                                  \
        tile(layout, p, n, first, x, ldx, TILE, y, ldy);                                                               \
    }
INTEGER_LAYOUTS(TILE_OF)

ALWAYS_INLINE tile_fn *tile_of(rg_layout l)
{
#define CASE(name, layout)                                                                                             \
    if (l == layout)                                                                                                   \
        return tile_##name;
    INTEGER_LAYOUTS(CASE)
    return NULL;
}

ALWAYS_INLINE void panel_rows(rg_layout layout, const uint8_t *panel, int n, const rg_xblock *x, size_t ldx, int m,
                              float *y, size_t ldy)
{
    piece p;

    if (m == 1) {
        one_row(layout, panel, n, x, y);
        return;
    }
    for (int b = 0; b < n; b += RUNS) {
        const int here = n - b < RUNS ? n - b : RUNS;
        int row = 0;

        unpack(&p, layout, panel, b, here);
        for (; row + TILE <= m; row += TILE)
            tile_of(layout)(&p, here, b == 0, x + (size_t)row * ldx + b, ldx, y + (size_t)row * ldy, ldy);
        for (; row < m; row++)
            tile(layout, &p, here, b == 0, x + (size_t)row * ldx + b, ldx, 1, y + (size_t)row * ldy, ldy);
    }
}

#define TARGET
#include "ops/cpu/fast_tmpl.h"

void rg_avx2_init_fast(rg_cpu *k)
{
    fill_fast(k);
}
