/* exact.c -- the exact recipe: f32 weights (decoded where they are not) by f32 activations.
 *
 * Four columns of x are one vector, whose lanes multiply four columns of weights into the four chains of an output.  One
 * row of x takes all four parts of the panel, 16 chains; more rows take TILE rows of one part, 16 as well.  Panels are
 * decoded a piece at a time (f32 needs no decoding), while the chains of a batch of rows wait. */
#include "ops/cpu/neon/neon.h"

enum {
    TILE = 4,    /* rows */
    BATCH = 24,  /* rows that share a piece: 6 KiB of chains */
    PIECE = 128, /* columns: 8 KiB */
};

typedef float32x4_t chains[4];

/* One part of column k of a panel of a float layout. */
ALWAYS_INLINE float32x4_t column(rg_layout layout, const uint8_t *panel, size_t k, int part)
{
    const size_t at = 16 * k + 4 * (size_t)part;

    if (layout == RG_LAYOUT_F32)
        return vld1q_f32((const float *)(const void *)panel + at);
    if (layout == RG_LAYOUT_F16)
        return load_f16((const uint16_t *)(const void *)panel + at);
    return load_bf16((const uint16_t *)(const void *)panel + at);
}

/* n columns of a decoded piece, the first of them a multiple of 4, into the chains c[row][part]. */
ALWAYS_INLINE void add_columns(const float *w, int n, const float *x, size_t ldx, int n_rows, int part, int n_parts,
                               chains (*c)[4])
{
    chains s[TILE][4]; /* in registers: through c, every sum would be stored at once */
    int k = 0;

    for (int r = 0; r < n_rows; r++)
        for (int p = 0; p < n_parts; p++)
            for (int i = 0; i < 4; i++)
                s[r][p][i] = c[r][part + p][i];
    for (; k + 4 <= n; k += 4)
        for (int r = 0; r < n_rows; r++) {
            const float32x4_t xk = vld1q_f32(x + (size_t)r * ldx + k);
            for (int p = 0; p < n_parts; p++) {
                const float *at = w + 16 * k + 4 * (part + p);
                s[r][p][0] = vfmaq_laneq_f32(s[r][p][0], vld1q_f32(at), xk, 0);
                s[r][p][1] = vfmaq_laneq_f32(s[r][p][1], vld1q_f32(at + 16), xk, 1);
                s[r][p][2] = vfmaq_laneq_f32(s[r][p][2], vld1q_f32(at + 32), xk, 2);
                s[r][p][3] = vfmaq_laneq_f32(s[r][p][3], vld1q_f32(at + 48), xk, 3);
            }
        }
    for (int i = 0; i < 3; i++)
        for (int p = 0; p < n_parts; p++)
            for (int r = 0; r < n_rows && k + i < n; r++)
                s[r][p][i] = vfmaq_n_f32(s[r][p][i], vld1q_f32(w + 16 * (k + i) + 4 * (part + p)),
                                         x[(size_t)r * ldx + (size_t)(k + i)]);
    for (int r = 0; r < n_rows; r++)
        for (int p = 0; p < n_parts; p++)
            for (int i = 0; i < 4; i++)
                c[r][part + p][i] = s[r][p][i];
}

/* A decoded piece of n columns into the chains of m <= BATCH rows. */
static void add_piece(const float *w, int n, const float *x, size_t ldx, int m, chains (*c)[4])
{
    for (; m >= TILE; m -= TILE, x += TILE * ldx, c += TILE)
        for (int part = 0; part < 4; part++)
            add_columns(w, n, x, ldx, TILE, part, 1, c);
    for (; m > 0; m--, x += ldx, c++)
        add_columns(w, n, x, ldx, 1, 0, 4, c);
}

