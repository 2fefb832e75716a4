/* unfold.c -- panels of folded layouts in this folder's vectors. */
#include "ops/cpu/avx512/avx512.h"

typedef uint32_t words __attribute__((vector_size(64)));

ALWAYS_INLINE words look(const uint32_t *table, words at)
{
    return (words)_mm512_i32gather_epi32((__m512i)at, table, 4);
}

#include "ops/cpu/unfold_tmpl.h"

void rg_avx512_init_unfold(rg_cpu *k)
{
    k->unfold = unfold;
}
