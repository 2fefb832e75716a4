/* fast.c -- the fast recipe with vpmaddubsw: 16 rows of integer weights by m rows of int8 activations.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds neighbours to int16, saturating; here it never saturates, nor
 * do the int16 sums wrap.  Of weights of up to 6 bits the signed side is x, within +-127, and a lane takes so few pairs
 * before it is widened that |sum| <= pairs * 2 * 127 * (the largest weight) < 32768: 8 pairs of 4 bits (30480), 4 of 5
 * bits (31496), 2 of 6 bits (32004).  Weights of 8 bits are taken as signed, 128 less: the unsigned side is |w| <= 128,
 * the signed one x or, where w < 0, the bits of x inverted, which is -x - 1; each pair, -2 * 128 * 128 at least and 2 *
 * 127 * 127 at most, is widened at once.  The sums of |w| that are then missing do not depend on x.  What an offset
 * still owes is added in int32.  All of it exact.
 *
 * One row streams the panel from memory, and so do a few, one after the other; more rows share an unpacked piece of it
 * in L1, and the running sums wait in y. */
#include "ops/cpu/avx2/avx2.h"

enum {
    RUNS = 8,     /* of 32 columns in an unpacked piece: 5 or 9 KiB */
    TILE = 4,     /* rows at once: 8 sums in flight */
    AHEAD = 4096, /* bytes prefetched ahead of one row's stream: the hardware stops at each page */
};

/* Sums of one row over the groups of a run: [part], in int32 where weights are of 8 bits.  In int16 the second ones are
 * of those groups that the first have no room for. */
typedef struct sums {
    __m256i first[2], second[2];
} sums;

/* Weights of 8 bits. */
ALWAYS_INLINE bool is_wide(rg_layout layout)
{
    return factor_bits(layout) == 8;
}

/* Groups of four columns that an int16 sum has room for. */
ALWAYS_INLINE int groups_per_sum(rg_layout layout)
{
    const int bits = factor_bits(layout);

    return bits == 6 ? 2 : bits == 5 ? 4 : 8;
}

/* The sum of half h of a run still lacks something: its offset, or its zero points. */
ALWAYS_INLINE bool is_owed(rg_layout layout)
{
    return has_zero(layout) || (offset_of(layout) && !is_wide(layout));
}

/* What that is; z: the zero points. */
ALWAYS_INLINE __m256i owed(rg_layout layout, __m256 z, const rg_xblock *x, int h)
{
    if (has_zero(layout)) {
        const __m256i less = _mm256_sub_epi32(_mm256_cvtps_epi32(z), _mm256_set1_epi32(is_wide(layout) ? 128 : 0));
        return _mm256_srai_epi32(_mm256_mullo_epi32(less, _mm256_set1_epi32(x->neg8)), 3);
    }
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

/* By name, here and below, because gcc would make all products of a run first, and store them. */
ALWAYS_INLINE __m256i add_dot(__m256i sum, __m256i w, __m256i x)
{
    __m256i t;

    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(t) : "x"(w), "x"(x));
    return sum;
}

/* The same with weights of 8 bits, to int32; w: their |w|, sign: -1 where they are below 0. */
ALWAYS_INLINE __m256i add_wide(__m256i sum, __m256i w, __m256i sign, __m256i x)
{
    __m256i t;

    __asm__ volatile("vpxor %3, %4, %1\n\tvpmaddubsw %1, %2, %1\n\tvpmaddwd %5, %1, %1\n\tvpaddd %1, %0, %0"
                     : "+x"(sum), "=&x"(t)
                     : "x"(w), "x"(sign), "x"(x), "x"(_mm256_set1_epi16(1)));
    return sum;
}

/* The same of signed weights as they are: nothing is missing, and one row takes no longer. */
ALWAYS_INLINE __m256i add_signed(__m256i sum, __m256i w, __m256i x)
{
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));

    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* What add_wide lacks, -x - 1 having stood for -x: the sum of |w| below 0. */
ALWAYS_INLINE __m256i add_lack(__m256i sum, __m256i w, __m256i sign)
{
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_and_si256(w, sign), _mm256_set1_epi8(1));

    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* The n-th group of a run or half of it, of one part of one row. */
ALWAYS_INLINE void add_group(rg_layout layout, sums *s, int part, int n, __m256i w, __m256i sign, __m256i x)
{
    if (is_wide(layout))
        s->first[part] = add_wide(s->first[part], w, sign, x);
    else if (n < groups_per_sum(layout))
        s->first[part] = add_dot(s->first[part], w, x);
    else
        s->second[part] = add_dot(s->second[part], w, x);
}

/* One part of one row: sums of half h of a run become part of acc. */
ALWAYS_INLINE __m256 add_run(rg_layout layout, __m256 acc, const sums *s, int part, scales w, const rg_xblock *x, int h)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum = is_wide(layout) ? s->first[part] : _mm256_madd_epi16(s->first[part], ones);

    if (8 / n_halves_of(layout) > groups_per_sum(layout))
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(s->second[part], ones));
    if (is_owed(layout))
        sum = _mm256_add_epi32(sum, owed(layout, w.m, x, h));
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(w.d, _mm256_set1_ps(x->d)), acc);
    if (has_minimum(layout))
        acc = _mm256_fmadd_ps(w.m, _mm256_set1_ps(n_halves_of(layout) == 2 ? x->sh[h] : x->s), acc);
    return acc;
}

