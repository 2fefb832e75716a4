/* loops.c -- the loops of loops_tmpl.h in this folder's vectors. */
#include "ops/cpu/avx512/avx512.h"
#include "ops/cpu/avx512/init.h"
#include "ops/cpu/loops_tmpl.h"

void rg_cpu_loops_avx512(rg_cpu *k)
{
    k->loops = &loops;
}
