/* exact.c -- the exact recipe: f32 weights (decoded where they are not) by f32 activations.
 *
 * Four chains per output by column modulo 4, each a vector over the panel's 16 rows, and TILE rows of x at once: enough
 * independent sums for both multipliers.  A few rows read a float layout where it lies.  Many rows, and integer layouts
 * always, take a piece of the panel at a time, decoded into L1 (f32 needs no decoding), while the chains of a batch of rows
 * wait beside it. */
#include "ops/cpu/avx512/avx512.h"

enum {
    TILE = 6,     /* rows: 24 chains and 4 columns of weights in 32 registers */
    BATCH = 24,   /* rows that share a piece: 6 KiB of chains */
    PIECE = 128,  /* columns: 8 KiB */
    AHEAD = 4096, /* bytes prefetched ahead of one row's stream: the hardware stops at each page */
};

typedef __m512 chains[4];

/* Column k of a panel of a float layout. */
ALWAYS_INLINE __m512 column(rg_layout layout, const uint8_t *panel, size_t k)
{
    const uint16_t *h = (const uint16_t *)(const void *)panel + 16 * k;

    if (layout == RG_LAYOUT_F32)
        return _mm512_loadu_ps((const float *)(const void *)panel + 16 * k);
    if (layout == RG_LAYOUT_F16)
        return load_f16(h);
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)h)), 16));
}

ALWAYS_INLINE size_t column_bytes(rg_layout layout)
{
    return layout == RG_LAYOUT_F32 ? 64 : 32;
}

/* n columns, the first of them a multiple of 4, into the chains of n_rows rows; layout and n_rows are constants. */
ALWAYS_INLINE void add_columns(rg_layout layout, const uint8_t *w, int n, const float *x, size_t ldx, int n_rows, chains *c)
{
    const float *xr[TILE];
    chains s[TILE]; /* in registers: through c, every sum would be stored at once */
    int k = 0;

#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++) {
        xr[r] = x + (size_t)r * ldx;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            s[r][i] = c[r][i];
    }
    for (; k + 4 <= n; k += 4) {
#pragma GCC unroll 6
        for (int r = 0; r < n_rows; r++)
            __asm__("" : "+r"(xr[r])); /* a pointer per row, not an index: the load stays one operation with its use */
        if (n_rows == 1)
            for (size_t i = 0; i < 4 * column_bytes(layout); i += 64)
                _mm_prefetch((const char *)w + (size_t)k * column_bytes(layout) + AHEAD + i, _MM_HINT_T0);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m512 wi = column(layout, w, (size_t)(k + i));
#pragma GCC unroll 6
            for (int r = 0; r < n_rows; r++)
                s[r][i] = _mm512_fmadd_ps(wi, _mm512_set1_ps(xr[r][i]), s[r][i]);
        }
#pragma GCC unroll 6
        for (int r = 0; r < n_rows; r++)
            xr[r] += 4;
    }
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
        if (k + i < n) {
            const __m512 wi = column(layout, w, (size_t)(k + i));
#pragma GCC unroll 6
            for (int r = 0; r < n_rows; r++)
                s[r][i] = _mm512_fmadd_ps(wi, _mm512_set1_ps(xr[r][i]), s[r][i]);
        }
#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            c[r][i] = s[r][i];
}

ALWAYS_INLINE void store_sum(float *y, const chains c)
{
    _mm512_storeu_ps(y, _mm512_add_ps(_mm512_add_ps(c[0], c[1]), _mm512_add_ps(c[2], c[3])));
}

/* ---- a few rows of a float layout ----------------------------------------------------------------------------------- */

ALWAYS_INLINE void float_rows(rg_layout layout, const uint8_t *panel, int cols, const float *x, size_t ldx, int n_rows,
                              float *y, size_t ldy)
{
    chains c[TILE];

#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++)
        c[r][0] = c[r][1] = c[r][2] = c[r][3] = _mm512_setzero_ps();
    add_columns(layout, panel, cols, x, ldx, n_rows, c);
#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++)
        store_sum(y + (size_t)r * ldy, c[r]);
}

/* ---- in pieces ------------------------------------------------------------------------------------------------------ */

/* The weights of run b as f32, [32][16]: d * (q - offset), and + m where the layout has one, each rounded by itself. */
ALWAYS_INLINE void decode_run(rg_layout layout, const uint8_t *panel, int b, float *w)
{
    const bool minimum = layout != RG_LAYOUT_Q4 && layout != RG_LAYOUT_Q8;
    const int offset = layout == RG_LAYOUT_Q4 ? 8 : layout == RG_LAYOUT_Q8 || layout == RG_LAYOUT_K8 ? 128 : 0;
    const __m512i byte = _mm512_set1_epi32(255);
    rg_run r;

    load_run(&r, layout, panel, b);
    for (int i = 0; i < 8; i++) {
        const int h = layout == RG_LAYOUT_K8 ? i / 4 : 0;
        for (int k = 0; k < 4; k++) {
            __m512i q = _mm512_and_si512(_mm512_srli_epi32(r.w[i], (unsigned)(8 * k)), byte);
            __m512 v = _mm512_mul_ps(r.d[h], _mm512_cvtepi32_ps(_mm512_sub_epi32(q, _mm512_set1_epi32(offset))));
            if (minimum)
                v = _mm512_add_ps(v, r.m[h]);
            _mm512_store_ps(w + 16 * (4 * i + k), v);
        }
    }
}