ALWAYS_INLINE void clear(sums *s)
{
    s->first[0] = s->first[1] = s->second[0] = s->second[1] = _mm256_setzero_si256();
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
            _mm_prefetch((const char *)run_share(layout, panel, b) + AHEAD + i, _MM_HINT_T0);
#pragma GCC unroll 2
        for (int h = 0; h < n_halves; h++) {
            sums s;
            clear(&s);
#pragma GCC unroll 8
            for (int i = h * n_groups; i < (h + 1) * n_groups; i++) {
                const __m256i xi = four(x[b].q + 4 * i);
#pragma GCC unroll 2
                for (int part = 0; part < 2; part++) {
                    const __m256i w = run_group(layout, &t, q, i, part);
                    if (is_wide(layout))
                        s.first[part] = add_signed(s.first[part], w, xi);
                    else
                        add_group(layout, &s, part, i % n_groups, w, w, xi);
                }
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

ALWAYS_INLINE __m256i below_0(__m256i w)
{
    return _mm256_cmpgt_epi8(_mm256_setzero_si256(), w);
}

/* The side of a product that is unsigned. */
ALWAYS_INLINE __m256i size_of(rg_layout layout, __m256i w)
{
    return is_wide(layout) ? _mm256_abs_epi8(w) : w;
}

/* RUNS runs of a panel: weights as add_group wants them, [group][part]; where their sums start, d and m per half. */
typedef struct piece {
    struct {
        __m256i w[8][2], sign[8][2], start[2][2];
        scales scales[2][2]; /* [half][part] */
    } run[RUNS];
} piece;

/* What add_wide lacks over n groups from the first on. */
ALWAYS_INLINE __m256i lack(__m256i (*w)[2], __m256i (*sign)[2], int first, int n, int part)
{
    __m256i sum = _mm256_setzero_si256();

    for (int i = first; i < first + n; i++)
        sum = add_lack(sum, w[i][part], sign[i][part]);
    return sum;
}

ALWAYS_INLINE void unpack(piece *p, rg_layout layout, const uint8_t *panel, int first, int n)
{
    const int n_groups = 8 / n_halves_of(layout);
    const book t = load_book(layout, panel);

    for (int b = 0; b < n; b++) {
        const uint8_t *q = run_q(layout, panel, first + b);
        for (int i = 0; i < 8; i++)
            for (int part = 0; part < 2; part++) {
                const __m256i w = run_group(layout, &t, q, i, part);
                p->run[b].w[i][part] = size_of(layout, w);
                if (is_wide(layout))
                    p->run[b].sign[i][part] = below_0(w);
            }
        for (int h = 0; h < n_halves_of(layout); h++)
            for (int part = 0; part < 2; part++) {
                p->run[b].scales[h][part] = run_int8_scales(layout, panel, first + b, h, part);
                if (is_wide(layout))
                    p->run[b].start[h][part] = lack(p->run[b].w, p->run[b].sign, h * n_groups, n_groups, part);
            }
    }
}

/* Half h (or all) of run b of a piece into acc of n_rows rows; everything but b is a constant. */
ALWAYS_INLINE void add_half(rg_layout layout, const piece *p, int b, int h, const rg_xblock *const *x, int n_rows,
                            __m256 (*acc)[2])
{
    const int n_groups = 8 / n_halves_of(layout);
    sums s[TILE];

#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++) {
        clear(&s[r]);
        if (is_wide(layout)) {
            s[r].first[0] = p->run[b].start[h][0];
            s[r].first[1] = p->run[b].start[h][1];
        }
    }
#pragma GCC unroll 8
    for (int i = h * n_groups; i < (h + 1) * n_groups; i++)
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            const __m256i xi = four(x[r]->q + 4 * i);
#pragma GCC unroll 2
            for (int part = 0; part < 2; part++)
                add_group(layout, &s[r], part, i % n_groups, p->run[b].w[i][part], p->run[b].sign[i][part], xi);
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

#define TILE_ROWS(name, layout, rows)                                                                                  \
    static __attribute__((noinline)) void tile_##name##_##rows(const piece *p, int n, bool first, const rg_xblock *x,  \
                                                               size_t ldx, float *y, size_t ldy)                       \
    {                                                                                                                  \
        tile(layout, p, n, first, x, ldx, rows, y, ldy);                                                               \
    }
#define TILE_OF(name, layout)                                                                                          \
    TILE_ROWS(name, layout, 1)                                                                                         \
    TILE_ROWS(name, layout, 2)                                                                                         \
    TILE_ROWS(name, layout, 3)                                                                                         \
    TILE_ROWS(name, layout, 4)
INTEGER_LAYOUTS(TILE_OF)

/* Of so many rows, TILE at most. */
ALWAYS_INLINE tile_fn *tile_of(rg_layout l, int rows)
{
#define CASE(name, layout)                                                                                             \
    if (l == layout && rows >= TILE)                                                                                   \
        return tile_##name##_4;                                                                                        \
    if (l == layout)                                                                                                   \
        return rows == 3 ? tile_##name##_3 : rows == 2 ? tile_##name##_2 : tile_##name##_1;
    INTEGER_LAYOUTS(CASE)
    return NULL;
}

ALWAYS_INLINE void panel_rows(rg_layout layout, const uint8_t *panel, int n, const rg_xblock *x, size_t ldx, int m,
                              float *y, size_t ldy)
{
    piece p;

    if (m < TILE) {
        for (int row = 0; row < m; row++)
            one_row(layout, panel, n, x + (size_t)row * ldx, y + (size_t)row * ldy);
        return;
    }
    for (int b = 0; b < n; b += RUNS) {
        const int here = n - b < RUNS ? n - b : RUNS;

        unpack(&p, layout, panel, b, here);
        for (int row = 0; row < m; row += TILE)
            tile_of(layout, m - row)(&p, here, b == 0, x + (size_t)row * ldx + b, ldx, y + (size_t)row * ldy, ldy);
    }
}

#define TARGET
#include "ops/cpu/fast_tmpl.h"

void rg_avx2_init_fast(rg_cpu *k)
{
    fill_fast(k);
}
