/* unfold.c -- panels of folded layouts in this folder's vectors. */
#include "ops/cpu/avx2/avx2.h"

typedef uint32_t words __attribute__((vector_size(32)));

ALWAYS_INLINE words look(const uint32_t *table, words at)
{
    return (words)_mm256_i32gather_epi32((const int *)(const void *)table, (__m256i)at, 4);
}

#include "ops/cpu/unfold_tmpl.h"

void rg_avx2_init_unfold(rg_cpu *k)
{
    k->unfold = unfold;
}
