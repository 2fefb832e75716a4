/* training.h -- what a training step costs on a machine: time and memory of forward, backward and AdamW, before any of
 * it is run.
 *
 * Operations and kept bytes are counted from the model's own code (ops/back/counted.h).  A step takes its products at
 * a share of the peak of their arithmetic, and moves each value that the forward makes several times besides (it is
 * made, kept, read, and has a gradient that is made, added to and read), and each weight with its gradient and moments.
 * Both factors were measured with `ridge train` (docs/PLAN.md).  Knows no files and no command line. */
#ifndef RG_PLAN_TRAINING_H
#define RG_PLAN_TRAINING_H

#include "plan/plan.h"

typedef struct rg_plan_training {
    int64_t rows, length; /* of a micro-batch; ids of a row */
    int64_t micro;        /* micro-batches of a step */
    double run_tokens;    /* of the whole run; 0: twenty for each parameter (Hoffmann et al. 2022) */
    bool bf16;            /* products of bf16 */
} rg_plan_training;

typedef struct rg_plan_trained {
    double params, tokens;       /* tokens of a step */
    double lecture_ops;          /* of a step: 6 N D */
    double forward_ops, ops;     /* of a step, counted: products, attention, recurrences; forward and backward */
    double products_s, moved_s, update_s, waits_s, step_s, tokens_s;
    double run_tokens, run_s;
    double peak_share;           /* 6 N D a second beside the peak */
    /* Bytes. */
    double weights, optimizer;   /* masters and what products read of them; gradients and moments */
    double tapes, kv, rows, logits, scratch;
    double total, of;
    bool recompute; /* tapes of all layers do not fit: each layer runs twice */
} rg_plan_trained;

/* A step of t->rows rows.  False and *err: an operation cannot be differentiated, numbers are out of range, or there is
 * no memory. */
bool rg_plan_train(const rg_model *m, const rg_plan_machine *machine, const rg_plan_training *t, rg_plan_trained *out,
                   rg_error *err) RG_MUST_CHECK;

#endif
