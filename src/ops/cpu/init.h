/* init.h -- who fills the kernel table.  ref first, then each instruction set overwrites what it does better; the rows
 * functions are ref/rows.h compiled again with that instruction set's flags. */
#ifndef RG_OPS_CPU_INIT_H
#define RG_OPS_CPU_INIT_H

#include "ops/cpu/kernels.h"

void rg_cpu_init_ref(rg_cpu *k); /* every entry */
void rg_cpu_init_avx2(rg_cpu *k);
void rg_cpu_init_avx512(rg_cpu *k);
void rg_cpu_init_amx(rg_cpu *k);
void rg_cpu_init_neon(rg_cpu *k);
void rg_cpu_init_neon_dotprod(rg_cpu *k); /* where the processor has sdot and udot */

void rg_cpu_panels_ref(rg_cpu *k);
void rg_cpu_rows_ref(rg_cpu *k);
void rg_cpu_rows_avx2(rg_cpu *k);
void rg_cpu_rows_avx512(rg_cpu *k);
void rg_cpu_rows_neon(rg_cpu *k);

#endif
