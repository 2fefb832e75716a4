/* exact_tmpl.h -- the exact recipe around its inner loop: panels a piece at a time, decoded into L1 (f32 needs no
 * decoding), while the chains of a batch of rows wait beside it and the next piece of a float layout comes from memory
 * (integers take so long to decode that they are there).
 *
 * Included by the exact.c of an instruction set after the folder's header; exact.c then defines add_piece and few_rows,
 * and fills the table with FILL_EXACT. */
#ifndef RG_OPS_CPU_EXACT_TMPL_H
#define RG_OPS_CPU_EXACT_TMPL_H

enum {
    BATCH = 24,  /* rows that share a piece: 6 KiB of chains */
    PIECE = 128, /* columns: 8 KiB */
    AHEAD = 4096, /* bytes that come near ahead of one pass over a panel: the hardware stops at each page */
};

typedef vec chains[4]; /* by column modulo 4 */

/* What comes near meanwhile: `each` bytes of it with every four columns. */
typedef struct soon {
    const uint8_t *at;
    size_t each; /* 0: nothing */
} soon;

ALWAYS_INLINE void fetch(soon *s)
{
    for (size_t i = 0; i < s->each; i += 64)
        __builtin_prefetch(s->at + i);
    s->at += s->each;
}

/* A decoded piece of n columns into the chains of m <= BATCH rows; what is needed soon comes with the first of them. */
static void add_piece(const float *w, soon next, int n, const float *x, size_t ldx, int m, chains (*c)[PARTS]);

/* All of a float panel where it lies, without decoding; false: these are too many rows for that. */
ALWAYS_INLINE bool few_rows(rg_layout layout, const uint8_t *panel, int cols, const float *x, size_t ldx, int m,
                            float *y, size_t ldy);

ALWAYS_INLINE void clear(chains c)
{
    c[0] = c[1] = c[2] = c[3] = (vec){ 0 };
}

ALWAYS_INLINE void store_sum(float *y, const chains c)
{
    store_f32(y, (c[0] + c[1]) + (c[2] + c[3]));
}

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

/* n columns from the first on as f32, [n][16]: decoded to `room`, or where they are. */
ALWAYS_INLINE const float *decode(rg_layout layout, const uint8_t *panel, const book *t, int first, int n, float *room)
{
    if (layout == RG_LAYOUT_F32)
        return (const float *)(const void *)panel + 16 * (size_t)first;
    if (is_float(layout))
        for (int k = 0; k < PARTS * n; k++)
            store_f32(room + WIDTH * k, column(layout, panel, (size_t)(first + k / PARTS), k % PARTS));
    else if (layout == RG_LAYOUT_F8)
        for (int k = 0; k < n; k += 32)
            decode_float8(layout, panel, (first + k) / 32, room + 16 * k);
    else
        for (int k = 0; k < n; k += 32)
            decode_run(layout, panel, t, (first + k) / 32, room + 16 * k);
    return room;
}

ALWAYS_INLINE void in_pieces(rg_layout layout, const uint8_t *panel, int cols, const float *x, size_t ldx, int m,
                             float *y, size_t ldy)
{
    _Alignas(64) float room[PIECE * 16];
    const book t = load_book(layout, panel);
    chains c[BATCH][PARTS];

    for (int row = 0; row < m; row += BATCH) {
        const int here = m - row < BATCH ? m - row : BATCH;

        for (int r = 0; r < PARTS * here; r++)
            clear(c[r / PARTS][r % PARTS]);
        for (int k = 0; k < cols; k += PIECE) {
            const int n = cols - k < PIECE ? cols - k : PIECE;
            const size_t column = is_float(layout) ? column_bytes(layout) : 0;
            const soon next = { panel + (size_t)(k + n) * column, row ? 0 : 4 * column };
            add_piece(decode(layout, panel, &t, k, n, room), next, n, x + (size_t)row * ldx + (size_t)k, ldx, here, c);
        }
        for (int r = 0; r < PARTS * here; r++)
            store_sum(y + (size_t)(row + r / PARTS) * ldy + WIDTH * (r % PARTS), c[r / PARTS][r % PARTS]);
    }
}

