/* chart.h -- parts of the pictures in SVG: a page, and charts with logarithmic axes on it.
 *
 * A page has no scripts and no fonts of its own.  Colours are classes, given twice: for light, and for dark by
 * prefers-color-scheme. */
#ifndef RG_PLAN_CHART_H
#define RG_PLAN_CHART_H

#include "base/buf.h"

/* A box on the page, and the values at the ends of its axes. */
typedef struct rg_chart {
    double left, top, width, height;
    double x0, x1, y0, y1; /* above 0; all 0 before the first rg_chart_widen */
    const char *x_name, *y_name;
} rg_chart;

/* Make an axis include v, if that is finite and above 0; then leave a margin, and show a decade at least. */
void rg_chart_widen(double *lo, double *hi, double v);
void rg_chart_pad(double *lo, double *hi);
/* Where a value stands on the page. */
double rg_chart_x(const rg_chart *c, double v);
double rg_chart_y(const rg_chart *c, double v);
/* The box, its grid, its numbers and names. */
void rg_chart_axes(rg_buf *b, const rg_chart *c, const char *title);

/* Text as it is, with what XML reserves escaped; and at a place, with classes of the page; anchor: start, middle or
 * end. */
void rg_chart_escaped(rg_buf *b, const char *s);
void rg_chart_text(rg_buf *b, double x, double y, const char *classes, const char *anchor, const char *s);
/* 0.001 .. as a short number with a prefix: 20m, 1, 10k, 1M; into out, which is returned. */
const char *rg_chart_number(double v, bool spaced, char out[32]);

void rg_chart_page_begin(rg_buf *b, const char *title, int width, int height);
void rg_chart_page_end(rg_buf *b);

#endif
