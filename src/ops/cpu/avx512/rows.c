/* rows.c -- the row kernels of ref/rows.h in this folder's vectors; attention and rounding have versions by hand. */
#include "ops/cpu/avx512/avx512.h"
#include "ops/cpu/avx512/init.h"
#include "ops/cpu/ref/rows.h"
#include "ops/cpu/widen_tmpl.h"

enum { TOGETHER = 4 }; /* rows of a recurrence, by the number of registers */
#include "ops/cpu/recur_tmpl.h"

void rg_cpu_rows_avx512(rg_cpu *k)
{
    rows_fill(k);
    k->attend = rg_avx512_attend;
    k->widen = widen;
    k->recur = recur;
    k->widen_from = 9; /* attend takes four at a time, so up to eight meet two loads of each vector */
    k->quantize = rg_avx512_quantize;
    k->quantize_row = rg_avx512_quantize_row;
}
