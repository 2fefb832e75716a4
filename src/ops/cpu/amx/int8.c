/* int8.c -- the int8 recipe on tiles: 16 rows of integer weights by 16 rows of int8 activations at once.
 *
 * A product of one run of a panel is 256 exact integer sums, which are then scaled and added in f32 as everywhere.
 * Both sides are packed by the piece: weights of a few panels into L1, as signed bytes without their offset, laid
 * out as the right operand of a tile ([columns / 4][16][4]), and x into L2, 16 rows of a run side by side with their
 * scales.
 *
 * Four sums are on their way: while those of one run are scaled, the tile that held them takes the product of the
 * fourth run after it, which may be of the next panel or of the next rows.  Few rows, and the last ones, go the way of
 * AVX512, which this table stands on. */
#include "ops/cpu/amx/tiles.h"

#include <string.h>

#include "ops/cpu/avx512/piece.h"

enum {
    ROWS = 16,         /* of a tile */
    LEAST = 13,        /* rows that are worth a tile, */
    LEAST_BEHIND = 9,  /* and behind others, for which the weights have been unpacked */
    LANES = 4,         /* sums on their way: tiles 0 .. 3 */
    BAND = 2,          /* panels that are unpacked together */
    LENGTH = 16,       /* runs of a piece */
    RUN_MAX = 16 * 64, /* bytes of an unpacked run */
    NEAR_ROWS = 256,   /* rows whose piece of x is packed: 180 KB */
};

/* Tile registers of x, of weights, and of what makes integers floats.  Macros, since gcc pastes the name into the
 * instruction. */
#define X 4
#define W 5
#define MAGIC 6
#define MINUS 7

/* An integer n, |n| < 2^22, added to the bits of this float gives those of 12582912 + n.  So a sum begins with those
 * bits, and a product of bf16 takes the float away again.  That is exact, and spares the vector units, for which all
 * waits, the conversion. */
enum { MAGIC_BITS = 0x4b400000 };

static const uint32_t magic[ROWS] = { [0 ... ROWS - 1] = MAGIC_BITS >> 16 }, minus_one[16] = { [0 ... 15] = 0xbf80 };
static const _Alignas(64) uint32_t begin_with[ROWS][16] = { [0 ... ROWS - 1] = { [0 ... 15] = MAGIC_BITS } };

static const tile_config config = {
    .palette = 1,
    .row_bytes = { 64, 64, 64, 64, [X] = 32, [W] = 64, [MAGIC] = 4, [MINUS] = 64 },
    .rows = { ROWS, ROWS, ROWS, ROWS, [X] = ROWS, [W] = 8, [MAGIC] = ROWS, [MINUS] = 1 },
};

static void load_tiles(void)
{
    load_config(&config);
    _tile_loadd(MAGIC, magic, 4);
    _tile_loadd(MINUS, minus_one, 64);
}

/* How a run becomes part of the result, its offset being taken off before. */
ALWAYS_INLINE kind signed_kind(rg_layout layout)
{
    const kind kd = kind_of(layout);

    return halves_of(kd) == 2 && !has_second(kd) ? HALVES_8 : has_second(kd) ? kd : SCALE_8;
}

/* ---- a piece of a panel ------------------------------------------------------------------------------------------ */

/* An unpacked run: tiles of weights, then a line of scales for each half, then as many lines of minima or zero points.
 * Halves share the tile of x, so each has zeros where the other has weights: first half, zeros, second half. */
ALWAYS_INLINE int tile_lines(kind kd)
{
    return halves_of(kd) == 2 ? 12 : 8;
}

ALWAYS_INLINE size_t unpacked_bytes(kind kd)
{
    return (size_t)64 * (size_t)(tile_lines(kd) + halves_of(kd) * (has_second(kd) ? 2 : 1));
}

ALWAYS_INLINE float *scales_at(kind kd, const uint8_t *run, int h)
{
    return (float *)(uintptr_t)(run + 64 * (tile_lines(kd) + h));
}

/* What is taken from each byte: the offset; of a zero point only what makes 8 bits signed, since the rest may be
 * anything. */
ALWAYS_INLINE int taken_off(rg_layout layout)
{
    return has_zero(layout) && rg_layout_bits(layout) == 8 ? 128 : offset_of(layout);
}

ALWAYS_INLINE __m512i less(rg_layout layout, __m512i v)
{
    return taken_off(layout) ? _mm512_sub_epi8(v, _mm512_set1_epi8((char)taken_off(layout))) : v;
}

