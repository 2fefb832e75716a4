/* init.h -- what this folder puts into the table of kernels, over what is there already. */
#ifndef RG_OPS_CPU_AVX512_INIT_H
#define RG_OPS_CPU_AVX512_INIT_H

#include "ops/cpu/kernels.h"

void rg_cpu_init_avx512(rg_cpu *k);
void rg_cpu_init_avx512_bf16(rg_cpu *k); /* on top of that, where the processor has it */
void rg_cpu_add_avx512_vbmi(rg_cpu *k);  /* likewise, into any of these tables */
void rg_cpu_add_avx512_pairs_f8(rg_cpu *k); /* likewise, where it has both */
void rg_cpu_rows_avx512(rg_cpu *k); /* ref/rows.h compiled with this folder's flags */
void rg_cpu_loops_avx512(rg_cpu *k); /* loops_tmpl.h in its vectors */

#endif
