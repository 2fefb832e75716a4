/* bf16.c -- the recipe `tiles` of BF16 weights: 16 rows of them by 16 rows of bf16 activations at once.
 *
 * A tile of weights is 32 columns, two and two of a row side by side, as they are packed.  32 rows at a time meet a
 * piece of a pair of panels: four sums in flight.  The sums wait in y between pieces, and all panels of the product
 * have their turn with a piece's columns of x, which stay in L2.
 *
 * One row needs no tile: it streams by f32 multiply-adds in the tile's own order, several panels at once, so that the
 * chains of one hide the latency of another's; the control register then flushes as tiles do. */
#include "ops/cpu/amx/tiles.h"

#include "ops/cpu/avx512/avx512.h"

enum {
    STEPS = 8,        /* of 32 columns in a piece: 8 KiB of each panel */
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

/* A piece of one or two neighbouring panels. */
typedef struct piece {
    const uint8_t *w; /* pairs of columns, 64 bytes each */
    size_t gap;       /* from panel to panel */
    int n_panels, n_steps;
    bool first; /* sums start from 0, not from y */
} piece;

ALWAYS_INLINE void add_piece(const piece *p, const uint16_t *x, size_t ldx, float *y, size_t ldy, bool more, bool two)
{
    const size_t x_bytes = ldx * sizeof *x, y_bytes = ldy * sizeof *y;

    _tile_zero(SUM00);
    _tile_zero(SUM01);
    _tile_zero(SUM10);
    _tile_zero(SUM11);
    if (!p->first) {
        _tile_loadd(SUM00, y, y_bytes);
        if (two)
            _tile_loadd(SUM01, y + 16, y_bytes);
        if (more)
            _tile_loadd(SUM10, y + 16 * ldy, y_bytes);
        if (more && two)
            _tile_loadd(SUM11, y + 16 * ldy + 16, y_bytes);
    }
    for (int s = 0; s < p->n_steps; s++) {
        _tile_loadd(X0, x + 32 * s, x_bytes);
        _tile_loadd(W0, p->w + 1024 * s, 64);
        _tile_dpbf16ps(SUM00, X0, W0);
        if (two) {
            _tile_loadd(W1, p->w + p->gap + 1024 * s, 64);
            _tile_dpbf16ps(SUM01, X0, W1);
        }
        if (more) {
            _tile_loadd(X1, x + 16 * ldx + 32 * s, x_bytes);
            _tile_dpbf16ps(SUM10, X1, W0);
        }
        if (more && two)
            _tile_dpbf16ps(SUM11, X1, W1);
    }
    _tile_stored(SUM00, y, y_bytes);
    if (two)
        _tile_stored(SUM01, y + 16, y_bytes);
    if (more)
        _tile_stored(SUM10, y + 16 * ldy, y_bytes);
    if (more && two)
        _tile_stored(SUM11, y + 16 * ldy + 16, y_bytes);
}

static void add_rows(const piece *p, const uint16_t *x, size_t ldx, float *y, size_t ldy, int n)
{
    if (n > 16 && p->n_panels == 2)
        add_piece(p, x, ldx, y, ldy, true, true);
    else if (n > 16)
        add_piece(p, x, ldx, y, ldy, true, false);
    else if (p->n_panels == 2)
        add_piece(p, x, ldx, y, ldy, false, true);
    else
        add_piece(p, x, ldx, y, ldy, false, false);
}

static void many_rows(const rg_product *p)
{
    const tile_config whole = config_of(32), rest = config_of(p->m % 32);
    const int n_whole = p->m / 32 * 32, n_rest = p->m % 32;
    piece w;

    for (int k = 0; k < p->cols; k += 32 * STEPS)
        for (int i = 0; i < p->n_panels; i += 2) {
            w.first = k == 0;
            w.n_steps = p->cols - k < 32 * STEPS ? (p->cols - k) / 32 : STEPS;
            w.n_panels = p->n_panels - i < 2 ? 1 : 2;
            w.w = p->panel + (size_t)i * p->panel_bytes + 32 * (size_t)k;
            w.gap = p->panel_bytes;
            if (n_whole)
                load_config(&whole);
            for (int r = 0; r < n_whole; r += 32)
                add_rows(&w, p->h + (size_t)r * p->ldx + k, p->ldx, p->y + (size_t)r * p->ldy + 16 * i, p->ldy, 32);
            if (!n_rest)
                continue;
            load_config(&rest);
            add_rows(&w, p->h + (size_t)n_whole * p->ldx + k, p->ldx, p->y + (size_t)n_whole * p->ldy + 16 * i, p->ldy,
                     n_rest);
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
