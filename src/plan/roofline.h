/* roofline.h -- the roofline of a machine as a picture: what memory and arithmetic allow, and points below it. */
#ifndef RG_PLAN_ROOFLINE_H
#define RG_PLAN_ROOFLINE_H

#include "measure/roofs.h"
#include "plan/chart.h"

/* The chart's axes widened so that the roofs are on them, its frame, and the roofs with their names.  exact: the name
 * of the arithmetic whose peak is roofs->f32_ops_s. */
void rg_roofline_frame(rg_buf *b, rg_chart *c, const rg_roofs *roofs, const char *exact, const char *title);

/* A name of a point.  Labels stand below their points, and are moved down where they would cover one another. */
typedef struct rg_roofline_label {
    double x, y; /* of the point, on the page */
    double text_y;
    char text[96];
    bool prefill; /* else decode */
} rg_roofline_label;

/* Draw labels; their order changes. */
void rg_roofline_labels(rg_buf *b, const rg_chart *c, rg_roofline_label *labels, int n);
/* A point: a square for prefill, a circle for decode; detail is what a reader sees who points at it. */
void rg_roofline_dot(rg_buf *b, double x, double y, bool prefill, const char *detail);
/* What squares and circles mean, right-aligned on a page of this width. */
void rg_roofline_legend(rg_buf *b, int width, int y);

enum { RG_ROOFLINE_POINTS = 64 };

/* A step that was measured. */
typedef struct rg_roofline_point {
    double ops_per_byte, ops_s; /* above 0 */
    bool prefill;
    char name[96];
} rg_roofline_point;

typedef struct rg_roofline {
    const char *title, *subtitle;
    const rg_roofs *roofs;
    int n; /* RG_ROOFLINE_POINTS at most */
    rg_roofline_point points[RG_ROOFLINE_POINTS];
} rg_roofline;

/* The whole picture: one SVG without scripts or fonts of its own, readable on light and dark. */
void rg_roofline_write(rg_buf *b, const rg_roofline *r);

#endif