/* Unpack the codes of the run at q.  The bytes of a table are made signed before. */
ALWAYS_INLINE void unpack_codes(uint8_t *to, rg_layout layout, const book *t, const uint8_t *q)
{
    const int gap = n_halves_of(layout) == 2 ? 4 : 0;

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const __m512i w = run_group(layout, t, q, i);
        _mm512_store_si512(to + 64 * (i < 4 ? i : i + gap), has_table(layout) ? w : less(layout, w));
    }
    for (int i = 4; i < 4 + gap; i++)
        _mm512_store_si512(to + 64 * i, _mm512_setzero_si512());
}

/* n runs, and behind them what changes no sum, so that all lanes have one.  next: as much of it comes from memory to L2
 * meanwhile. */
ALWAYS_INLINE void unpack_signed(uint8_t *to, rg_layout layout, const uint8_t *panel, int first, int n,
                                 const uint8_t *next)
{
    const kind kd = signed_kind(layout);
    book t = load_book(layout, panel);

    if (has_table(layout))
        t.byte = less(layout, t.byte);
    for (int b = first; b < first + n; b++, to += unpacked_bytes(kd)) {
        const uint8_t *q = run_q(layout, panel, b);

        for (size_t i = 0; i < run_bytes(layout); i += 64)
            _mm_prefetch((const char *)next + i, _MM_HINT_T1);
        next += run_bytes(layout);
        unpack_codes(to, layout, &t, q);
        for (int h = 0; h < halves_of(kd); h++) {
            scales s = run_int8_scales(layout, panel, b, h, 0);
            _mm512_store_ps(scales_at(kd, to, h), s.d);
            if (kd == ZERO)
                s.m = (s.m - (float)taken_off(layout)) * 0.125f; /* of neg8: exact */
            if (has_second(kd))
                _mm512_store_ps(scales_at(kd, to, halves_of(kd) + h), s.m);
        }
    }
    for (int b = n; b % LANES; b++, to += unpacked_bytes(kd)) {
        memset(to, 0, unpacked_bytes(kd));
        for (int h = 0; h < halves_of(kd) * (has_second(kd) ? 2 : 1); h++)
            _mm512_store_ps(scales_at(kd, to, h), _mm512_set1_ps(-0.0f)); /* times 0: what it is added to stays -0 */
    }
}

/* ---- a piece of x ------------------------------------------------------------------------------------------------ */

/* 32 columns of as many rows as a tile has; what is added is what the kind needs behind d. */
typedef struct x_run {
    _Alignas(64) int8_t q[ROWS][32];
    float d[ROWS], added[2][ROWS];
} x_run;

/* Rows that are packed together, [.. / ROWS][LENGTH] of x_run. */
typedef x_run x_piece[NEAR_ROWS / ROWS][LENGTH];

ALWAYS_INLINE void pack_row(kind kd, x_run *to, int row, const rg_xblock *x)
{
    memcpy(to->q[row], x->q, sizeof x->q);
    to->d[row] = x->d;
    if (kd == MINIMUM)
        to->added[0][row] = x->s;
    if (kd == ZERO)
        to->added[0][row] = (float)x->neg8;
    if (kd == HALF_MINIMA)
        to->added[0][row] = x->sh[0];
    if (kd == HALF_MINIMA)
        to->added[1][row] = x->sh[1];
}

