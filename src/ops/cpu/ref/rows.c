/* rows.c -- the row kernels in plain C, for any processor. */
#include "ops/cpu/ref/rows.h"

#include "ops/cpu/ref/init.h"

void rg_cpu_rows_ref(rg_cpu *k)
{
    rows_fill(k);
}
