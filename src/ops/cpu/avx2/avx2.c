/* avx2.c -- fills the table on top of ref. */
#include "ops/cpu/avx2/avx2.h"
#include "ops/cpu/avx2/init.h"

void rg_cpu_init_avx2(rg_cpu *k)
{
    k->isa = "avx2";
    rg_cpu_rows_avx2(k);
    rg_cpu_loops_avx2(k);
    rg_avx2_init_exact(k);
    rg_avx2_init_fast(k);
    rg_avx2_init_unfold(k);
    rg_avx2_init_sketch(k);
    rg_avx2_init_probe(k);
}
