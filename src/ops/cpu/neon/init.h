/* init.h -- what this folder puts into the table of kernels, over what is there already. */
#ifndef RG_OPS_CPU_NEON_INIT_H
#define RG_OPS_CPU_NEON_INIT_H

#include "ops/cpu/kernels.h"

void rg_cpu_init_neon(rg_cpu *k);
void rg_cpu_init_neon_dotprod(rg_cpu *k); /* where the processor has sdot and udot */
void rg_cpu_rows_neon(rg_cpu *k); /* ref/rows.h compiled for this processor */
void rg_cpu_loops_neon(rg_cpu *k); /* loops_tmpl.h in its vectors */

#endif
