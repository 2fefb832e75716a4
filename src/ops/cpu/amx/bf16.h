/* bf16.h -- products of bf16 tiles: up to 32 rows of x by one or two neighbouring panels, four sums in flight. */
#ifndef RG_OPS_CPU_AMX_BF16_H
#define RG_OPS_CPU_AMX_BF16_H

#include "ops/cpu/amx/tiles.h"

#include "ops/cpu/avx512/avx512.h"

void rg_amx_init_f8(rg_cpu *k);

/* Tile registers: sums of the first and second 16 rows with either panel, x, weights.  Macros, since gcc pastes the
 * name into the instruction. */
#define SUM00 0
#define SUM01 1
#define SUM10 2
#define SUM11 3
#define X0    4
#define X1    5
#define W0    6
#define W1    7

/* For n rows, 1 .. 32; of 16 or fewer, the second half is not used, and stays as for 1. */
static inline void lay_out(int n)
{
    const uint8_t first = (uint8_t)(n < 16 ? n : 16), second = (uint8_t)(n > 16 ? n - 16 : 1);
    const tile_config config = {
        .palette = 1,
        .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
        .rows = { [SUM00] = first,
                  [SUM01] = first,
                  [SUM10] = second,
                  [SUM11] = second,
                  [X0] = first,
                  [X1] = second,
                  [W0] = 16,
                  [W1] = 16 },
    };

    load_config(&config);
}

/* Which tiles there are: more than 16 rows, two panels.  A constant in each function below. */
typedef struct extent {
    bool more, two;
} extent;

ALWAYS_INLINE void clear_sums(void)
{
    _tile_zero(SUM00);
    _tile_zero(SUM01);
    _tile_zero(SUM10);
    _tile_zero(SUM11);
}

/* Load sums of rows that are `apart` bytes apart; the second panel's lie behind the first's. */
ALWAYS_INLINE void load_sums(extent e, const float *y, size_t apart)
{
    const float *y1 = y + 16 * apart / sizeof *y;

    _tile_loadd(SUM00, y, apart);
    if (e.two)
        _tile_loadd(SUM01, y + 16, apart);
    if (e.more)
        _tile_loadd(SUM10, y1, apart);
    if (e.more && e.two)
        _tile_loadd(SUM11, y1 + 16, apart);
}

ALWAYS_INLINE void store_sums(extent e, float *y, size_t apart)
{
    float *y1 = y + 16 * apart / sizeof *y;

    _tile_stored(SUM00, y, apart);
    if (e.two)
        _tile_stored(SUM01, y + 16, apart);
    if (e.more)
        _tile_stored(SUM10, y1, apart);
    if (e.more && e.two)
        _tile_stored(SUM11, y1 + 16, apart);
}

/* What a step fetches to L2 while it computes: lines [from, to) of the 1 KiB that the next step reads, in the piece of
 * each panel at w. */
typedef struct coming {
    const uint8_t *w;
    size_t from, to;
} coming;

ALWAYS_INLINE void fetch(const coming *c, size_t offset)
{
    for (size_t i = c->from; i < c->to; i++)
        _mm_prefetch((const char *)c->w + offset + 64 * i, _MM_HINT_T1);
}

/* n steps of 32 columns: of rows of x that are `apart` bytes apart, and of packed panels that are `gap` bytes apart. */
ALWAYS_INLINE void add_steps(extent e, int n, const uint16_t *x, size_t apart, const uint8_t *w, size_t gap,
                             const coming *next)
{
    const uint16_t *x1 = x + 16 * apart / sizeof *x;

    for (size_t s = 0; s < (size_t)n; s++) {
        _tile_loadd(X0, x + 32 * s, apart);
        _tile_stream_loadd(W0, w + 1024 * s, 64);
        _tile_dpbf16ps(SUM00, X0, W0);
        fetch(next, 1024 * s);
        if (e.two) {
            _tile_stream_loadd(W1, w + gap + 1024 * s, 64);
            _tile_dpbf16ps(SUM01, X0, W1);
            fetch(next, gap + 1024 * s);
        }
        if (e.more) {
            _tile_loadd(X1, x1 + 32 * s, apart);
            _tile_dpbf16ps(SUM10, X1, W0);
        }
        if (e.more && e.two)
            _tile_dpbf16ps(SUM11, X1, W1);
    }
}

/* The next up to 32 rows of p, whose tiles are laid out; *laid_out: for how many they were.  False: there are none. */
static inline bool next_rows(rg_product *rows, const rg_product *p, int *row, int *laid_out)
{
    if (*row >= p->m)
        return false;
    *rows = *p;
    rows->m = p->m - *row < 32 ? p->m - *row : 32;
    rows->h += (size_t)*row * p->ldx;
    rows->y += (size_t)*row * p->ldy;
    if (rows->m != *laid_out)
        lay_out(rows->m);
    *laid_out = rows->m;
    *row += 32;
    return true;
}

#endif
