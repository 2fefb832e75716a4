/* rows.c -- the row kernels of ref/rows.h in this folder's vectors; attention and rounding have versions by hand. */
#include "ops/cpu/avx512/avx512.h"
#include "ops/cpu/avx512/init.h"
#include "ops/cpu/ref/rows.h"

void rg_cpu_rows_avx512(rg_cpu *k)
{
    rows_fill(k);
    k->attend = rg_avx512_attend;
    k->quantize = rg_avx512_quantize;
}