/* n_runs runs of n_rows rows, and zeros behind them. */
ALWAYS_INLINE void pack_x(kind kd, x_piece to, const rg_xblock *x, size_t ldx, int n_rows, int n_runs)
{
    for (int row = 0; row < n_rows; row += ROWS) {
        x_run *run = to[row / ROWS];
        const int n = n_rows - row < ROWS ? n_rows - row : ROWS;

        if (n < ROWS || n_runs % LANES)
            memset(run, 0, sizeof to[0]);
        for (int r = 0; r < n; r++)
            for (int b = 0; b < n_runs; b++)
                pack_row(kd, run + b, r, x + (size_t)(row + r) * ldx + b);
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* A piece of a panel by as many rows as a tile has. */
typedef struct block {
    const uint8_t *w;
    const x_run *x;
    float *y;
    size_t ldy;
    int n_runs, n_rows; /* runs that fill all lanes; rows that y has */
    bool first;         /* sums start from 0, not from y */
} block;

/* DO with the number of tile i, a constant. */
#define WITH_TILE(i, DO)                                                                                               \
    switch (i) {                                                                                                       \
    case 0: DO(0); break;                                                                                              \
    case 1: DO(1); break;                                                                                              \
    case 2: DO(2); break;                                                                                              \
    default: DO(3);                                                                                                    \
    }

ALWAYS_INLINE void store_sums(int i, float (*to)[16])
{
#define STORE(t) _tile_stored(t, to, 64)
    WITH_TILE(i, STORE)
#undef STORE
}

/* Half h of a run at w by x, into tile i. */
ALWAYS_INLINE void multiply(int i, int h, const uint8_t *w, const x_run *x)
{
    if (h == 0) {
        _tile_loadd(X, x->q, sizeof x->q[0]);
        _tile_loadd(W, w, 64);
    } else {
        _tile_loadd(W, w + 4 * 64, 64);
    }
#define BEGIN_WITH(t) _tile_loadd(t, begin_with, 64); _tile_dpbssd(t, X, W); _tile_dpbf16ps(t, MAGIC, MINUS)
    WITH_TILE(i, BEGIN_WITH)
#undef BEGIN_WITH
}

/* The sums of half h of a run at w, scaled, into the results. */
ALWAYS_INLINE void add_sums(kind kd, int h, const float (*sum)[16], const uint8_t *w, const x_run *x, __m512 *acc)
{
    const __m512 d = _mm512_load_ps(scales_at(kd, w, h));
    const __m512 m = has_second(kd) ? _mm512_load_ps(scales_at(kd, w, halves_of(kd) + h)) : d;

#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        __m512 s = _mm512_load_ps(sum[r]);
        if (kd == ZERO)
            s = _mm512_fmadd_ps(m, _mm512_set1_ps(x->added[0][r]), s);
        acc[r] = _mm512_fmadd_ps(s, _mm512_mul_ps(d, _mm512_set1_ps(x->d[r])), acc[r]);
        if (kd == MINIMUM || kd == HALF_MINIMA)
            acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(x->added[h][r]), acc[r]);
    }
}

/* Into the tiles: the first runs of b. */
ALWAYS_INLINE void begin(kind kd, const block *b)
{
    const int halves = halves_of(kd);

#pragma GCC unroll 4
    for (int i = 0; i < LANES; i++)
        multiply(i, i % halves, b->w + (size_t)(i / halves) * unpacked_bytes(kd), b->x + i / halves);
}

