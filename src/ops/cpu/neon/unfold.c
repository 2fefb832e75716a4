/* unfold.c -- panels of folded layouts in this folder's vectors. */
#include "ops/cpu/neon/neon.h"

typedef uint32_t words __attribute__((vector_size(16)));

ALWAYS_INLINE words look(const uint32_t *table, words at)
{
    return (words){ table[at[0]], table[at[1]], table[at[2]], table[at[3]] };
}

#include "ops/cpu/unfold_tmpl.h"

void rg_neon_init_unfold(rg_cpu *k)
{
    k->unfold = unfold;
}
