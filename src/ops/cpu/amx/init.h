/* init.h -- what this folder puts into the table of kernels, over what is there already. */
#ifndef RG_OPS_CPU_AMX_INIT_H
#define RG_OPS_CPU_AMX_INIT_H

#include "ops/cpu/kernels.h"

void rg_cpu_init_amx(rg_cpu *k);

#endif
