/* exact.c -- the exact recipe: f32 weights (decoded where they are not) by f32 activations.
 *
 * Four chains per output by column modulo 4.  One row of x takes both parts of the panel, 8 chains; more rows take TILE
 * rows of one part, 12 chains.  A few rows read a float layout where it lies.  Many rows, and integer layouts always, take a
 * piece of the panel at a time, decoded into L1 (f32 needs no decoding), while the chains of a batch of rows wait beside
 * it. */
#include "ops/cpu/avx2/avx2.h"

enum {
    TILE = 3,    /* rows */
    BATCH = 24,  /* rows that share a piece: 6 KiB of chains */
    PIECE = 128, /* columns: 8 KiB */
    AHEAD = 4096, /* bytes prefetched ahead of one row's stream: the hardware stops at each page */
};

typedef __m256 chains[4];

/* One part of column k of a panel of a float layout. */
ALWAYS_INLINE __m256 column(rg_layout layout, const uint8_t *panel, size_t k, int part)
{
    const size_t at = 16 * k + 8 * (size_t)part;

    if (layout == RG_LAYOUT_F32)
        return _mm256_loadu_ps((const float *)(const void *)panel + at);
    if (layout == RG_LAYOUT_F16)
        return load_f16((const uint16_t *)(const void *)panel + at);
    return load_bf16((const uint16_t *)(const void *)panel + at);
}

ALWAYS_INLINE size_t column_bytes(rg_layout layout)
{
    return layout == RG_LAYOUT_F32 ? 64 : 32;
}

/* What add_columns walks: columns of weights, and rows of x. */
typedef struct walk {
    const uint8_t *w;
    int n;
    const float *x;
    size_t ldx;
} walk;

/* n columns, the first of them a multiple of 4, into the chains c[row][part]. */
ALWAYS_INLINE void add_columns(rg_layout layout, walk v, int n_rows, int part, int n_parts, chains (*c)[2])
{
    chains s[TILE][2]; /* in registers: through c, every sum would be stored at once */
    int k = 0;

#pragma GCC unroll 3
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < n_parts; p++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                s[r][p][i] = c[r][part + p][i];

    for (; k + 4 <= v.n; k += 4) {
        if (n_rows == 1)
            for (size_t i = 0; i < 4 * column_bytes(layout); i += 64)
                _mm_prefetch((const char *)v.w + (size_t)k * column_bytes(layout) + AHEAD + i, _MM_HINT_T0);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
            for (int p = 0; p < n_parts; p++) {
                const __m256 w = column(layout, v.w, (size_t)(k + i), part + p);
#pragma GCC unroll 3
                for (int r = 0; r < n_rows; r++)
                    s[r][p][i] = _mm256_fmadd_ps(w, _mm256_set1_ps(v.x[(size_t)r * v.ldx + (size_t)(k + i)]), s[r][p][i]);
            }
    }
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
#pragma GCC unroll 2
        for (int p = 0; p < n_parts; p++) {
            if (k + i >= v.n)
                break;
            const __m256 w = column(layout, v.w, (size_t)(k + i), part + p);
#pragma GCC unroll 3
            for (int r = 0; r < n_rows; r++)
                s[r][p][i] = _mm256_fmadd_ps(w, _mm256_set1_ps(v.x[(size_t)r * v.ldx + (size_t)(k + i)]), s[r][p][i]);
        }
#pragma GCC unroll 3
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < n_parts; p++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                c[r][part + p][i] = s[r][p][i];
}

ALWAYS_INLINE void clear(chains c)
{
    c[0] = c[1] = c[2] = c[3] = _mm256_setzero_ps();
}

ALWAYS_INLINE void store_sum(float *y, const chains c)
{
    _mm256_storeu_ps(y, _mm256_add_ps(_mm256_add_ps(c[0], c[1]), _mm256_add_ps(c[2], c[3])));
}

/* ---- a few rows of a float layout ----------------------------------------------------------------------------------- */

ALWAYS_INLINE void float_rows(rg_layout layout, walk v, int n_rows, int part, int n_parts, float *y, size_t ldy)
{
    chains c[TILE][2];

    for (int r = 0; r < n_rows; r++)
        for (int p = 0; p < n_parts; p++)
            clear(c[r][part + p]);
    add_columns(layout, v, n_rows, part, n_parts, c);
    for (int r = 0; r < n_rows; r++)
        for (int p = 0; p < n_parts; p++)
            store_sum(y + (size_t)r * ldy + 8 * (part + p), c[r][part + p]);
}

/* ---- in pieces ------------------------------------------------------------------------------------------------------ */

