/* init.h -- what this folder puts into the table of kernels, over what is there already. */
#ifndef RG_OPS_CPU_AVX2_INIT_H
#define RG_OPS_CPU_AVX2_INIT_H

#include "ops/cpu/kernels.h"

void rg_cpu_init_avx2(rg_cpu *k);
void rg_cpu_init_avx_vnni(rg_cpu *k); /* on top of that, where the processor has it */
void rg_cpu_rows_avx2(rg_cpu *k); /* ref/rows.h compiled with this folder's flags */
void rg_cpu_loops_avx2(rg_cpu *k); /* loops_tmpl.h in its vectors */

#endif
