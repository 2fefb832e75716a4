/* plan.h -- what the two halves of `ridge plan` share: plan.c works out, plan_results.c prints, draws and writes. */
#ifndef RG_CLI_PLAN_H
#define RG_CLI_PLAN_H

#include "cli/speed.h"
#include "model/rates.h"
#include "plan/report.h"
#include "plan/svg.h"

enum { PLAN_MACHINES = 16, PLAN_POINTS = 20 };

typedef struct plan_job {
    cli_args args;
    const char *machine_names, *dtype, *kv_type, *method, *params, *kv_bytes, *csv, *svg;
    cli_ints batch, seq, lengths;
    int32_t chips, window, rounds;
    float keep, acceptance, draft_cost;
    bool measure, what_if, show_ops;

    char title[256], here[96];
    rg_checkpoint *ckpt;
    rg_model *model;
    rg_plan_subject subject;
    rg_plan_machine machine[PLAN_MACHINES];
    int n_machines;
    rg_seen seen; /* of this machine */
    rg_plan_row *rows;
    rg_plan_measured *measured;
    rg_plan_timed *tries; /* [row][decode, prefill][round] */
    int n_rows;
    rg_plan_ops ops;
    rg_share ops_share[2]; /* given while they were measured: decode, prefill */
    rg_levers levers;
    rg_svg_point points[PLAN_POINTS];
    int n_points;
    tool tool;
    rg_timer *timer; /* of what is measured; NULL: operations are not asked for */
    rg_pulse *pulse; /* and of the machine meanwhile */
    speed speed;
} plan_job;

/* Everything that was asked for: files, then standard output. */
bool plan_give(plan_job *j, rg_error *err);

#endif
