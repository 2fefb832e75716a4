/* amx.c -- fills the table on AVX512; and the int8 recipe on tiles: 16 rows of integer weights by 16 rows of int8
 * activations at once.
 *
 * A run of a panel, [columns / 4][16][4] unsigned bytes, is a tile's right operand as it is packed; 16 rows of x,
 * signed, are its left one where they lie.  A product of one run from zero is the exact integer sum of the recipe,
 * which is then scaled and added in f32 as everywhere.  Rows past the last 16 go the way of AVX512, which this table
 * stands on. */
#include "ops/cpu/amx/tiles.h"
#include "ops/cpu/avx512/piece.h"
#include "ops/cpu/amx/init.h"

enum {
    ROWS = 16,
    CHAINS = 4, /* of the peaks: sums 0 .. 3, operands 6 and 7 */
};

/* Tile registers: sums; x and weights of a run of 32 columns; of a run of 16.  Macros, since gcc pastes the name into
 * the instruction. */
#define SUM 0
#define X32 1
#define W32 2
#define X16 3
#define W16 4

static const tile_config panel_config = {
    .palette = 1,
    .row_bytes = { [SUM] = 64, [X32] = 32, [W32] = 64, [X16] = 16, [W16] = 64 },
    .rows = { [SUM] = ROWS, [X32] = ROWS, [W32] = 8, [X16] = ROWS, [W16] = 4 },
};

static const tile_config peak_config = {
    .palette = 1,
    .row_bytes = { 64, 64, 64, 64, 0, 0, 64, 64 },
    .rows = { 16, 16, 16, 16, 0, 0, 16, 16 },
};

/* The integer sums of half h (or all) of run b with 16 rows of x. */
ALWAYS_INLINE void run_sums(kind kd, const piece *p, int b, int h, const rg_xblock *x, size_t ldx, int32_t (*sum)[16])
{
    _tile_zero(SUM);
    if (halves_of(kd) == 2) {
        _tile_loadd(X16, x->q + 16 * h, ldx * sizeof *x);
        _tile_loadd(W16, p->run[b].q[4 * h], 64);
        _tile_dpbsud(SUM, X16, W16);
    } else {
        _tile_loadd(X32, x->q, ldx * sizeof *x);
        _tile_loadd(W32, p->run[b].q, 64);
        _tile_dpbsud(SUM, X32, W32);
    }
    _tile_stored(SUM, sum, 64);
}

/* 16 rows of x over n runs, the sums going on from y unless this is the first piece. */
ALWAYS_INLINE void tile_rows(kind kd, const piece *p, int n, bool first, const rg_xblock *x, size_t ldx, float *y,
                             size_t ldy)
{
    _Alignas(64) int32_t sum[2][ROWS][16];
    const int n_halves = halves_of(kd);
    __m512 acc[ROWS];

#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        acc[r] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + (size_t)r * ldy);
    for (int b = 0; b < n; b++)
        for (int h = 0; h < n_halves; h++) {
            /* Alternating: the next store need not wait for these loads. */
            int32_t (*s)[16] = sum[(b * n_halves + h) % 2];

            run_sums(kd, p, b, h, x + b, ldx, s);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++) {
                const rg_xblock *xr = x + (size_t)r * ldx + b;
                const __m512 m = has_second(kd) ? _mm512_load_ps(p->run[b].m[h]) : _mm512_setzero_ps();
                const __m512i whole = _mm512_add_epi32(_mm512_load_si512(s[r]), start(kd, m, xr, h));
                acc[r] = add_scaled(kd, acc[r], whole, _mm512_load_ps(p->run[b].d[h]), m, xr, h);
            }
        }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        _mm512_storeu_ps(y + (size_t)r * ldy, acc[r]);
}

/* m: a multiple of ROWS. */
ALWAYS_INLINE void panel_tiles(rg_layout layout, const uint8_t *panel, int n, const rg_xblock *x, size_t ldx, int m,
                               float *y, size_t ldy)
{
    piece p;

    load_config(&panel_config);
    for (int b = 0; b < n; b += RUNS) {
        const int here = n - b < RUNS ? n - b : RUNS;
        unpack(&p, layout, panel, b, here);
        stored(&p);
        for (int row = 0; row < m; row += ROWS)
            tile_rows(kind_of(layout), &p, here, b == 0, x + (size_t)row * ldx + b, ldx, y + (size_t)row * ldy, ldy);
    }
    _tile_release();
}

/* What rows that fill no tile use; set once, when the table is built. */
static rg_cpu below;

ALWAYS_INLINE void panel_rows(rg_layout layout, const uint8_t *panel, int n, const rg_xblock *x, size_t ldx, int m,
                              float *y, size_t ldy)
{
    const size_t tiled = (size_t)(m - m % ROWS);

    if (tiled)
        panel_tiles(layout, panel, n, x, ldx, (int)tiled, y, ldy);
    if (m % ROWS)
        below.product[RG_INT8][layout](&(rg_product){ .panel = panel, .n_panels = 1, .cols = 32 * n, .m = m % ROWS,
                                                  .q = x + tiled * ldx, .ldx = ldx, .y = y + tiled * ldy, .ldy = ldy });
}

#define TARGET
#include "ops/cpu/fast_tmpl.h"

/* ---- peaks ------------------------------------------------------------------------------------------------------- */

/* About n multiply-adds, `lanes` of them to a product of two tiles. */
#define PEAK(name, lanes, product)                                                                                     \
    static double name(double n)                                                                                       \
    {                                                                                                                  \
        const int64_t rounds = (int64_t)(n / ((lanes) * CHAINS)) + 1;                                                  \
                                                                                                                       \
        load_config(&peak_config);                                                                                     \
        _tile_zero(0);                                                                                                 \
        _tile_zero(1);                                                                                                 \
        _tile_zero(2);                                                                                                 \
        _tile_zero(3);                                                                                                 \
        _tile_zero(6);                                                                                                 \
        _tile_zero(7);                                                                                                 \
        for (int64_t r = 0; r < rounds; r++) {                                                                         \
            product(0, 6, 7);                                                                                          \
            product(1, 6, 7);                                                                                          \
            product(2, 6, 7);                                                                                          \
            product(3, 6, 7);                                                                                          \
        }                                                                                                              \
        _tile_release();                                                                                               \
        return (double)rounds * (lanes) * CHAINS;                                                                      \
    }

PEAK(peak_int8, 16 * 16 * 64, _tile_dpbsud)
PEAK(peak_bf16, 16 * 16 * 32, _tile_dpbf16ps)

void rg_cpu_init_amx(rg_cpu *k)
{
    below = *k;
    k->isa = "amx";
    fill_fast(k);
    rg_amx_init_bf16(k);
    k->peak_int8 = peak_int8;
    k->peak_bf16 = peak_bf16;
}