/* The weights of run b as f32, [32][16]: d * (q - offset), and + m where the layout has one, each rounded by itself. */
ALWAYS_INLINE void decode_run(rg_layout layout, const uint8_t *panel, int b, float *w)
{
    const int back = layout == RG_LAYOUT_Q4 ? -8 : layout == RG_LAYOUT_Q8M ? 128 : 0; /* run_group takes 128 off bytes */
    const uint8_t *q = run_q(layout, panel, b);

    for (int part = 0; part < 4; part++)
        for (int i = 0; i < 8; i++) {
            const rg_scales s = run_scales(layout, panel, b, layout == RG_LAYOUT_K8 ? i / 4 : 0, part);
            int8_t bytes[16];

            vst1q_s8(bytes, run_group(layout, q, i, part));
            for (int k = 0; k < 4; k++) {
                const int32x4_t v = { bytes[k] + back, bytes[4 + k] + back, bytes[8 + k] + back, bytes[12 + k] + back };
                float32x4_t f = vmulq_f32(s.d, vcvtq_f32_s32(v));
                if (has_minimum(layout))
                    f = vaddq_f32(f, s.m);
                vst1q_f32(w + 16 * (4 * i + k) + 4 * part, f);
            }
        }
}

/* n columns from the first on as f32, [n][16]: decoded to `room`, or where they are. */
ALWAYS_INLINE const float *decode(rg_layout layout, const uint8_t *panel, int first, int n, float *room)
{
    if (layout == RG_LAYOUT_F32)
        return (const float *)(const void *)panel + 16 * (size_t)first;
    if (layout == RG_LAYOUT_F16 || layout == RG_LAYOUT_BF16)
        for (int k = 0; k < 4 * n; k++)
            vst1q_f32(room + 4 * k, column(layout, panel, (size_t)(first + k / 4), k % 4));
    else
        for (int k = 0; k < n; k += 32)
            decode_run(layout, panel, (first + k) / 32, room + 16 * k);
    return room;
}

ALWAYS_INLINE void in_pieces(rg_layout layout, const uint8_t *panel, int cols, const float *x, size_t ldx, int m, float *y,
                             size_t ldy)
{
    _Alignas(64) float room[PIECE * 16];
    chains c[BATCH][4];

    for (int row = 0; row < m; row += BATCH) {
        const int here = m - row < BATCH ? m - row : BATCH;

        for (int i = 0; i < here * 16; i++)
            c[i / 16][i / 4 % 4][i % 4] = vdupq_n_f32(0.0f);
        for (int k = 0; k < cols; k += PIECE) {
            const int n = cols - k < PIECE ? cols - k : PIECE;
            add_piece(decode(layout, panel, k, n, room), n, x + (size_t)row * ldx + (size_t)k, ldx, here, c);
        }
        for (int i = 0; i < here * 4; i++) {
            const float32x4_t *s = c[i / 4][i % 4];
            vst1q_f32(y + (size_t)(row + i / 4) * ldy + 4 * (i % 4), vaddq_f32(vaddq_f32(s[0], s[1]), vaddq_f32(s[2], s[3])));
        }
    }
}

#define PANEL(name, layout)                                                                                            \
    static void name(const uint8_t *panel, int cols, const float *x, size_t ldx, int m, float *y, size_t ldy)          \
    {                                                                                                                  \
        in_pieces(layout, panel, cols, x, ldx, m, y, ldy);                                                             \
    }

PANEL(panel_f32, RG_LAYOUT_F32)
PANEL(panel_f16, RG_LAYOUT_F16)
PANEL(panel_bf16, RG_LAYOUT_BF16)
PANEL(panel_q4, RG_LAYOUT_Q4)
PANEL(panel_q8, RG_LAYOUT_Q8)
PANEL(panel_q4m, RG_LAYOUT_Q4M)
PANEL(panel_q8m, RG_LAYOUT_Q8M)
PANEL(panel_k4, RG_LAYOUT_K4)
PANEL(panel_k8, RG_LAYOUT_K8)

void rg_neon_init_exact(rg_cpu *k)
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
