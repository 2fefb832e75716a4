/* bf16.c -- the recipe `tiles` of BF16 weights: 16 rows of them by 16 rows of bf16 activations at once.
 *
 * A tile of weights is 32 columns, two and two of a row side by side, as they are packed.  32 rows at a time meet a
 * piece of a pair of panels: four sums in flight.  A piece's columns of x stay in L1 while all panels have their turn
 * with them, and the sums wait in y.  Weights come from L2 for every 32 rows, and by tileloaddt1, which leaves L1 to x
 * and reads L2 faster.
 *
 * One row needs no tile: it streams by f32 multiply-adds in the tile's own order, several panels at once, so that the
 * chains of one hide the latency of another's; the control register then flushes as tiles do. */
#include "ops/cpu/amx/tiles.h"

#include "ops/cpu/avx512/avx512.h"

enum {
    STEPS = 8,        /* of 32 columns in a piece: 16 KiB of x */
    STREAMS = 4,      /* panels that one row meets at once */
    AHEAD = 4096,     /* bytes prefetched ahead of a panel's stream: the hardware stops at each page */
    FLUSH = 0x8040,   /* mxcsr: results and operands */
};

/* Tile registers: sums of the first and second 16 rows with either panel, x, weights.  Macros, since gcc pastes the
 * name into the instruction. */
#define SUM00 0
#define SUM01 1
#define SUM10 2
#define SUM11 3
#define X0 4
#define X1 5
#define W0 6
#define W1 7

/* For n rows, 1 .. 32; of 16 or fewer, the second half is not used, and stays as for 1. */
static tile_config config_of(int n)
{
    const uint8_t first = (uint8_t)(n < 16 ? n : 16), second = (uint8_t)(n > 16 ? n - 16 : 1);

    return (tile_config){
        .palette = 1,
        .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
        .rows = { [SUM00] = first, [SUM01] = first, [SUM10] = second, [SUM11] = second,
                  [X0] = first, [X1] = second, [W0] = 16, [W1] = 16 },
    };
}

/* A piece of one or two neighbouring panels by up to 32 rows. */
typedef struct piece {
    const uint8_t *w; /* pairs of columns, 64 bytes each */
    size_t gap;       /* from panel to panel */
    const uint16_t *x;
    float *y;
    size_t x_bytes, y_bytes; /* from row to row */
    int n_steps;
    bool first; /* sums start from 0, not from y */
} piece;

/* more: than 16 rows; two: panels; both are constants. */
ALWAYS_INLINE void add_piece(const piece *p, bool more, bool two)
{
    const uint16_t *x1 = p->x + 16 * p->x_bytes / sizeof *p->x;
    float *y1 = p->y + 16 * p->y_bytes / sizeof *p->y;

    _tile_zero(SUM00);
    _tile_zero(SUM01);
    _tile_zero(SUM10);
    _tile_zero(SUM11);
    if (!p->first) {
        _tile_loadd(SUM00, p->y, p->y_bytes);
        if (two)
            _tile_loadd(SUM01, p->y + 16, p->y_bytes);
        if (more)
            _tile_loadd(SUM10, y1, p->y_bytes);
        if (more && two)
            _tile_loadd(SUM11, y1 + 16, p->y_bytes);
    }
    for (int s = 0; s < p->n_steps; s++) {
        _tile_loadd(X0, p->x + 32 * s, p->x_bytes);
        _tile_stream_loadd(W0, p->w + 1024 * s, 64);
        _tile_dpbf16ps(SUM00, X0, W0);
        if (two) {
            _tile_stream_loadd(W1, p->w + p->gap + 1024 * s, 64);
            _tile_dpbf16ps(SUM01, X0, W1);
        }
        if (more) {
            _tile_loadd(X1, x1 + 32 * s, p->x_bytes);
            _tile_dpbf16ps(SUM10, X1, W0);
        }
        if (more && two)
            _tile_dpbf16ps(SUM11, X1, W1);
    }
    _tile_stored(SUM00, p->y, p->y_bytes);
    if (two)
        _tile_stored(SUM01, p->y + 16, p->y_bytes);
    if (more)
        _tile_stored(SUM10, y1, p->y_bytes);
    if (more && two)
        _tile_stored(SUM11, y1 + 16, p->y_bytes);
}

