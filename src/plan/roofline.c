/* roofline.c -- see roofline.h. */
#include "plan/roofline.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 900, HEIGHT = 500, LINE = 15, LABEL_WIDTH = 170 };

/* ---- the roofs --------------------------------------------------------------------------------------------------- */

static void put_roof(rg_buf *b, const rg_chart *c, double bandwidth, double peak, const char *name)
{
    char line[64], number[32];
    double ridge = peak / bandwidth;

    rg_buf_printf(b, "<path class=\"roof\" d=\"M%.1f %.1fL%.1f %.1fH%.1f\"/>\n", rg_chart_x(c, c->x0),
                  rg_chart_y(c, bandwidth * c->x0), rg_chart_x(c, ridge), rg_chart_y(c, peak), c->left + c->width);
    snprintf(line, sizeof line, "%s, %sop/s", name, rg_chart_number(peak, true, number));
    rg_chart_text(b, rg_chart_x(c, ridge) + 36, rg_chart_y(c, peak) - 7, "ink", "start",
                  line); /* beside a higher roof's slope */
}

static void put_bandwidth(rg_buf *b, const rg_chart *c, double bandwidth)
{
    double slope =
        atan2(rg_chart_y(c, c->y0) - rg_chart_y(c, c->y0 * 10), rg_chart_x(c, c->x0 * 10) - rg_chart_x(c, c->x0)) *
        180 / M_PI;
    double x = c->x0 * 1.3;
    char number[32], line[64];

    if (bandwidth * x < c->y0)
        x = c->y0 / bandwidth * 2;
    snprintf(line, sizeof line, "memory, %sB/s", rg_chart_number(bandwidth, true, number));
    rg_buf_printf(b, "<text class=\"ink\" transform=\"translate(%.1f %.1f) rotate(%.1f)\">%s</text>\n",
                  rg_chart_x(c, x), rg_chart_y(c, bandwidth * x) - 8, -slope, line);
}

void rg_roofline_frame(rg_buf *b, rg_chart *c, const rg_roofs *roofs, const char *exact, const char *title)
{
    double bandwidth = roofs->read_bytes_s, peak = roofs->f32_ops_s;
    double fast = rg_roofs_peak(roofs, RG_Q8_0, false), half = rg_roofs_peak(roofs, RG_BF16, false);
    double most = fast > half ? fast : half; /* neither is below the peak */

    rg_chart_widen(&c->x0, &c->x1, peak / bandwidth / 30);
    rg_chart_widen(&c->x0, &c->x1, most / bandwidth * 30);
    rg_chart_widen(&c->y0, &c->y1, most * 1.5);
    rg_chart_pad(&c->x0, &c->x1);
    rg_chart_pad(&c->y0, &c->y1);
    if (bandwidth * c->x0 < c->y0) /* the roof starts within the frame */
        c->y0 = bandwidth * c->x0 / 1.4;
    rg_chart_axes(b, c, title);
    put_roof(b, c, bandwidth, peak, exact);
    if (half > peak * 1.01)
        put_roof(b, c, bandwidth, half, "bf16");
    if (fast > peak * 1.01)
        put_roof(b, c, bandwidth, fast, "int8");
    put_bandwidth(b, c, bandwidth);
}

/* ---- points ------------------------------------------------------------------------------------------------------ */

void rg_roofline_dot(rg_buf *b, double x, double y, bool prefill, const char *detail)
{
    if (prefill)
        rg_buf_printf(b, "<rect class=\"prefill\" x=\"%.1f\" y=\"%.1f\" width=\"9\" height=\"9\"><title>", x - 4.5,
                      y - 4.5);
    else
        rg_buf_printf(b, "<circle class=\"decode\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"><title>", x, y);
    rg_chart_escaped(b, detail);
    rg_buf_printf(b, "</title>%s\n", prefill ? "</rect>" : "</circle>");
}

void rg_roofline_legend(rg_buf *b, int width, int y)
{
    rg_buf_printf(b,
                  "<circle class=\"decode\" cx=\"%d\" cy=\"%d\" r=\"5\"/>\n"
                  "<rect class=\"prefill\" x=\"%d\" y=\"%.1f\" width=\"9\" height=\"9\"/>\n",
                  width - 170, y, width - 95, y - 4.5);
    rg_chart_text(b, width - 160, y + 4, "decode-text", "start", "decode");
    rg_chart_text(b, width - 80, y + 4, "prefill-text", "start", "prefill");
}

static void spread(rg_roofline_label *labels, int n)
{
    for (int i = 1; i < n; i++) { /* by height */
        rg_roofline_label l = labels[i];
        int k = i;
        for (; k > 0 && labels[k - 1].y > l.y; k--)
            labels[k] = labels[k - 1];
        labels[k] = l;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            bool beside = fabs(labels[k].x - labels[i].x) < LABEL_WIDTH;
            if (beside && labels[i].text_y < labels[k].text_y + LINE)
                labels[i].text_y = labels[k].text_y + LINE;
        }
}

void rg_roofline_labels(rg_buf *b, const rg_chart *c, rg_roofline_label *labels, int n)
{
    spread(labels, n);
    for (int i = 0; i < n; i++) {
        const rg_roofline_label *l = &labels[i];
        bool right = l->x < c->left + 0.8 * c->width;
        double x = l->x + (right ? 11 : -11), y = l->text_y + 16;
        if (l->text_y > l->y + 4)
            rg_buf_printf(b, "<path class=\"lead\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", l->x, l->y, x - (right ? 2 : -2),
                          y - 4);
        rg_chart_text(b, x, y, l->prefill ? "prefill-text" : "decode-text", right ? "start" : "end", l->text);
    }
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

void rg_roofline_write(rg_buf *b, const rg_roofline *r)
{
    rg_chart c = { .left = 70,
                   .top = 90,
                   .width = WIDTH - 100,
                   .height = HEIGHT - 145,
                   .x_name = "operations per byte of memory",
                   .y_name = "operations per second" };
    rg_roofline_label labels[RG_ROOFLINE_POINTS];

    for (int i = 0; i < r->n; i++) {
        rg_chart_widen(&c.x0, &c.x1, r->points[i].ops_per_byte);
        rg_chart_widen(&c.y0, &c.y1, r->points[i].ops_s);
        rg_chart_widen(&c.y0, &c.y1, r->points[i].ops_s / 3); /* its label is below it */
    }
    rg_chart_page_begin(b, r->title, WIDTH, HEIGHT);
    rg_chart_text(b, 24, 34, "ink title", "start", r->title);
    rg_chart_text(b, 24, 56, "mute", "start", r->subtitle);
    rg_roofline_frame(b, &c, r->roofs, "f32", "");
    for (int i = 0; i < r->n; i++) {
        const rg_roofline_point *p = &r->points[i];
        rg_roofline_label *l = &labels[i];
        double x = rg_chart_x(&c, p->ops_per_byte), y = rg_chart_y(&c, p->ops_s);
        *l = (rg_roofline_label){ .x = x, .y = y, .text_y = y, .prefill = p->prefill };
        snprintf(l->text, sizeof l->text, "%s", p->name);
        rg_roofline_dot(b, x, y, p->prefill, p->name);
    }
    rg_roofline_labels(b, &c, labels, r->n);
    rg_roofline_legend(b, WIDTH, 74);
    rg_chart_page_end(b);
}
