/* state.h -- blocks of state in this machine's memory. */
#ifndef RG_OPS_CPU_STATE_H
#define RG_OPS_CPU_STATE_H

#include "ops/backend.h"
#include "ops/cpu/fwd.h"

/* The verbs of rg_backend that begin with state_. */
rg_state_memory *rg_cpu_state_new(const rg_backend *b, const rg_state_shape *shape, rg_error *err);
void rg_cpu_state_free(rg_state_memory *m);
void rg_cpu_state_copy(rg_state_memory *m, int group, int32_t from, int32_t to);
void rg_cpu_state_save(const rg_state_memory *m, int group, int32_t block, void *to);
void rg_cpu_state_load(rg_state_memory *m, int group, int32_t block, const void *from);
void rg_cpu_state_fill(rg_state_memory *m, int group, int32_t block, int byte);
void rg_cpu_state_move(rg_state_memory *m, int group, int32_t from_block, int from, int32_t to_block, int to);
void rg_cpu_state_close(rg_state_memory *m, const int32_t *const tables[RG_MAX_GROUPS], int32_t block);

/* [n_groups]; NULL for no state. */
const rg_group_memory *rg_cpu_state_groups(const rg_state_memory *m);

#endif
