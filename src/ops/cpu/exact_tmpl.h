/* exact_tmpl.h -- the exact recipe around its inner loop: panels a piece at a time, decoded into L1 (f32 needs no
 * decoding), while the chains of a batch of rows wait beside it and the next piece of a float layout comes from memory
 * (integers take so long to decode that they are there).
 *
 * Included by the exact.c of an instruction set after the folder's header and what tile_tmpl.h wants; exact.c then
 * defines few_rows, and fills the table with fill_exact. */
#ifndef RG_OPS_CPU_EXACT_TMPL_H
#define RG_OPS_CPU_EXACT_TMPL_H

enum {
    PIECE = 256,  /* columns: 16 KiB of each panel */
    AHEAD = 4096, /* bytes that come near ahead of one pass over a panel: the hardware stops at each page */
};

#define every4(x)     splat_at(x)
#define step(c, w, x) fused(w, x, c)

#include "ops/cpu/tile_tmpl.h"

/* All of some float panels where they lie, without decoding; false: these are too many rows for that. */
ALWAYS_INLINE bool few_rows(rg_layout layout, const rg_product *p);

/* The weights of run b as f32, [32][16]: d * (q - offset), d * (q - z) or d * (the table's value), and + m where the
 * layout has a minimum, each rounded by itself. */
ALWAYS_INLINE void decode_run(rg_layout layout, const uint8_t *panel, const book *t, int b, float *w)
{
    const int n_halves = n_halves_of(layout), n_groups = 8 / n_halves;
    const uint8_t *q = run_q(layout, panel, b);

    for (int part = 0; part < PARTS; part++)
        for (int h = 0; h < n_halves; h++) {
            const scales s = run_scales(layout, panel, b, h, part);
            for (int i = h * n_groups; i < (h + 1) * n_groups; i++) {
                const bytes group = run_codes(layout, q, i, part);
                for (int k = 0; k < 4; k++) {
                    vec v = weights(layout, t, group, k);
                    if (has_zero(layout))
                        v = v - s.m;
                    v = s.d * v;
                    if (has_minimum(layout))
                        v = v + s.m;
                    store_f32(w + 16 * (4 * i + k) + WIDTH * part, v);
                }
            }
        }
}

/* The same of floats of 8 bits, [32][16] already. */
ALWAYS_INLINE void decode_float8(rg_layout layout, const uint8_t *panel, int b, float *w)
{
    const uint8_t *q = run_q(layout, panel, b);

    for (int part = 0; part < PARTS; part++) {
        const scales s = run_scales(layout, panel, b, 0, part);
        for (int k = WIDTH * part; k < 32 * 16; k += 16)
            store_f32(w + k, s.d * load_e4m3(q + k));
    }
}

/* n of all columns from the first on as f32, [n][16]: decoded to `room`, or where they are. */
ALWAYS_INLINE const float *decode(rg_layout layout, const uint8_t *panel, int cols, int first, int n, float *room)
{
    const book t = load_book(layout, panel);

    if (layout == RG_LAYOUT_F32)
        return (const float *)(const void *)panel + 16 * (size_t)first;
    if (is_float(layout)) {
        for (int k = 0; k < n / 2 * 2; k++) /* two and two share a load */
            for (int part = 0; part < PARTS; part++)
                store_f32(room + 16 * k + WIDTH * part, column(layout, panel, (size_t)(first + k), part));
        for (int part = 0; part < PARTS && n % 2; part++)
            store_f32(room + 16 * (n - 1) + WIDTH * part, any_column(layout, panel, cols, first + n - 1, part));
    }
    if (layout == RG_LAYOUT_F8)
        for (int k = 0; k < n; k += 32)
            decode_float8(layout, panel, (first + k) / 32, room + 16 * k);
    else if (!is_float(layout))
        for (int k = 0; k < n; k += 32)
            decode_run(layout, panel, &t, (first + k) / 32, room + 16 * k);
    return room;
}

/* Up to PANELS panels by the rows of p. */
ALWAYS_INLINE void in_pieces(rg_layout layout, const rg_product *p)
{
    _Alignas(64) float room[PANELS][PIECE * 16];
    const size_t column = is_float(layout) ? column_bytes(layout) : 0;
    chains c[BATCH][VECTORS];

    for (int row = 0; row < p->m; row += BATCH) {
        const int here = p->m - row < BATCH ? p->m - row : BATCH;

        for (int r = 0; r < VECTORS * here; r++)
            clear(c[r / VECTORS][r % VECTORS]);
        for (int k = 0; k < p->cols; k += PIECE) {
            const int n = p->cols - k < PIECE ? p->cols - k : PIECE;
            const size_t soon = k + n < p->cols ? (size_t)(k + n) * column : (size_t)p->n_panels * p->panel_bytes;
            walk t = { .gap = layout == RG_LAYOUT_F32 ? p->panel_bytes : sizeof room[0], .n = n,
                       .n_panels = p->n_panels, .x = (const uint8_t *)(p->x + (size_t)row * p->ldx + (size_t)k),
                       .ldx = p->ldx * sizeof *p->x, .soon = p->panel + (row ? 0 : soon),
                       .soon_each = row ? 0 : column, .soon_gap = p->panel_bytes };

            for (int i = p->n_panels - 1; i >= 0; i--) {
                const uint8_t *panel = p->panel + (size_t)i * p->panel_bytes;
                t.w = (const uint8_t *)decode(layout, panel, p->cols, k, n, room[i]);
            }
            add_piece(t, here, c);
        }
        for (int r = 0; r < PARTS * p->n_panels * here; r++) {
            const int v = r % (PARTS * p->n_panels);
            store_sum(p->y + (size_t)(row + r / (PARTS * p->n_panels)) * p->ldy + WIDTH * v,
                      c[r / (PARTS * p->n_panels)][v]);
        }
    }
}

#define EXACT_PRODUCT(name, layout)                                                                                    \
    static void exact_##name(const rg_product *p)                                                                      \
    {                                                                                                                  \
        const int rows = rows_together((size_t)p->cols * sizeof(float));                                               \
                                                                                                                       \
        for (int row = 0; row < p->m; row += rows)                                                                     \
            for (int i = 0; i < p->n_panels; i += PANELS) {                                                            \
                const rg_product q = panels_of(p, i, row, rows);                                                       \
                if (!is_float(layout) || !few_rows(layout, &q))                                                        \
                    in_pieces(layout, &q);                                                                             \
            }                                                                                                          \
    }

FLOAT_LAYOUTS(EXACT_PRODUCT)
FLOAT8_LAYOUTS(EXACT_PRODUCT)
INTEGER_LAYOUTS(EXACT_PRODUCT)

static void fill_exact(rg_cpu *k)
{
    FLOAT_LAYOUTS(FILL_EXACT)
    FLOAT8_LAYOUTS(FILL_EXACT)
    INTEGER_LAYOUTS(FILL_EXACT)
}

#endif