/* The weights of run b as f32, [32][16]: d * (q - offset), and + m where the layout has one, each rounded by itself. */
ALWAYS_INLINE void decode_run(rg_layout layout, const uint8_t *panel, int b, float *w)
{
    const int offset = layout == RG_LAYOUT_Q4 ? 8 : layout == RG_LAYOUT_Q8 || layout == RG_LAYOUT_K8 ? 128 : 0;
    const uint8_t *q = run_q(layout, panel, b);

    for (int part = 0; part < 2; part++)
        for (int i = 0; i < 8; i++) {
            const rg_scales s = run_scales(layout, panel, b, layout == RG_LAYOUT_K8 ? i / 4 : 0, part);
            const __m256i group = is_nibbles(layout)
                                      ? run_group(q, i, part)
                                      : _mm256_loadu_si256((const __m256i *)(const void *)(q + 64 * i + 32 * part));
            for (int k = 0; k < 4; k++) {
                __m256i v = _mm256_and_si256(_mm256_srli_epi32(group, 8 * k), _mm256_set1_epi32(255));
                __m256 f = _mm256_mul_ps(s.d, _mm256_cvtepi32_ps(_mm256_sub_epi32(v, _mm256_set1_epi32(offset))));
                if (has_minimum(layout))
                    f = _mm256_add_ps(f, s.m);
                _mm256_store_ps(w + 16 * (4 * i + k) + 8 * part, f);
            }
        }
}

/* Apart, so that the compiler sees 12 chains and nothing else to keep in 16 registers. */
static __attribute__((noinline)) void add_tile(walk v, int part, chains (*c)[2])
{
    v.w += 32 * part;
    add_columns(RG_LAYOUT_F32, v, TILE, 0, 1, (chains(*)[2])(void *)&c[0][part]);
}

/* A decoded piece of n columns into the chains of m <= BATCH rows. */
static void add_piece(walk v, int m, chains (*c)[2])
{
    for (; m >= TILE; m -= TILE, v.x += TILE * v.ldx, c += TILE) {
        add_tile(v, 0, c);
        add_tile(v, 1, c);
    }
    for (; m > 0; m--, v.x += v.ldx, c++)
        add_columns(RG_LAYOUT_F32, v, 1, 0, 2, c);
}

/* n columns from the first on as f32, [n][16]: decoded to `room`, or where they are. */
ALWAYS_INLINE const float *decode(rg_layout layout, const uint8_t *panel, int first, int n, float *room)
{
    if (layout == RG_LAYOUT_F32)
        return (const float *)(const void *)panel + 16 * (size_t)first;
    if (layout == RG_LAYOUT_F16 || layout == RG_LAYOUT_BF16)
        for (int k = 0; k < 2 * n; k++)
            _mm256_store_ps(room + 8 * k, column(layout, panel, (size_t)(first + k / 2), k % 2));
    else
        for (int k = 0; k < n; k += 32)
            decode_run(layout, panel, (first + k) / 32, room + 16 * k);
    return room;
}

ALWAYS_INLINE void in_pieces(rg_layout layout, const uint8_t *panel, int cols, const float *x, size_t ldx, int m, float *y,
                             size_t ldy)
{
    _Alignas(64) float room[PIECE * 16];
    chains c[BATCH][2];

    for (int row = 0; row < m; row += BATCH) {
        const int here = m - row < BATCH ? m - row : BATCH;

        for (int r = 0; r < 2 * here; r++)
            clear(c[r / 2][r % 2]);
        for (int k = 0; k < cols; k += PIECE) {
            const int n = cols - k < PIECE ? cols - k : PIECE;
            const walk v = { (const uint8_t *)decode(layout, panel, k, n, room), n, x + (size_t)row * ldx + (size_t)k, ldx };
            add_piece(v, here, c);
        }
        for (int r = 0; r < 2 * here; r++)
            store_sum(y + (size_t)(row + r / 2) * ldy + 8 * (r % 2), c[r / 2][r % 2]);
    }
}

#define FLOAT_PANEL(name, layout)                                                                                      \
    static void name(const uint8_t *panel, int cols, const float *x, size_t ldx, int m, float *y, size_t ldy)          \
    {                                                                                                                  \
        walk v = { panel, cols, x, ldx };                                                                              \
        if (m >= TILE)                                                                                                 \
            in_pieces(layout, panel, cols, x, ldx, m, y, ldy);                                                         \
        else                                                                                                           \
            for (; m > 0; m--, v.x += ldx, y += ldy)                                                                   \
                float_rows(layout, v, 1, 0, 2, y, ldy);                                                                \
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

void rg_avx2_init_exact(rg_cpu *k)
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
