/* rows.c -- the row kernels of ref/rows.h in this folder's vectors; attention has a version by hand. */
#include "ops/cpu/avx2/avx2.h"
#include "ops/cpu/avx2/init.h"
#include "ops/cpu/ref/rows.h"
#include "ops/cpu/widen_tmpl.h"

enum { TOGETHER = 2 }; /* rows of a recurrence, by the number of registers */
#include "ops/cpu/recur_tmpl.h"

void rg_cpu_rows_avx2(rg_cpu *k)
{
    rows_fill(k);
    k->attend = rg_avx2_attend;
    k->widen = widen;
    k->recur = recur;
}
