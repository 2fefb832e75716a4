/* neon.c -- fills the table on top of ref, with or without dot products. */
#include "ops/cpu/neon/neon.h"

#include "ops/cpu/neon/init.h"

void rg_cpu_init_neon(rg_cpu *k)
{
    k->isa = "neon";
    rg_cpu_rows_neon(k);
    rg_cpu_loops_neon(k);
    rg_neon_init_exact(k);
    rg_neon_init_fast_plain(k);
    rg_neon_init_unfold(k);
    rg_neon_init_probe(k);
}

void rg_cpu_init_neon_dotprod(rg_cpu *k)
{
    rg_cpu_init_neon(k);
    rg_neon_init_fast_dotprod(k);
}
