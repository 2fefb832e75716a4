/* svg.h -- a plan as a picture: the roofline with every operation on it, and latency and throughput against batch with
 * the Pareto frontier.  One SVG without scripts or fonts of its own, readable on light and dark. */
#ifndef RG_PLAN_SVG_H
#define RG_PLAN_SVG_H

#include "base/buf.h"
#include "plan/plan.h"

/* A point of the second picture. */
typedef struct rg_svg_point {
    int64_t batch;
    double latency_s, throughput;
    double measured_latency_s; /* 0: was not */
    bool fits;
} rg_svg_point;

typedef struct rg_svg_plan {
    const char *title;
    const rg_plan_machine *machine;
    const rg_plan_row *row;     /* the point whose operations are shown */
    const rg_plan_ops *ops;
    const rg_svg_point *points; /* by rising batch */
    int n_points;
} rg_svg_plan;

void rg_svg_write(rg_buf *b, const rg_svg_plan *p);

#endif
