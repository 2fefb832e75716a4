/* exact_tmpl.h -- the exact recipe around its inner loop: panels a piece at a time, decoded into L1 (f32 needs no
 * decoding), while the chains of a batch of rows wait beside it and the next piece of a float layout comes from memory
 * (integers take so long to decode that they are there).
 *
 * Included by the exact.c of an instruction set after the folder's header and what tile_tmpl.h wants; exact.c then
 * defines few_rows, and fills the table with fill_exact. */
#ifndef RG_OPS_CPU_EXACT_TMPL_H
#define RG_OPS_CPU_EXACT_TMPL_H

enum {
    PIECE = 192,       /* columns that are decoded together: 12 KiB of each panel */
    WHOLE_PIECE = 512, /* of f32, which is read where it lies */
    AHEAD = 4096, /* bytes that come near ahead of one pass over a panel: the hardware stops at each page */
    FEW_FLOAT8 = WIDTH == 16 ? 4 : 1, /* rows that share what is decoded in registers */
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

/* The scales of a step of F8, and whether they can be multiplied by 2^8 first: what load_e4m3_small lacks. */
typedef struct float8_scales {
    vec d[PARTS], d8[PARTS];
    bool exact;
} float8_scales;

ALWAYS_INLINE float8_scales load_float8_scales(const uint8_t *step)
{
    float8_scales s = { .exact = true };

    for (int part = 0; part < PARTS; part++) {
        s.d[part] = load_f32((const float *)(const void *)step + WIDTH * part);
        s.d8[part] = s.d[part] * 256.0f;
        s.exact = s.exact && !any_nan(s.d8[part] - s.d8[part]);
    }
    return s;
}

/* Four columns of F8, at q, as f32. */
ALWAYS_INLINE void decode_float8(const float8_scales *s, const uint8_t *q, vec (*w)[PARTS])
{
    if (__builtin_expect(s->exact && !any_e4m3_nan(q), true)) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
            for (int part = 0; part < PARTS; part++)
                w[i][part] = s->d8[part] * load_e4m3_small(q + 16 * i + WIDTH * part);
        return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
        for (int part = 0; part < PARTS; part++)
            w[i][part] = s->d[part] * load_e4m3(q + 16 * i + WIDTH * part);
}

/* Run b of F8 as f32, [32][16]. */
ALWAYS_INLINE void decode_float8_run(const uint8_t *panel, int b, float *to)
{
    const uint8_t *q = run_q(RG_LAYOUT_F8, panel, b);
    const float8_scales s = load_float8_scales(run_step(RG_LAYOUT_F8, panel, b));

    for (int k = 0; k < 32; k += 4) {
        vec w[4][PARTS];

        decode_float8(&s, q + 16 * k, w);
        for (int i = 0; i < 4 * PARTS; i++)
            store_f32(to + 16 * k + WIDTH * i, w[i / PARTS][i % PARTS]);
    }
}

/* n columns of panel i from the first on as f32, [n][16]: decoded to `room`, or where they are. */
ALWAYS_INLINE const float *decode(rg_layout layout, const rg_product *p, int i, int first, int n, float *room)
{
    const uint8_t *panel = p->panel + (size_t)i * p->panel_bytes;
    const size_t apart = p->column_bytes;
    const book t = load_book(layout, panel);

    if (layout == RG_LAYOUT_F32)
        return (const float *)(const void *)panel + 16 * (size_t)first;
    if (is_float(layout)) {
        const size_t each = is_wide_layout(layout) ? apart : rg_layout_step_bytes(layout);

        for (int k = 0; k < n / 2 * 2; k += 2) { /* two and two share a load */
            const uint8_t *two = panel + (size_t)(first + k) * each;
#pragma GCC unroll 4
            for (int v = 0; v < 2 * PARTS; v++)
                store_f32(room + 16 * k + WIDTH * v, column(layout, two, apart, (size_t)(v / PARTS), v % PARTS));
        }
        for (int part = 0; part < PARTS && n % 2; part++)
            store_f32(room + 16 * (n - 1) + WIDTH * part,
                      any_column(layout, panel, apart, p->cols, first + n - 1, part));
    }
    if (layout == RG_LAYOUT_F8)
        for (int k = 0; k < n; k += 32)
            decode_float8_run(panel, (first + k) / 32, room + 16 * k);
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
    const int piece = piece_of(p->cols, layout == RG_LAYOUT_F32 ? WHOLE_PIECE : PIECE);
    chains c[BATCH][VECTORS];

    for (int row = 0; row < p->m; row += BATCH) {
        const int here = p->m - row < BATCH ? p->m - row : BATCH;

        for (int k = 0, n; k < p->cols; k += n) {
            n = p->cols - k < piece ? p->cols - k : piece;
            const size_t soon = k + n < p->cols ? (size_t)(k + n) * column : (size_t)p->n_panels * p->panel_bytes;
            walk t = { .gap = layout == RG_LAYOUT_F32 ? p->panel_bytes : sizeof room[0], .n = n,
                       .n_panels = p->n_panels, .first = k == 0,
                       .x = (const uint8_t *)(p->x + (size_t)row * p->ldx + (size_t)k), .ldx = p->ldx * sizeof *p->x,
                       .y = k + n < p->cols ? NULL : p->y + (size_t)row * p->ldy, .ldy = p->ldy,
                       .soon = p->panel + soon, .n_soon = row ? 0 : (int)((size_t)n * column / 64),
                       .soon_gap = p->panel_bytes };

            for (int i = p->n_panels - 1; i >= 0; i--)
                t.w = (const uint8_t *)decode(layout, p, i, k, n, room[i]);
            add_piece(t, here, c);
        }
    }
}

/* ---- matrices as they lie ---------------------------------------------------------------------------------------- */

#define DEFINE_LYING(name, how, rows)                                                                                  \
    static __attribute__((noinline)) void name##_##rows(const walk *t, chains (*c)[VECTORS])                           \
    {                                                                                                                  \
        add_tile(t, how, rows, VECTORS, c);                                                                            \
    }                                                                                                                  \
    static __attribute__((noinline)) void last_##name##_##rows(const walk *t, chains (*c)[VECTORS])                    \
    {                                                                                                                  \
        add_tile(t, how, rows, PARTS, c);                                                                              \
    }
#define DEFINE_BY_ROWS(rows) DEFINE_LYING(by_rows, BY_ROWS, rows)
#define DEFINE_TURNED(rows)  DEFINE_LYING(turned, TURNED, rows)
#define CASE_BY_ROWS(rows)                                                                                             \
    case rows: t.n_panels == PANELS ? by_rows_##rows(&t, c) : last_by_rows_##rows(&t, c); break;
#define CASE_TURNED(rows)                                                                                              \
    case rows: t.n_panels == PANELS ? turned_##rows(&t, c) : last_turned_##rows(&t, c); break;

TILES(DEFINE_BY_ROWS)
TILES(DEFINE_TURNED)

/* As add_piece; sums of the only piece leave the chains of other rows alone, which then share a place. */
static void add_lying(walk t, lying how, int m, chains (*c)[VECTORS])
{
    int tiles = (m + TILE - 1) / TILE;

    for (int here; m > 0; m -= here, tiles--) {
        here = (m + tiles - 1) / tiles;
        if (how == BY_ROWS) {
            switch (here) {
                TILES(CASE_BY_ROWS)
            }
        } else {
            switch (here) {
                TILES(CASE_TURNED)
            }
        }
        t.x += (size_t)here * (how == TURNED ? sizeof(float) : t.ldx);
        if (t.y)
            t.y += (size_t)here * t.ldy;
        c += t.first && t.y ? 0 : here;
    }
}

/* Up to PANELS panels from the i-th on, by up to BATCH rows from `row` on. */
static void lying_panels(const rg_host_product *p, int i, int row)
{
    const int piece = piece_of(p->cols, WHOLE_PIECE), here = p->m - row < BATCH ? p->m - row : BATCH;
    const float *x = p->x + (size_t)row * (p->turned ? 1 : p->ldx), *w = p->panels + (size_t)i * p->panel_floats;
    chains c[BATCH][VECTORS];

    for (int k = 0, n; k < p->cols; k += n) {
        n = p->cols - k < piece ? p->cols - k : piece;
        add_lying((walk){ .w = (const uint8_t *)(w + (size_t)k * p->column_floats),
                          .gap = p->panel_floats * sizeof *w,
                          .w_step = p->column_floats * sizeof *w,
                          .n = n,
                          .n_panels = p->n_panels - i < PANELS ? p->n_panels - i : PANELS,
                          .first = k == 0,
                          .x = (const uint8_t *)(x + (size_t)k * (p->turned ? p->ldx : 1)),
                          .ldx = p->ldx * sizeof *x,
                          .y = k + n < p->cols ? NULL : p->y + (size_t)row * p->ldy + 16 * (size_t)i,
                          .ldy = p->ldy,
                          .add = p->add },
                  p->turned ? TURNED : BY_ROWS, here, c);
    }
}

static void matrices(const rg_host_product *p)
{
    for (int row = 0; row < p->m; row += BATCH)
        for (int i = 0; i < p->n_panels; i += PANELS)
            lying_panels(p, i, row);
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

#define EXACT_PRODUCT(name, layout)                                                                                    \
    static void exact_##name(const rg_product *p)                                                                      \
    {                                                                                                                  \
        const int rows = rows_together((size_t)p->cols * sizeof(float), p->m);                                         \
                                                                                                                       \
        for (int row = 0; row < p->m; row += rows)                                                                     \
            for (int i = 0; i < p->n_panels; i += PANELS) {                                                            \
                const rg_product q = panels_of(p, i, row, rows);                                                       \
                if (!is_float(layout) || !few_rows(layout, &q))                                                        \
                    in_pieces(layout, &q);                                                                             \
            }                                                                                                          \
    }

/* A panel of F8 by n_rows rows, a constant, decoded on its way to their sums. */
ALWAYS_INLINE void float8_rows(const rg_product *p, int n_rows)
{
    const uint8_t *step = p->panel;
    const float *x[FEW_FLOAT8];
    chains c[FEW_FLOAT8][PARTS];

#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++) {
        x[r] = p->x + (size_t)r * p->ldx;
#pragma GCC unroll 4
        for (int part = 0; part < PARTS; part++)
            clear(c[r][part]);
    }
    for (int first = 0; first < p->cols; first += 128, step += sizeof(rg_step_f8)) {
        const float8_scales s = load_float8_scales(step);
        const uint8_t *q = step + rg_layout_codes_at(RG_LAYOUT_F8);

        __builtin_prefetch(step + AHEAD);
        for (int k = 0; k < 128; k += 4, q += 64) {
            vec w[4][PARTS];

            __builtin_prefetch(q + AHEAD);
            decode_float8(&s, q, w);
#pragma GCC unroll 4
            for (int r = 0; r < n_rows; r++) {
                __asm__("" : "+r"(x[r])); /* a pointer per row, not an index */
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
                    for (int part = 0; part < PARTS; part++)
                        c[r][part][i] = fused(w[i][part], splat(x[r][i]), c[r][part][i]);
                x[r] += 4;
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int part = 0; part < PARTS; part++)
            store_sum(p->y + (size_t)r * p->ldy + WIDTH * part, c[r][part]);
}

static void exact_f8(const rg_product *p)
{
    const int rows = p->m <= 2 * FEW_FLOAT8 ? FEW_FLOAT8 : rows_together((size_t)p->cols * sizeof(float), p->m);

    for (int row = 0; row < p->m; row += rows)
        for (int i = 0; i < p->n_panels; i += PANELS) {
            const rg_product q = panels_of(p, i, row, rows);

            if (p->m > 2 * FEW_FLOAT8)
                in_pieces(RG_LAYOUT_F8, &q);
            for (int k = 0; k < q.n_panels && p->m <= 2 * FEW_FLOAT8; k++) {
                const rg_product one = part_of(&q, k, 0, rows);

                switch (one.m) {
                case 1: float8_rows(&one, 1); break;
                case 2: float8_rows(&one, FEW_FLOAT8 < 2 ? FEW_FLOAT8 : 2); break;
                case 3: float8_rows(&one, FEW_FLOAT8 < 3 ? FEW_FLOAT8 : 3); break;
                default: float8_rows(&one, FEW_FLOAT8);
                }
            }
        }
}

FLOAT_LAYOUTS(EXACT_PRODUCT)
INTEGER_LAYOUTS(EXACT_PRODUCT)

/* ---- some columns of integer layouts ----------------------------------------------------------------------------- */

enum { SOME = 8, TOGETHER = 4 }; /* columns that are decoded together, and stay in registers; panels of one row */

/* One part of a column, as decode_run has it; without a branch, since columns come as they like. */
ALWAYS_INLINE vec decode_column(rg_layout layout, const uint8_t *panel, const book *t, int col, int part)
{
    const int b = (int)((unsigned)col / 32), k = (int)((unsigned)col % 32); /* unsigned: one operation each */
    const scales s = run_scales(layout, panel, b, k * n_halves_of(layout) / 32, part);
    vec v = weights(layout, t, column_codes(layout, run_q(layout, panel, b), k, part), 0);

    if (has_zero(layout))
        v = v - s.m;
    v = s.d * v;
    if (has_minimum(layout))
        v = v + s.m;
    return v;
}

/* All columns of n panels, a constant, by one row: what a column's place costs to compute is shared by the panels. */
ALWAYS_INLINE void columns_of_row(rg_layout layout, const rg_columns *c, int first, int n)
{
    const uint8_t *panel[TOGETHER];
    float *y = c->y + 16 * first;
    book t[TOGETHER];
    vec sum[TOGETHER][PARTS];

#pragma GCC unroll 4
    for (int p = 0; p < n; p++) {
        panel[p] = c->panel + (size_t)(first + p) * c->panel_bytes;
        t[p] = load_book(layout, panel[p]);
#pragma GCC unroll 4
        for (int part = 0; part < PARTS; part++)
            sum[p][part] = load_f32(y + 16 * p + WIDTH * part);
    }
    for (int i = 0; i < c->n; i++) {
        if (c->x[i] == 0.0f)
            continue;
#pragma GCC unroll 4
        for (int p = 0; p < n; p++)
#pragma GCC unroll 4
            for (int part = 0; part < PARTS; part++)
                sum[p][part] =
                    fused(decode_column(layout, panel[p], &t[p], c->col[i], part), splat(c->x[i]), sum[p][part]);
    }
#pragma GCC unroll 4
    for (int p = 0; p < n; p++)
#pragma GCC unroll 4
        for (int part = 0; part < PARTS; part++)
            store_f32(y + 16 * p + WIDTH * part, sum[p][part] + splat(0.0f));
}

ALWAYS_INLINE void columns_of_one_row(rg_layout layout, const rg_columns *c)
{
    int p = 0;

    for (; p + TOGETHER <= c->n_panels; p += TOGETHER)
        columns_of_row(layout, c, p, TOGETHER);
    for (; p < c->n_panels; p++)
        columns_of_row(layout, c, p, 1);
}

/* Multiplies n columns (a constant) by all rows, also where a row's x is 0 and the column could be left out: 0 times a
 * number adds 0.  That can only turn a sum of -0 into +0, which the end of the sum does anyhow. */
ALWAYS_INLINE void add_some(const float (*w)[16], int n, const rg_columns *c, int first, float *y)
{
    for (int part = 0; part < 16; part += WIDTH) {
        vec v[SOME];

#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            v[i] = load_f32(w[i] + part);
        for (int r = 0; r < c->m; r++) {
            const float *x = c->x + (size_t)r * c->ldx + first;
            float *to = y + (size_t)r * c->ldy + part;
            vec sum = load_f32(to);

#pragma GCC unroll 8
            for (int i = 0; i < n; i++)
                sum = fused(v[i], splat(x[i]), sum);
            store_f32(to, sum + splat(0.0f));
        }
    }
}

/* Multiplies n columns whose weights include NaN or infinity: each row by the columns whose x is not 0 alone, since 0
 * times such a weight would be NaN. */
ALWAYS_INLINE void add_met(const float (*w)[16], int n, const rg_columns *c, int first, float *y)
{
    for (int r = 0; r < c->m; r++) {
        const float *x = c->x + (size_t)r * c->ldx + first;
        float *to = y + (size_t)r * c->ldy;

        for (int i = 0; i < n; i++)
            for (int part = 0; x[i] != 0.0f && part < 16; part += WIDTH)
                store_f32(to + part, fused(load_f32(w[i] + part), splat(x[i]), load_f32(to + part)));
        for (int part = 0; part < 16; part += WIDTH)
            store_f32(to + part, load_f32(to + part) + splat(0.0f));
    }
}

/* True if x - x is 0 for all n of them. */
ALWAYS_INLINE bool are_numbers(const float (*w)[16], int n)
{
    vec sum = splat(0.0f);

    for (int i = 0; i < n; i++)
        for (int part = 0; part < 16; part += WIDTH)
            sum = sum + (load_f32(w[i] + part) - load_f32(w[i] + part));
    return !any_nan(sum);
}

ALWAYS_INLINE void columns_of_panel(rg_layout layout, const uint8_t *panel, const rg_columns *c, float *y)
{
    _Alignas(64) float w[SOME][16];
    const book t = load_book(layout, panel);

    for (int first = 0, n; first < c->n || first == 0; first += n) { /* in eights, a four, a two, a one */
        const int left = c->n - first;

        n = left >= SOME ? SOME : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        for (int i = 0; i < n && i < left; i++)
            for (int part = 0; part < PARTS; part++)
                store_f32(w[i] + WIDTH * part, decode_column(layout, panel, &t, c->col[first + i], part));
        if (!left || !are_numbers(w, n))
            add_met(w, left ? n : 0, c, first, y);
        else if (n == SOME)
            add_some(w, SOME, c, first, y);
        else if (n == 4)
            add_some(w, 4, c, first, y);
        else if (n == 2)
            add_some(w, 2, c, first, y);
        else
            add_some(w, 1, c, first, y);
    }
}

#define COLUMNS(name, layout)                                                                                          \
    static void columns_##name(const rg_columns *c)                                                                    \
    {                                                                                                                  \
        if (c->m == 1)                                                                                                 \
            columns_of_one_row(layout, c);                                                                             \
        for (int p = 0; p < c->n_panels && c->m > 1; p++)                                                              \
            columns_of_panel(layout, c->panel + (size_t)p * c->panel_bytes, c, c->y + 16 * p);                         \
    }

INTEGER_LAYOUTS(COLUMNS)

/* ---- columns that are not 0 -------------------------------------------------------------------------------------- */

/* LISTED: columns that are listed at once.  AT_ONCE: columns of a chain whose sums stay in registers.  STRIP: panels
 * whose sums of two chains fit there.  MOST: panels whose sums wait in L2. */
enum { LISTED = 8192, AT_ONCE = 4, STRIP = PARTS == 1 ? 8 : 2, MOST = RG_COLUMN_PANELS };

/* What columns of a piece are not 0, of both chains of a half. */
typedef struct listed {
    const uint8_t *w; /* its first column */
    const float *x;
    size_t apart; /* bytes from column to column */
    int16_t at[2][LISTED / 4 + 1];
    int n[2], n_panels;
    float (*sum)[16 * MOST]; /* of each chain */
} listed;

/* Per chain [first_chain, first_chain + n_chains) its columns i .. i + n - 1 into its sums of panels [panel, panel +
 * n_panels); n_chains and n_panels are constants.  Of the columns that stand `ahead` places later in the lists the same
 * panels are fetched, since the processor cannot guess the columns: into L2, where more lines can be under way than
 * into L1, and from all of them by turns, since memory gives several pieces side by side faster than one by one. */
ALWAYS_INLINE void add_strip(rg_layout layout, const listed *l, int first_chain, int n_chains, int i, int n, int ahead,
                             int panel, int n_panels)
{
    const size_t each = rg_layout_step_bytes(layout);
    const uint8_t *w = l->w + each * (size_t)panel;
    vec sum[2][STRIP * PARTS];

#pragma GCC unroll 2
    for (int k = 0; k < n_chains; k++)
#pragma GCC unroll 8
        for (int v = 0; v < n_panels * PARTS; v++)
            sum[k][v] = load_f32(l->sum[first_chain + k] + 16 * panel + WIDTH * v);
    for (int j = i; j < i + n; j++)
#pragma GCC unroll 2
        for (int k = 0; k < n_chains; k++) {
            const size_t at = (size_t)l->at[first_chain + k][j];
            const uint8_t *of_column = w + at * l->apart;
            const uint8_t *later = w + (size_t)l->at[first_chain + k][j + ahead] * l->apart;
            const vec by = splat(l->x[at]);

#pragma GCC unroll 8
            for (size_t line = 0; line < each * (size_t)n_panels; line += 64)
                __builtin_prefetch(later + line, 0, 2);
#pragma GCC unroll 8
            for (int v = 0; v < n_panels * PARTS; v++)
                sum[k][v] = fused(column(layout, of_column + each * (size_t)(v / PARTS), 0, 0, v % PARTS), by,
                                  sum[k][v]);
        }
#pragma GCC unroll 2
    for (int k = 0; k < n_chains; k++)
#pragma GCC unroll 8
        for (int v = 0; v < n_panels * PARTS; v++)
            store_f32(l->sum[first_chain + k] + 16 * panel + WIDTH * v, sum[k][v]);
}

/* All panels, of columns i up to end of n_chains chains.  Behind the last columns there are none to fetch. */
ALWAYS_INLINE void add_listed(rg_layout layout, const listed *l, int first_chain, int n_chains, int i, int end)
{
    for (int n; i < end; i += n) {
        n = end - i < AT_ONCE ? end - i : AT_ONCE;
        const int ahead = i + 2 * n <= end ? n : 0;
        int panel = 0;

        for (; panel + STRIP <= l->n_panels; panel += STRIP)
            add_strip(layout, l, first_chain, n_chains, i, n, ahead, panel, STRIP);
        for (; panel < l->n_panels; panel++)
            add_strip(layout, l, first_chain, n_chains, i, n, ahead, panel, 1);
    }
}

/* List which of the columns first, first + 4 .. are not 0; without a branch, which would be predicted wrong. */
ALWAYS_INLINE int list_chain(int16_t *at, const float *x, int first, int n)
{
    int n_listed = 0;

    for (int k = first; k < n; k += 4) {
        at[n_listed] = (int16_t)k;
        n_listed += x[k] != 0.0f;
    }
    return n_listed;
}

ALWAYS_INLINE void add_all_listed(rg_layout layout, const listed *l)
{
    const int both = l->n[0] < l->n[1] ? l->n[0] : l->n[1];

    add_listed(layout, l, 0, 2, 0, both);
    for (int chain = 0; chain < 2; chain++)
        add_listed(layout, l, chain, 1, both, l->n[chain]);
}

ALWAYS_INLINE void sparse_product(rg_layout layout, const rg_product *p)
{
    _Alignas(64) float c[2][16 * MOST];
    listed l = { .apart = p->column_bytes, .sum = c };

    for (int panel = 0; panel < p->n_panels; panel += MOST) {
        l.n_panels = p->n_panels - panel < MOST ? p->n_panels - panel : MOST;
        for (int chain = 0; chain < 2; chain++)
            __builtin_memset(c[chain], 0, (size_t)l.n_panels * 16 * sizeof(float));
        for (int first = 0; first < p->cols; first += LISTED) {
            l.w = p->panel + (size_t)panel * p->panel_bytes + (size_t)first * p->column_bytes;
            l.x = p->x + first;
            for (int chain = 0; chain < 2; chain++)
                l.n[chain] = list_chain(l.at[chain], l.x, 2 * p->half + chain,
                                        p->cols - first < LISTED ? p->cols - first : LISTED);
            add_all_listed(layout, &l);
        }
        for (int i = 0; i < 16 * l.n_panels; i++)
            p->y[16 * panel + i] = c[0][i] + c[1][i];
    }
}

#define SPARSE(name, layout)                                                                                           \
    static void sparse_##name(const rg_product *p)                                                                     \
    {                                                                                                                  \
        sparse_product(layout, p);                                                                                     \
    }

WIDE_LAYOUTS(SPARSE)

static void fill_exact(rg_cpu *k)
{
    k->matrices = matrices;
    WIDE_LAYOUTS(FILL_SPARSE)
    INTEGER_LAYOUTS(FILL_COLUMNS)
    FLOAT_LAYOUTS(FILL_EXACT)
    FLOAT8_LAYOUTS(FILL_EXACT)
    INTEGER_LAYOUTS(FILL_EXACT)
}

#endif
