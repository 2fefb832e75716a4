/* plan.h -- what the parts of `ridge plan` share: plan.c predicts, plan_measure.c runs the model, plan_results.c
 * prints, draws and writes. */
#ifndef RG_CLI_PLAN_H
#define RG_CLI_PLAN_H

#include "cli/profile.h"
#include "cli/speed.h"
#include "plan/goal.h"
#include "plan/report.h"
#include "plan/svg.h"
#include "plan/what_if.h"

enum { PLAN_MACHINES = 16, PLAN_POINTS = 20, PLAN_ROUNDS = 100 };

/* What --ranks adds; n 0: nothing.  Exchanges are those of a step of as many rows, with logits of all of them. */
typedef struct rg_plan_ranks {
    int n, rows, n_layers_kv, n_layers_kv_split;
    uint64_t split_bytes, whole_bytes, n_exchanges, exchange_bytes;
} rg_plan_ranks;

typedef struct plan_job {
    cli_args args;
    const char *machine_names, *dtype, *kv_type, *method, *params, *kv_bytes, *csv, *svg;
    cli_ints batch, seq, lengths;
    int32_t chips, window, rounds, answer, block;
    float keep, acceptance, draft_cost, skipped, per_evaluation;
    const char *cache; /* of diffusion models */
    const char *wanted, *prices; /* --for */
    int32_t top;
    bool has_top;
    rg_plan_goal goal;
    bool measure, remeasure, what_if, show_ops, train;
    const char *precision, *run_tokens; /* --train */

    char title[256], here[CLI_HERE_ROOM];
    rg_checkpoint *ckpt;
    rg_model *model;
    rg_type weight_type; /* of a config without weights, which is measured with random ones */
    rg_plan_subject subject;
    rg_plan_machine machine[PLAN_MACHINES];
    int n_machines;
    rg_profile profile; /* of this machine */
    rg_plan_row *rows;
    rg_plan_measured *measured;
    int n_rows;
    rg_plan_ops ops;
    rg_what_if changes;
    rg_plan_fill fills[RG_PLAN_FILLS]; /* of a diffusion model */
    int n_fills;
    rg_plan_ranks ranks;
    cli_ints prompts; /* --prefill-batch */
    int32_t chunk;
    rg_plan_prefill prefills[PLAN_POINTS];
    int n_prefills;
    rg_svg_point points[PLAN_POINTS];
    int n_points;
    tool tool;
    rg_timer *timer; /* of what is measured; NULL: operations are not asked for */
    speed speed;
} plan_job;

/* Whether --measure can be done, or why not. */
bool plan_check_measure(const plan_job *j, rg_error *err);
/* Run the model at the points of the rows of this machine, in rounds; fills j->measured and the operations' times. */
bool plan_measure(plan_job *j, rg_error *err);

/* Whether --for goes with the other options; find what does it, and print that. */
bool plan_check_goal(const plan_job *j, rg_error *err);
bool plan_goal(plan_job *j, rg_error *err);

/* Whether --train goes with the other options; what training steps take, printed. */
bool plan_check_train(const plan_job *j, rg_error *err);
bool plan_train(plan_job *j, rg_error *err);

/* What ranks share and exchange, with --ranks: find it, and print it. */
bool plan_find_ranks(plan_job *j, rg_error *err);
void plan_ranks_text(rg_buf *b, const plan_job *j);
void plan_ranks_json(cli_json *out, const plan_job *j);

/* Write everything that was asked for: files, then standard output. */
bool plan_give(plan_job *j, rg_error *err);

#endif
