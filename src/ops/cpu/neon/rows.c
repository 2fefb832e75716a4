/* rows.c -- the row kernels of ref/rows.h in this folder's vectors. */
#include "ops/cpu/neon/neon.h"
#include "ops/cpu/neon/init.h"
#include "ops/cpu/ref/rows.h"
#include "ops/cpu/widen_tmpl.h"

enum { TOGETHER = 4 }; /* rows of a recurrence, by the number of registers */
#include "ops/cpu/recur_tmpl.h"

void rg_cpu_rows_neon(rg_cpu *k)
{
    rows_fill(k);
    k->widen = widen;
    k->recur = recur;
}
