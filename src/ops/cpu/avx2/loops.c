/* loops.c -- the loops of loops_tmpl.h in this folder's vectors. */
#include "ops/cpu/avx2/avx2.h"
#include "ops/cpu/avx2/init.h"
#include "ops/cpu/loops_tmpl.h"

void rg_cpu_loops_avx2(rg_cpu *k)
{
    k->loops = &loops;
}
