/* bf16.c -- the recipe `tiles` of BF16 weights: 16 rows of them by 16 rows of bf16 activations at once.
 *
 * A piece is 256 columns of all panels, and meets all rows before the next one does, which comes to L2 from memory
 * meanwhile: so L2 has room for x, and nobody waits for memory.  32 rows at a time meet a pair of panels: four sums in
 * flight.  Their columns of x stay in L1 while all panels have their turn with them, and the sums wait in y.  Weights
 * come from L2 for every 32 rows, and by tileloaddt1, which leaves L1 to x and reads L2 faster.
 *
 * One row needs no tile: it streams by f32 multiply-adds in the tile's own order, several panels at once, so that the
 * chains of one hide the latency of another's; the control register then flushes as tiles do. */
#include "ops/cpu/amx/bf16.h"

enum {
    STEPS = 8,      /* of 32 columns in a piece: 16 KiB of 32 rows of x */
    LINES = 16,     /* of a panel's step */
    STREAMS = 4,    /* panels that one row meets at once */
    AHEAD = 1024,   /* bytes prefetched ahead of a panel's stream: a short panel ends before more would pay */
    FLUSH = 0x8040, /* mxcsr: results and operands */
};

/* Which lines the g-th of n groups of rows fetches of the piece behind that at k, if there is one.  Up to 16 rows take
 * no longer than memory does, from which the hardware fetches by itself. */
static inline coming coming_of(const rg_product *p, int k, int g, int n)
{
    const bool any = p->m > 16 && k + 32 * STEPS < p->cols;
    const int each = any ? (LINES + n - 1) / n : 0, from = g * each < LINES ? g * each : LINES;
    const int to = from + each < LINES ? from + each : LINES;

    return (coming){ .from = (size_t)from, .to = (size_t)to };
}

/* From column k on, by panel i of p and, maybe, the next. */
ALWAYS_INLINE void add_piece(extent e, const rg_product *p, int k, int i, coming next)
{
    const int left = (p->cols - k) / 32;
    const uint8_t *w = p->panel + (size_t)i * p->panel_bytes + 32 * (size_t)k;
    float *y = p->y + 16 * i;

    next.w = w + 1024 * STEPS;
    if (k)
        load_sums(e, y, p->ldy * sizeof *y);
    else
        clear_sums();
    add_steps(e, left < STEPS ? left : STEPS, p->h + k, p->ldx * sizeof *p->h, w, p->panel_bytes, &next);
    store_sums(e, y, p->ldy * sizeof *y);
}

/* Up to 32 rows by a piece of all panels. */
static void add_rows(const rg_product *rows, int k, coming next)
{
    for (int i = 0; i < rows->n_panels; i += 2) {
        const bool two = i + 1 < rows->n_panels;

        if (rows->m > 16 && two)
            add_piece((extent){ true, true }, rows, k, i, next);
        else if (rows->m > 16)
            add_piece((extent){ true, false }, rows, k, i, next);
        else if (two)
            add_piece((extent){ false, true }, rows, k, i, next);
        else
            add_piece((extent){ false, false }, rows, k, i, next);
    }
}

static void many_rows(const rg_product *p)
{
    const int n = (p->m + 31) / 32;
    rg_product rows;
    int laid_out = 0;

    for (int k = 0; k < p->cols; k += 32 * STEPS)
        for (int row = 0; next_rows(&rows, p, &row, &laid_out);)
            add_rows(&rows, k, coming_of(p, k, row / 32 - 1, n));
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
    rg_amx_init_f8(k);
}