#define EXACT_PRODUCT(name, layout)                                                                                    \
    static void exact_##name(const rg_product *p)                                                                      \
    {                                                                                                                  \
        const int rows = near_rows((size_t)p->cols * sizeof(float));                                                   \
                                                                                                                       \
        for (int row = 0; row < p->m; row += rows)                                                                     \
            for (int i = 0; i < p->n_panels; i++) {                                                                    \
                const rg_product q = part_of(p, i, row, rows);                                                         \
                if (!is_float(layout) || !few_rows(layout, q.panel, q.cols, q.x, q.ldx, q.m, q.y, q.ldy))              \
                    in_pieces(layout, q.panel, q.cols, q.x, q.ldx, q.m, q.y, q.ldy);                                   \
            }                                                                                                          \
    }

FLOAT_LAYOUTS(EXACT_PRODUCT)
FLOAT8_LAYOUTS(EXACT_PRODUCT)
INTEGER_LAYOUTS(EXACT_PRODUCT)

/* ---- some columns of integer layouts ----------------------------------------------------------------------------- */

/* Columns 4i .. 4i + 3 of run b as f32, [4][16], as decode_run has them; i is a constant. */
ALWAYS_INLINE void decode_group(rg_layout layout, const uint8_t *panel, const book *t, int b, int i, float *w)
{
    for (int part = 0; part < PARTS; part++) {
        const scales s = run_scales(layout, panel, b, i * n_halves_of(layout) / 8, part);
        const bytes group = run_codes(layout, run_q(layout, panel, b), i, part);

        for (int k = 0; k < 4; k++) {
            vec v = weights(layout, t, group, k);

            if (has_zero(layout))
                v = v - s.m;
            v = s.d * v;
            if (has_minimum(layout))
                v = v + s.m;
            store_f32(w + 16 * k + WIDTH * part, v);
        }
    }
}

ALWAYS_INLINE const float *decode_column(rg_layout layout, const uint8_t *panel, const book *t, int k, float *room)
{
    const int b = k / 32;

    switch (k % 32 / 4) {
    case 0: decode_group(layout, panel, t, b, 0, room); break;
    case 1: decode_group(layout, panel, t, b, 1, room); break;
    case 2: decode_group(layout, panel, t, b, 2, room); break;
    case 3: decode_group(layout, panel, t, b, 3, room); break;
    case 4: decode_group(layout, panel, t, b, 4, room); break;
    case 5: decode_group(layout, panel, t, b, 5, room); break;
    case 6: decode_group(layout, panel, t, b, 6, room); break;
    default: decode_group(layout, panel, t, b, 7, room);
    }
    return room + 16 * (k % 4);
}

ALWAYS_INLINE void columns_of_panel(rg_layout layout, const uint8_t *panel, const rg_columns *c, float *y)
{
    _Alignas(64) float room[4 * 16];
    const book t = load_book(layout, panel);

    for (int i = 0; i < c->n; i++) {
        const float *w = decode_column(layout, panel, &t, c->col[i], room), *x = c->x + c->col[i];

        for (uint32_t rows = c->rows[i]; rows; rows &= rows - 1) {
            const size_t r = (size_t)__builtin_ctz(rows);
            for (int part = 0; part < 16; part += WIDTH)
                store_f32(y + r * c->ldy + part,
                          fused(load_f32(w + part), splat(x[r * c->ldx]), load_f32(y + r * c->ldy + part)));
        }
    }
}

#define COLUMNS(name, layout)                                                                                          \
    static void columns_##name(const rg_columns *c)                                                                    \
    {                                                                                                                  \
        for (int p = 0; p < c->n_panels; p++)                                                                          \
            columns_of_panel(layout, c->panel + (size_t)p * c->panel_bytes, c, c->y + 16 * p);                         \
    }

INTEGER_LAYOUTS(COLUMNS)

static void fill_exact(rg_cpu *k)
{
    INTEGER_LAYOUTS(FILL_COLUMNS)
    FLOAT_LAYOUTS(FILL_EXACT)
    FLOAT8_LAYOUTS(FILL_EXACT)
    INTEGER_LAYOUTS(FILL_EXACT)
}

#endif