/* A decoded piece of n columns into the chains of m <= BATCH rows. */
static void add_piece(const float *w, int n, const float *x, size_t ldx, int m, chains *c)
{
    const uint8_t *piece = (const uint8_t *)w;

    for (; m >= TILE; m -= TILE, x += TILE * ldx, c += TILE)
        add_columns(RG_LAYOUT_F32, piece, n, x, ldx, TILE, c);
    for (; m >= 2; m -= 2, x += 2 * ldx, c += 2)
        add_columns(RG_LAYOUT_F32, piece, n, x, ldx, 2, c);
    if (m)
        add_columns(RG_LAYOUT_F32, piece, n, x, ldx, 1, c);
}

/* n columns from the first on as f32, [n][16]: decoded to `room`, or where they are. */
ALWAYS_INLINE const float *decode(rg_layout layout, const uint8_t *panel, int first, int n, float *room)
{
    if (layout == RG_LAYOUT_F32)
        return (const float *)(const void *)panel + 16 * (size_t)first;
    if (layout == RG_LAYOUT_F16 || layout == RG_LAYOUT_BF16)
        for (int k = 0; k < n; k++)
            _mm512_store_ps(room + 16 * k, column(layout, panel, (size_t)(first + k)));
    else
        for (int k = 0; k < n; k += 32)
            decode_run(layout, panel, (first + k) / 32, room + 16 * k);
    return room;
}

ALWAYS_INLINE void in_pieces(rg_layout layout, const uint8_t *panel, int cols, const float *x, size_t ldx, int m, float *y,
                             size_t ldy)
{
    _Alignas(64) float room[PIECE * 16];
    chains c[BATCH];

    for (int row = 0; row < m; row += BATCH) {
        const int here = m - row < BATCH ? m - row : BATCH;

        for (int r = 0; r < here; r++)
            c[r][0] = c[r][1] = c[r][2] = c[r][3] = _mm512_setzero_ps();
        for (int k = 0; k < cols; k += PIECE) {
            const int n = cols - k < PIECE ? cols - k : PIECE;
            add_piece(decode(layout, panel, k, n, room), n, x + (size_t)row * ldx + (size_t)k, ldx, here, c);
        }
        for (int r = 0; r < here; r++)
            store_sum(y + (size_t)(row + r) * ldy, c[r]);
    }
}

#define FLOAT_PANEL(name, layout)                                                                                      \
    static void name(const uint8_t *panel, int cols, const float *x, size_t ldx, int m, float *y, size_t ldy)          \
    {                                                                                                                  \
        if (m > TILE)                                                                                                  \
            in_pieces(layout, panel, cols, x, ldx, m, y, ldy);                                                         \
        else if (m == TILE)                                                                                            \
            float_rows(layout, panel, cols, x, ldx, TILE, y, ldy);                                                     \
        else                                                                                                           \
            for (; m > 0; m -= 2, x += 2 * ldx, y += 2 * ldy)                                                          \
                if (m == 1)                                                                                            \
                    float_rows(layout, panel, cols, x, ldx, 1, y, ldy);                                                \
                else                                                                                                   \
                    float_rows(layout, panel, cols, x, ldx, 2, y, ldy);                                                \
    }

FLOAT_PANEL(panel_f32, RG_LAYOUT_F32)
FLOAT_PANEL(panel_f16, RG_LAYOUT_F16)
FLOAT_PANEL(panel_bf16, RG_LAYOUT_BF16)

#define INTEGER_PANEL(name, layout)                                                                                    \
    static void name(const uint8_t *panel, int cols, const float *x, size_t ldx, int m, float *y, size_t ldy)          \
    {                                                                                                                  \
        in_pieces(layout, panel, cols, x, ldx, m, y, ldy);                                                         \
    }

INTEGER_PANEL(panel_q4, RG_LAYOUT_Q4)
INTEGER_PANEL(panel_q8, RG_LAYOUT_Q8)
INTEGER_PANEL(panel_q4m, RG_LAYOUT_Q4M)
INTEGER_PANEL(panel_q8m, RG_LAYOUT_Q8M)
INTEGER_PANEL(panel_k4, RG_LAYOUT_K4)
INTEGER_PANEL(panel_k8, RG_LAYOUT_K8)

void rg_avx512_init_exact(rg_cpu *k)
{
    k->panel_exact[RG_LAYOUT_F32] = panel_f32;
    k->panel_exact[RG_LAYOUT_F16] = panel_f16;
    k->panel_exact[RG_LAYOUT_BF16] = panel_bf16;
    k->panel_exact[RG_LAYOUT_Q4] = panel_q4;
    k->panel_exact[RG_LAYOUT_Q8] = panel_q8;
    k->panel_exact[RG_LAYOUT_Q4M] = panel_q4m;
    k->panel_exact[RG_LAYOUT_Q8M] = panel_q8m;
    k->panel_exact[RG_LAYOUT_K4] = panel_k4;
    k->panel_exact[RG_LAYOUT_K8] = panel_k8;
}
