/* report.h -- a plan as text for people and as CSV.  Appends to a buffer; a buffer that failed says so itself. */
#ifndef RG_PLAN_REPORT_H
#define RG_PLAN_REPORT_H

#include "base/buf.h"
#include "plan/fill.h"
#include "plan/prefill.h"
#include "plan/what_if.h"

/* Seconds that were measured at a row's point; 0: were not. */
typedef struct rg_plan_measured {
    double decode_s, prefill_s; /* of a step; of a prompt */
} rg_plan_measured;

typedef struct rg_plan_report {
    const char *title;           /* the model */
    const rg_plan_subject *subject;
    const rg_plan_row *rows;
    int n_rows;
    const rg_plan_measured *measured; /* NULL, or n_rows */
    const rg_plan_ops *ops;      /* of the first row; NULL: left out */
    const rg_what_if *what_if;   /* likewise */
    const rg_plan_fill *fills;   /* [n_fills] of a diffusion model, at the first row */
    int n_fills;
    const rg_plan_prefill *prefills; /* [n_prefills] at the first row's machine and positions */
    int n_prefills;
} rg_plan_report;

void rg_report_text(rg_buf *b, const rg_plan_report *r);
void rg_report_csv(rg_buf *b, const rg_plan_report *r);

#endif
