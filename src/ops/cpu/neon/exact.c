/* exact.c -- the exact recipe: f32 weights (decoded where they are not) by f32 activations.
 *
 * Panels are decoded a piece at a time (f32 needs no decoding), for one row already; see tile_tmpl.h. */
#include "ops/cpu/neon/neon.h"

enum {
    PANELS = 1,
    TILE = 6, /* rows by four vectors: 24 chains, 4 vectors of weights and x in 32 registers */
};
#define TILES(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6)

#include "ops/cpu/exact_tmpl.h"

ALWAYS_INLINE bool few_rows(rg_layout layout, const rg_product *p)
{
    (void)layout, (void)p;
    return false;
}

void rg_neon_init_exact(rg_cpu *k)
{
    fill_exact(k);
}