/* b, whose first runs are in the tiles, and then are those of next. */
ALWAYS_INLINE void add_block(kind kd, const block *b, const block *next)
{
    _Alignas(64) float sum[2][ROWS][16]; /* of this run and of the next */
    const int halves = halves_of(kd), group = LANES / halves;
    const size_t group_bytes = (size_t)group * unpacked_bytes(kd);
    const uint8_t *w = b->w, *end = w + (size_t)b->n_runs * unpacked_bytes(kd);
    __m512 acc[ROWS];

#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        acc[r] = !b->first && r < b->n_rows ? _mm512_loadu_ps(b->y + (size_t)r * b->ldy) : _mm512_setzero_ps();
    for (const x_run *x = b->x; w < end; w += group_bytes, x += group) {
        const bool last = w + group_bytes == end;
        const uint8_t *next_w = last ? next->w : w + group_bytes;
        const x_run *next_x = last ? next->x : x + group;

        store_sums(0, sum[0]);
#pragma GCC unroll 4
        for (int i = 0; i < LANES; i++) {
            const int run = i / halves, h = i % halves;
            if (i + 1 < LANES)
                store_sums(i + 1, sum[(i + 1) % 2]);
            multiply(i, h, next_w + (size_t)run * unpacked_bytes(kd), next_x + run);
            add_sums(kd, h, (const float (*)[16])sum[i % 2], w + (size_t)run * unpacked_bytes(kd), x + run, acc);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        if (r < b->n_rows)
            _mm512_storeu_ps(b->y + (size_t)r * b->ldy, acc[r]);
}

/* Pieces of some panels by all rows. */
typedef struct band {
    size_t w_bytes; /* from one unpacked piece to the next */
    int n_panels;
    block first; /* the first panel by the first rows; n_rows: all rows */
} band;

ALWAYS_INLINE block block_at(const band *a, int i)
{
    block b = a->first;
    const int row = i / a->n_panels * ROWS, panel = i % a->n_panels;

    b.w += (size_t)panel * a->w_bytes;
    b.x += (size_t)(row / ROWS) * LENGTH;
    b.y += (size_t)row * b.ldy + 16 * (size_t)panel;
    b.n_rows = b.n_rows - row < ROWS ? b.n_rows - row : ROWS;
    return b;
}

ALWAYS_INLINE void add_band(kind kd, const band *a)
{
    const int n = (a->first.n_rows + ROWS - 1) / ROWS * a->n_panels;
    block now = block_at(a, 0);

    begin(kd, &now);
    for (int i = 0; i < n; i++) {
        const block next = block_at(a, i + 1 < n ? i + 1 : i); /* the last block: itself, in vain */
        add_block(kd, &now, &next);
        now = next;
    }
}

#define BANDS(name, kd)                                                                                                \
    static __attribute__((noinline)) void name(const band *a)                                                          \
    {                                                                                                                  \
        add_band(kd, a);                                                                                               \
    }

BANDS(band_scale, SCALE_8)
BANDS(band_halves, HALVES_8)
BANDS(band_zero, ZERO)
BANDS(band_minimum, MINIMUM)
BANDS(band_half_minima, HALF_MINIMA)

static void any_band(kind kd, const band *a)
{
    switch (kd) {
    case HALVES_8: band_halves(a); break;
    case ZERO: band_zero(a); break;
    case MINIMUM: band_minimum(a); break;
    case HALF_MINIMA: band_half_minima(a); break;
    default: band_scale(a);
    }
}

/* The rows of x by n_runs runs from run b on of the panels from the i-th on. */
ALWAYS_INLINE void add_pieces(rg_layout layout, const rg_product *p, int i, int b, int n_runs, const x_run *x)
{
    _Alignas(64) uint8_t w[BAND][LENGTH * RUN_MAX];
    const kind kd = signed_kind(layout);
    const uint8_t *panel = p->panel + (size_t)i * p->panel_bytes;
    /* Fetched next: of the next panels, or after the last ones of the next piece, which may be another product's. */
    const uint8_t *next = i + BAND < p->n_panels ? run_share(layout, panel + BAND * p->panel_bytes, b)
                                                 : run_share(layout, p->panel, b + LENGTH);
    const band a = { .w_bytes = sizeof w[0],
                     .n_panels = p->n_panels - i < BAND ? p->n_panels - i : BAND,
                     .first = { .w = w[0], .x = x, .y = p->y + 16 * (size_t)i, .ldy = p->ldy,
                                /* fits: n_runs is at most LENGTH */
                                .n_runs = (n_runs + LANES - 1) / LANES * LANES, .n_rows = p->m, .first = b == 0 } };

    for (int k = 0; k < a.n_panels; k++)
        unpack_signed(w[k], layout, panel + (size_t)k * p->panel_bytes, b, n_runs, next + (size_t)k * p->panel_bytes);
    any_band(kd, &a);
}

/* At most NEAR_ROWS rows. */
ALWAYS_INLINE void near_product(rg_layout layout, const rg_product *p)
{
    const int n = p->cols / 32;
    x_piece x;

    for (int b = 0; b < n; b += LENGTH) {
        const int n_runs = n - b < LENGTH ? n - b : LENGTH;

        pack_x(signed_kind(layout), x, p->q + b, p->ldx, p->m, n_runs);
        for (int i = 0; i < p->n_panels; i += BAND)
            add_pieces(layout, p, i, b, n_runs, x[0]);
    }
}

ALWAYS_INLINE void in_tiles(rg_layout layout, const rg_product *p)
{
    load_tiles();
    for (int row = 0; row < p->m; row += NEAR_ROWS) {
        rg_product q = *p;

        q.m = p->m - row < NEAR_ROWS ? p->m - row : NEAR_ROWS;
        q.q += (size_t)row * p->ldx;
        q.y += (size_t)row * p->ldy;
        near_product(layout, &q);
    }
    _tile_release();
}

/* What rows that are not worth a tile use; set once, when the table is built. */
static rg_cpu below;

ALWAYS_INLINE void fast_product(rg_layout layout, const rg_product *p)
{
    const int least = p->m < ROWS ? LEAST : LEAST_BEHIND, apart = p->m % ROWS < least ? p->m % ROWS : 0;
    rg_product tiled = *p, rest = *p;

    tiled.m = p->m - apart;
    if (tiled.m)
        in_tiles(layout, &tiled);
    rest.m = apart;
    rest.q += (size_t)tiled.m * p->ldx;
    rest.y += (size_t)tiled.m * p->ldy;
    if (apart)
        below.product[RG_INT8][layout](&rest);
}

#define FAST_PRODUCT(name, layout)                                                                                     \
    static void fast_##name(const rg_product *p)                                                                       \
    {                                                                                                                  \
        fast_product(layout, p);                                                                                       \
    }

INTEGER_LAYOUTS(FAST_PRODUCT)

void rg_amx_init_int8(rg_cpu *k)
{
    below = *k;
    INTEGER_LAYOUTS(FILL_FAST)
}
