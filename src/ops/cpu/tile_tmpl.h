/* tile_tmpl.h -- rows of x by vectors of float weights, chain after chain.
 *
 * A sum is four chains, and step k of the columns enters chain k % 4.  A full tile takes the steps of one chain before
 * those of the next, so that its registers hold that one chain of many rows and vectors: a value of x is loaded once
 * for all vectors, a vector of weights once for all rows.  (Four chains at once leave room for a quarter of the rows,
 * and then there is more than one load to a multiply-add, which is what bounds it.)  Small tiles take two or four
 * chains at once, since one sum waits for itself.
 *
 * A step is 64 bytes of each panel and four bytes of x: a column of f32, or a pair of columns of bf16.  Steps lie side
 * by side, or (of f32 alone) as in matrices: those of panels at any distance, those of x side by side or likewise, rows
 * then being neighbours.  Included where
 * vec, PARTS, PANELS (how many a piece spans), TILE (rows), TILES(DO) (DO(n) for n from 1 to TILE) and these are
 * defined:
 *     every4(x)       the four bytes at x in every lane
 *     step(c, w, x)   c + w * x as the recipe has it */
#ifndef RG_OPS_CPU_TILE_TMPL_H
#define RG_OPS_CPU_TILE_TMPL_H

enum {
    VECTORS = PANELS * PARTS, /* of weights in a piece */
    BATCH = 96,               /* rows that share a piece, while their chains wait in a near cache */
    LEAST = 64,               /* rows that stay near, however long they are */
    BY_POINTER = 3,           /* rows that an address and its offsets reach without an operation of their own */
    ROUND = 32,               /* steps between fetches: often enough to spread them, seldom enough to cost little */
};

/* How many of m rows of x are computed together: so few that they stay in a near cache while panels go by, but enough
 * to make reading the panels again cheap.  All stretches have about one size: a short one would wait for weights. */
ALWAYS_INLINE int rows_together(size_t row_bytes, int m)
{
    const int near = near_rows(row_bytes), most = near > LEAST ? near : LEAST, n = (m + most - 1) / most;

    return (m + n - 1) / n;
}

/* Columns of a piece: at most so many, and all alike, since during one as much of the next is fetched. */
ALWAYS_INLINE int piece_of(int cols, int most)
{
    const int n = (cols + most - 1) / most;

    return ((cols + n - 1) / n + 31) / 32 * 32; /* fits: at most `most` and 31 */
}

/* The part of a product that is up to PANELS panels from the i-th on by up to n rows from `row` on. */
ALWAYS_INLINE rg_product panels_of(const rg_product *p, int i, int row, int n)
{
    rg_product q = part_of(p, i, row, n);

    q.n_panels = p->n_panels - i < PANELS ? p->n_panels - i : PANELS;
    return q;
}

typedef vec chains[4]; /* by step modulo 4 */

/* How steps lie: all side by side; those of x alone; rows of x side by side. */
typedef enum lying { PACKED, BY_ROWS, TURNED } lying;

/* A piece of neighbouring panels: n steps, the first of them a multiple of 4; and the rows of x that meet it, ldx bytes
 * apart. */
typedef struct walk {
    const uint8_t *w;
    size_t gap;    /* from panel to panel */
    size_t w_step; /* from step to step of a panel, unless PACKED, when it is 64 */
    int n, n_panels;
    bool first; /* chains begin at 0, whatever they hold */
    const uint8_t *x;
    size_t ldx; /* TURNED: bytes from step to step */
    float *y;   /* of the last piece, where its sums go, ldy floats apart; else NULL */
    size_t ldy;
    bool add; /* sums are added there, unless PACKED */
    const uint8_t *soon; /* what comes near meanwhile: n_soon lines from here on, and the same in every other panel */
    int n_soon;
    size_t soon_gap;
} walk;

ALWAYS_INLINE vec load_step(const walk *t, const uint8_t *w, int v)
{
    vec r;

    __builtin_memcpy(&r, w + (size_t)(v / PARTS) * t->gap + sizeof r * (size_t)(v % PARTS), sizeof r);
    return r;
}

/* Where a tile stands: its weights; a pointer to every BY_POINTER-th row, and how far behind it the next rows are; what
 * is fetched next. */
typedef struct place {
    const uint8_t *w, *x[(TILE + BY_POINTER - 1) / BY_POINTER], *soon;
    size_t apart[BY_POINTER];
} place;

ALWAYS_INLINE size_t w_step(const walk *t, lying how)
{
    return how == PACKED ? 64 : t->w_step;
}

