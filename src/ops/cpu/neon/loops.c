/* loops.c -- the loops of loops_tmpl.h in this folder's vectors. */
#include "ops/cpu/neon/neon.h"
#include "ops/cpu/neon/init.h"
#include "ops/cpu/loops_tmpl.h"

void rg_cpu_loops_neon(rg_cpu *k)
{
    k->loops = &loops;
}
