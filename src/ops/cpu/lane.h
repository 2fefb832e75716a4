/* lane.h -- steps on this processor: the verbs of rg_backend that open a lane and compute with it. */
#ifndef RG_OPS_CPU_LANE_H
#define RG_OPS_CPU_LANE_H

#include "ops/backend.h"

bool rg_cpu_measure(const rg_backend *b, const rg_step *step, size_t *bytes, rg_error *err);
rg_lane *rg_cpu_lane_open(const rg_backend *b, const rg_lane_options *o, rg_error *err);
void rg_cpu_lane_close(rg_lane *lane);
void rg_cpu_lane_submit(rg_lane *lane, const rg_step *step);
void rg_cpu_lane_wait(rg_lane *lane);
void *rg_cpu_lane_activations(rg_lane *lane, size_t *bytes);

#endif