ALWAYS_INLINE size_t x_step(const walk *t, lying how)
{
    return how == TURNED ? t->ldx : 4;
}

/* The i-th step from p on into n_rows rows of n vectors each. */
ALWAYS_INLINE void add_step(const walk *t, const place *p, int i, lying how, int n_rows, int n, vec (*s)[VECTORS])
{
    vec wv[VECTORS];

#pragma GCC unroll 4
    for (int v = 0; v < n; v++)
        wv[v] = load_step(t, p->w + w_step(t, how) * (size_t)i, v);
#pragma GCC unroll 12
    for (int r = 0; r < n_rows; r++) {
        const uint8_t *x = how == TURNED ? p->x[0] + t->ldx * (size_t)i + 4 * r
                                         : p->x[r / BY_POINTER] + p->apart[r % BY_POINTER] + 4 * i;
        const vec xr = every4(x);
#pragma GCC unroll 4
        for (int v = 0; v < n; v++)
            s[r][v] = step(s[r][v], wv[v], xr);
    }
}

/* Up to n lines of each panel; L1 has no room. */
ALWAYS_INLINE void fetch(const walk *t, place *p, int n)
{
    const uint8_t *const end = t->soon + 64 * (size_t)t->n_soon;

    for (; n > 0 && p->soon < end; n--, p->soon += 64)
#pragma GCC unroll 2
        for (int i = 0; i < PANELS; i++)
            __builtin_prefetch(p->soon + (size_t)i * t->soon_gap, 0, 2);
}

/* The last chains go to y with those before, or are added there. */
ALWAYS_INLINE void give_sums(const walk *t, bool add, int at_once, int n_rows, int n, vec (*s)[TILE][VECTORS],
                             chains (*c)[VECTORS])
{
#pragma GCC unroll 48
    for (int r = 0; r < n_rows * n; r++) {
        const vec a = s[0][r / n][r % n];
        const vec pair = at_once == 1 ? c[r / n][r % n][2] + a : a + s[1][r / n][r % n];
        const vec sum = at_once == 4 ? pair + (s[2][r / n][r % n] + s[3][r / n][r % n]) : c[r / n][r % n][0] + pair;
        float *y = t->y + (size_t)(r / n) * t->ldy + WIDTH * (r % n);

        store_f32(y, add ? (vec)(load_f32(y) + sum) : sum);
    }
}

/* Chains [first, first + at_once) of n_rows rows by n vectors have taken their last step.  A sum is (c[0] + c[1]) +
 * (c[2] + c[3]): the first pair waits in c[0], and the second goes with it to y. */
ALWAYS_INLINE void end_chains(const walk *t, lying how, int first, int at_once, int n_rows, int n,
                              vec (*s)[TILE][VECTORS], chains (*c)[VECTORS])
{
    if (at_once == 1 && first % 2 == 0) {
#pragma GCC unroll 48
        for (int r = 0; r < n_rows * n; r++)
            c[r / n][r % n][first] = s[0][r / n][r % n];
    } else if (first + at_once < 4) {
#pragma GCC unroll 48
        for (int r = 0; r < n_rows * n; r++)
            c[r / n][r % n][0] = at_once == 1 ? c[r / n][r % n][0] + s[0][r / n][r % n]
                                              : s[0][r / n][r % n] + s[1][r / n][r % n];
    } else if (how != PACKED && t->add) {
        give_sums(t, true, at_once, n_rows, n, s, c);
    } else {
        give_sums(t, false, at_once, n_rows, n, s, c);
    }
}

