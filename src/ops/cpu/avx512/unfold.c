/* unfold.c -- panels of folded layouts in this folder's vectors. */
#include "ops/cpu/avx512/unfold.h"

void rg_avx512_init_unfold(rg_cpu *k)
{
    k->unfold = unfold;
}
