/* machines.h -- models and a machine that tests of predictions make up: what steps take follows from these numbers. */
#ifndef RG_TEST_MACHINES_H
#define RG_TEST_MACHINES_H

#include "engine/step_time.h"

/* 1 GB of weights, 2 GFLOP a row; reading them takes 0.1 s, and arithmetic as long from 50 rows on. */
static const rg_step_facts dense = {
    .weight_bytes = 1e9, .head_bytes = 1e7, .head_ops = 2e7, .row_bytes = 1e4, .row_ops = 2e9,
    .keys = { { 0, 1e5, 1e5 } }, .n_keys = 1, .fixed_s = 1e-3,
};
static const rg_step_facts experts = {
    .weight_bytes = 2e8, .head_bytes = 1e7, .head_ops = 2e7, .row_bytes = 1e4, .row_ops = 5e8, .expert_bytes = 4e9,
    .n_experts = 32, .n_experts_used = 4, .keys = { { 128, 1e4, 1e4 }, { 0, 1e4, 1e4 } }, .n_keys = 2, .fixed_s = 1e-3,
};
static const rg_step_roofs roofs = { .bytes_s = 1e10, .product_ops_s = 1e12, .key_ops_s = 2e11 };

#endif
