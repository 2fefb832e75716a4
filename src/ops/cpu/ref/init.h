/* init.h -- what this folder puts into the table of kernels, over what is there already. */
#ifndef RG_OPS_CPU_REF_INIT_H
#define RG_OPS_CPU_REF_INIT_H

#include "ops/cpu/kernels.h"

void rg_cpu_init_ref(rg_cpu *k); /* every entry */
void rg_cpu_panels_ref(rg_cpu *k);
void rg_cpu_rows_ref(rg_cpu *k);
void rg_cpu_loops_ref(rg_cpu *k);

#endif
