/* exact.c -- the exact recipe: f32 weights (decoded where they are not) by f32 activations.
 *
 * A few rows read a float layout where it lies, four chains of both halves of a panel at once.  More rows, and integer
 * layouts always, take a piece of a panel at a time, decoded into L1 (f32 needs no decoding); see tile_tmpl.h. */
#include "ops/cpu/avx2/avx2.h"

enum {
    PANELS = 1,
    TILE = 6, /* rows by two vectors: 12 chains, 2 vectors of weights and x in 16 registers */
    FEW = 2,  /* rows, one after the other */
};
#define TILES(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6)

#include "ops/cpu/exact_tmpl.h"

/* All columns of a panel by one row. */
ALWAYS_INLINE void one_row(rg_layout layout, const rg_product *p)
{
    const uint8_t *w = p->panel;
    chains s[2] = { 0 };
    int k = 0;

    for (; k + 4 <= p->cols; k += 4) {
        for (size_t i = 0; i < 4 * column_bytes(layout); i += 64)
            __builtin_prefetch(w + (size_t)k * column_bytes(layout) + AHEAD + i);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
            for (int part = 0; part < 2; part++)
                s[part][i] = fused(column(layout, w, p->column_bytes, (size_t)(k + i), part), splat(p->x[k + i]),
                                   s[part][i]);
    }
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
        for (int part = 0; part < 2 && k + i < p->cols; part++)
            s[part][i] = fused(any_column(layout, w, p->column_bytes, p->cols, k + i, part), splat(p->x[k + i]),
                               s[part][i]);
    for (int part = 0; part < 2; part++)
        store_sum(p->y + 8 * part, s[part]);
}

ALWAYS_INLINE bool few_rows(rg_layout layout, const rg_product *p)
{
    for (int r = 0; r < p->m && p->m <= FEW; r++) {
        const rg_product q = part_of(p, 0, r, 1);
        one_row(layout, &q);
    }
    return p->m <= FEW;
}

void rg_avx2_init_exact(rg_cpu *k)
{
    fill_exact(k);
}