/* Up to 32 rows, as many as the tiles are laid out for. */
static void add_rows(const rg_product *p)
{
    piece w = { .gap = p->panel_bytes, .x_bytes = p->ldx * sizeof *p->h, .y_bytes = p->ldy * sizeof *p->y };

    for (int k = 0; k < p->cols; k += 32 * STEPS)
        for (int i = 0; i < p->n_panels; i += 2) {
            const bool two = i + 1 < p->n_panels;

            w.first = k == 0;
            w.n_steps = p->cols - k < 32 * STEPS ? (p->cols - k) / 32 : STEPS;
            w.w = p->panel + (size_t)i * p->panel_bytes + 32 * (size_t)k;
            w.x = p->h + k;
            w.y = p->y + 16 * i;
            if (p->m > 16 && two)
                add_piece(&w, true, true);
            else if (p->m > 16)
                add_piece(&w, true, false);
            else if (two)
                add_piece(&w, false, true);
            else
                add_piece(&w, false, false);
        }
}

static void many_rows(const rg_product *p)
{
    rg_product q = *p;
    int laid_out = 0;

    for (; q.m > 0; q.m -= 32, q.h += 32 * q.ldx, q.y += 32 * q.ldy) {
        rg_product some = q;

        some.m = q.m < 32 ? q.m : 32;
        if (some.m != laid_out) {
            const tile_config config = config_of(some.m);
            load_config(&config);
        }
        laid_out = some.m;
        add_rows(&some);
    }
    _tile_release();
}

/* ---- one row ----------------------------------------------------------------------------------------------------- */

/* n panels from the i-th on; n is a constant. */
ALWAYS_INLINE void stream(const rg_product *p, int i, int n)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    const uint8_t *panel = p->panel + (size_t)i * p->panel_bytes;
    __m512 sum[STREAMS], even[STREAMS], odd[STREAMS];

#pragma GCC unroll 4
    for (int s = 0; s < n; s++)
        sum[s] = _mm512_setzero_ps();
    for (int k = 0; k < p->cols; k += 32) {
#pragma GCC unroll 4
        for (int s = 0; s < n; s++)
            even[s] = odd[s] = _mm512_setzero_ps();
        for (int j = k; j < k + 32; j += 2) {
            const __m512i x = two_of(p->h + j);
            const __m512 x0 = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
            const __m512 x1 = _mm512_castsi512_ps(_mm512_and_si512(x, high));
#pragma GCC unroll 4
            for (int s = 0; s < n; s++) {
                const uint8_t *at = panel + (size_t)s * p->panel_bytes + 32 * (size_t)j;
                const __m512i w = _mm512_loadu_si512(at);
                _mm_prefetch((const char *)at + AHEAD, _MM_HINT_T0);
                even[s] = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), x0, even[s]);
                odd[s] = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(w, high)), x1, odd[s]);
            }
        }
#pragma GCC unroll 4
        for (int s = 0; s < n; s++)
            sum[s] = _mm512_add_ps(sum[s], _mm512_add_ps(even[s], odd[s]));
    }
#pragma GCC unroll 4
    for (int s = 0; s < n; s++)
        _mm512_storeu_ps(p->y + 16 * (i + s), sum[s]);
}

/* Not inlined: nothing of it may move to where the control register is another. */
static __attribute__((noinline)) void one_row(const rg_product *p)
{
    int i = 0;

    for (; i + STREAMS <= p->n_panels; i += STREAMS)
        stream(p, i, STREAMS);
    for (; i < p->n_panels; i++)
        stream(p, i, 1);
}

static void tiles(const rg_product *p)
{
    const unsigned control = _mm_getcsr();

    if (p->m > 1) {
        many_rows(p);
        return;
    }
    _mm_setcsr(control | FLUSH);
    one_row(p);
    _mm_setcsr(control);
}

void rg_amx_init_bf16(rg_cpu *k)
{
    k->product[RG_BF16_TILES][RG_LAYOUT_BF16] = tiles;
    k->fast[RG_LAYOUT_BF16] = RG_BF16_TILES;
}
