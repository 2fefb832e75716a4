/* report.h -- a plan as text for people and as CSV.  Appends to a buffer; a buffer that failed says so itself. */
#ifndef RG_PLAN_REPORT_H
#define RG_PLAN_REPORT_H

#include "base/buf.h"
#include "plan/levers.h"

/* What was measured at a row's point, what is predicted for the share of the machine's roofs that was given meanwhile,
 * and that share; 0: was not. */
typedef struct rg_plan_timed {
    double predicted_s, measured_s;
    rg_share share;
} rg_plan_timed;

typedef struct rg_plan_measured {
    rg_plan_timed decode, prefill; /* of a step; of a prompt */
} rg_plan_measured;

typedef struct rg_plan_report {
    const char *title;           /* the model */
    const rg_plan_subject *subject;
    const rg_plan_row *rows;
    int n_rows;
    const rg_plan_measured *measured; /* NULL, or n_rows */
    const rg_plan_ops *ops;      /* of the first row; NULL: left out */
    const rg_levers *levers;     /* likewise */
} rg_plan_report;

void rg_report_text(rg_buf *b, const rg_plan_report *r);
void rg_report_csv(rg_buf *b, const rg_plan_report *r);

#endif