/* How many chains of a tile its registers hold. */
ALWAYS_INLINE int chains_at_once(int n_rows, int n)
{
    const int fit = TILE * VECTORS / (n_rows * n);

    return fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

/* Steps first, first + 4 .. of one chain, or those of several neighbouring ones, into sums s.  Fetches are spread over
 * the tile: a processor has few places for lines that are under way, and loads that miss need them too. */
ALWAYS_INLINE void add_chains(const walk *t, lying how, const uint8_t **soon, int first, int n_rows, int n,
                              vec (*s)[TILE][VECTORS])
{
    const int at_once = chains_at_once(n_rows, n);
    const int n_pointers = how == TURNED ? 1 : (n_rows + BY_POINTER - 1) / BY_POINTER;
    const int n_rounds = 4 / at_once * ((t->n + ROUND - 1) / ROUND), n_soon = (t->n_soon + n_rounds - 1) / n_rounds;
    place p = { .w = t->w + w_step(t, how) * (size_t)first, .soon = *soon, .apart = { 0, t->ldx, 2 * t->ldx } };
    int k = first;

    __asm__("" : "+r"(p.apart[2])); /* twice ldx is a register too, so that an address is a pointer and one of them */
#pragma GCC unroll 4
    for (int i = 0; i < n_pointers; i++)
        p.x[i] = t->x + x_step(t, how) * (size_t)first + (size_t)(BY_POINTER * i) * t->ldx;
    while (k + at_once <= t->n) {
        const int all = t->n - at_once + 1, end = k + ROUND < all ? k + ROUND : all;

        if (how == PACKED)
            fetch(t, &p, n_soon);
        for (; k < end; k += 4, p.w += 4 * w_step(t, how)) {
#pragma GCC unroll 4
            for (int i = 0; i < at_once; i++)
                add_step(t, &p, i, how, n_rows, n, s[i]);
#pragma GCC unroll 4
            for (int i = 0; i < n_pointers; i++) {
                p.x[i] += 4 * x_step(t, how);
                __asm__("" : "+r"(p.x[i])); /* a pointer of its own, not the first and a multiple of ldx */
            }
        }
    }
#pragma GCC unroll 3
    for (int i = 0; i < at_once - 1; i++)
        if (k + i < t->n)
            add_step(t, &p, i, how, n_rows, n, s[i]);
    *soon = p.soon;
}

/* Into chains c of n_rows rows by n vectors, both constants. */
ALWAYS_INLINE void add_tile(const walk *t, lying how, int n_rows, int n, chains (*c)[VECTORS])
{
    const int at_once = chains_at_once(n_rows, n);
    const uint8_t *soon = t->soon;

    for (int first = 0; first < 4; first += at_once) {
        vec s[4][TILE][VECTORS]; /* in registers: through c, every sum would be stored at once */

#pragma GCC unroll 4
        for (int i = 0; i < at_once; i++)
#pragma GCC unroll 48
            for (int r = 0; r < n_rows * n; r++)
                s[i][r / n][r % n] = t->first ? (vec){ 0 } : c[r / n][r % n][first + i];
        add_chains(t, how, &soon, first, n_rows, n, s);
        if (t->y) {
            end_chains(t, how, first, at_once, n_rows, n, s, c);
            continue;
        }
#pragma GCC unroll 4
        for (int i = 0; i < at_once; i++)
#pragma GCC unroll 48
            for (int r = 0; r < n_rows * n; r++)
                c[r / n][r % n][first + i] = s[i][r / n][r % n];
    }
}

/* Apart, so that the compiler sees these chains and nothing else to keep in registers. */
#define DEFINE_TILE(rows)                                                                                              \
    static __attribute__((noinline)) void tile_##rows(const walk *t, chains (*c)[VECTORS])                             \
    {                                                                                                                  \
        add_tile(t, PACKED, rows, VECTORS, c);                                                                         \
    }                                                                                                                  \
    static __attribute__((noinline)) void last_tile_##rows(const walk *t, chains (*c)[VECTORS])                        \
    {                                                                                                                  \
        add_tile(t, PACKED, rows, PARTS, c);                                                                           \
    }
#define CASE_TILE(rows)                                                                                                \
    case rows: t.n_panels == PANELS ? tile_##rows(&t, c) : last_tile_##rows(&t, c); break;

TILES(DEFINE_TILE)

/* A piece into the chains of m rows, or, the last one, into their sums: in as few tiles as there can be, all of about a
 * size.  Each tile fetches its share of the weights that come next. */
static void add_piece(walk t, int m, chains (*c)[VECTORS])
{
    int tiles = (m + TILE - 1) / TILE;

    t.n_soon = (t.n_soon + tiles - 1) / tiles;
    for (int here; m > 0; m -= here, tiles--) {
        here = (m + tiles - 1) / tiles;
        switch (here) {
            TILES(CASE_TILE)
        }
        t.x += (size_t)here * t.ldx;
        if (t.y)
            t.y += (size_t)here * t.ldy;
        c += here;
        t.soon += 64 * (size_t)t.n_soon;
    }
}

ALWAYS_INLINE void clear(chains c)
{
    c[0] = c[1] = c[2] = c[3] = (vec){ 0 };
}

ALWAYS_INLINE void store_sum(float *y, const chains c)
{
    store_f32(y, (c[0] + c[1]) + (c[2] + c[3]));
}

#endif
