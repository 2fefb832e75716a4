/* lines.h -- results of a study as a picture: charts of lines over a common axis, a line for each model. */
#ifndef RG_PLAN_LINES_H
#define RG_PLAN_LINES_H

#include "base/buf.h"

enum { RG_LINES_POINTS = 16, RG_LINES_CHARTS = 4, RG_LINES_MOST = 64 };

/* Values above 0 are shown; solid: it was measured, else it is drawn hollow. */
typedef struct rg_lines_point {
    double x, y;
    bool solid;
} rg_lines_point;

typedef struct rg_curve {
    const char *name;
    int n;
    rg_lines_point point[RG_LINES_POINTS]; /* by rising x */
} rg_curve;

typedef struct rg_lines_chart {
    const char *title, *x_name, *y_name;
    const rg_curve *lines; /* [n_lines] of the page, in the same order in each chart */
} rg_lines_chart;

typedef struct rg_lines_page {
    const char *title, *note;
    int n_charts, n_lines; /* RG_LINES_CHARTS, RG_LINES_MOST at most */
    rg_lines_chart charts[RG_LINES_CHARTS];
} rg_lines_page;

void rg_lines_write(rg_buf *b, const rg_lines_page *p);

#endif
