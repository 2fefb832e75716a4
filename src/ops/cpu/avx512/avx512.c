/* avx512.c -- fills the table on top of AVX2. */
#include "ops/cpu/avx512/avx512.h"
#include "ops/cpu/avx512/init.h"

void rg_cpu_init_avx512(rg_cpu *k)
{
    k->isa = "avx512";
    rg_cpu_rows_avx512(k);
    rg_cpu_loops_avx512(k);
    rg_avx512_init_exact(k);
    rg_avx512_init_fast(k);
    rg_avx512_init_unfold(k);
    rg_avx512_init_sketch(k);
    rg_avx512_init_probe(k);
}
