/* cost.h -- counts times a machine give seconds: one function for the scheduler and for the plan. */
#ifndef RG_MODEL_COST_H
#define RG_MODEL_COST_H

#include "model/model.h"
#include "ops/count/count.h"

/* What a machine can do, as measured by rg_machine_measure or known from its data sheet. */
typedef struct rg_machine {
    double read_bytes_s;              /* from memory */
    double f32_ops_s, bf16_ops_s, int8_ops_s; /* 0: no such arithmetic of its own */
    double op_s;                      /* fixed cost of one op of a step: its barriers */
    double step_s;                    /* fixed cost of a step */
} rg_machine;

/* Seconds for what was counted: per op, the longer of its bytes and its operations, plus the fixed costs. */
double rg_cost_seconds(const rg_machine *machine, const rg_counter *counter, bool exact);
/* The same without fixed costs: the roofline's limit. */
double rg_cost_limit(const rg_machine *machine, const rg_counter *counter, bool exact);

/* Count one step of n_seqs sequences of n_rows rows each, after `start` positions, every last row's logits wanted. */
bool rg_cost_count(const rg_model *m, int n_seqs, int n_rows, int64_t start, rg_counter *counter, rg_error *err);

/* Measure this machine with the kernels of cpu on the threads of pool: about a second.  working_set: bytes over which
 * the bandwidth is read (0: large). */
void rg_machine_measure(rg_machine *out, const rg_cpu *cpu, rg_pool *pool, int n_threads, size_t working_set);

/* The read bandwidth alone, bytes per second; 0: no memory for the buffer. */
double rg_machine_bandwidth(const rg_cpu *cpu, rg_pool *pool, int n_threads, size_t working_set);

#endif
