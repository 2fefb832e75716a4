/* svg.c -- see svg.h.
 *
 * Colours are classes of the page (chart.c). */
#include "plan/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/roofline.h"

enum { WIDTH = 1000, HEIGHT = 950, MAX_LABELS = RG_PLAN_MAX_OPS };

/* ---- the roofline ------------------------------------------------------------------------------------------------ */

/* Operations whose points fall on one another share a label. */
static int gather_labels(const rg_svg_plan *p, const rg_chart *c, rg_roofline_label *labels)
{
    int n = 0;

    for (int i = 0; i < p->ops->n; i++) {
        const rg_plan_op *o = &p->ops->op[i];
        if (!(o->ops > 0) || !(o->bytes > 0) || !(o->seconds > 0))
            continue;
        double x = rg_chart_x(c, o->ops / o->bytes), y = rg_chart_y(c, o->ops / o->seconds);
        bool plain = !strcmp(o->kind, "linear") || !strcmp(o->kind, o->name);
        int k = 0;
        while (k < n && (labels[k].prefill != o->prefill || fabs(labels[k].x - x) > 9 || fabs(labels[k].y - y) > 9))
            k++;
        rg_roofline_label *l = &labels[k];
        if (k == n) {
            *l = (rg_roofline_label){ .x = x, .y = y, .text_y = y, .prefill = o->prefill };
            n++;
        }
        size_t used = strlen(l->text);
        snprintf(l->text + used, sizeof l->text - used, "%s%s", used ? ", " : "", plain ? o->name : o->kind);
    }
    return n;
}

static void put_points(rg_buf *b, const rg_svg_plan *p, const rg_chart *c)
{
    rg_roofline_label labels[MAX_LABELS];
    int n = gather_labels(p, c, labels);

    for (int i = 0; i < p->ops->n; i++) {
        const rg_plan_op *o = &p->ops->op[i];
        char detail[200];
        if (!(o->ops > 0) || !(o->bytes > 0) || !(o->seconds > 0))
            continue;
        snprintf(detail, sizeof detail, "%s %s %s: %.3g operations, %.3g bytes, %.3g s",
                 o->prefill ? "prefill" : "decode", o->kind, o->name, o->ops, o->bytes, o->seconds);
        rg_roofline_dot(b, rg_chart_x(c, o->ops / o->bytes), rg_chart_y(c, o->ops / o->seconds), o->prefill, detail);
    }
    rg_roofline_labels(b, c, labels, n);
}

static void put_roofline(rg_buf *b, const rg_svg_plan *p)
{
    const rg_plan_machine *m = p->machine;
    rg_chart c = { .left = 70,
                   .top = 100,
                   .width = WIDTH - 100,
                   .height = 400,
                   .x_name = "operations per byte of memory",
                   .y_name = "operations per second" };
    char title[128];

    for (int i = 0; i < p->ops->n; i++) {
        const rg_plan_op *o = &p->ops->op[i];
        if (o->ops > 0 && o->bytes > 0 && o->seconds > 0) {
            rg_chart_widen(&c.x0, &c.x1, o->ops / o->bytes);
            rg_chart_widen(&c.y0, &c.y1, o->ops / o->seconds);
            rg_chart_widen(&c.y0, &c.y1, o->ops / o->seconds / 3); /* its label is below it */
        }
    }
    snprintf(title, sizeof title, "Roofline of %s, batch %lld after %lld positions; a prompt of %lld", m->name,
             (long long)p->row->batch, (long long)p->row->seq, (long long)p->row->seq);
    rg_roofline_frame(b, &c, &m->m.roofs, m->accelerator ? "bf16" : "f32", title);
    put_points(b, p, &c);
    rg_roofline_legend(b, WIDTH, 84);
}

/* ---- against batch ----------------------------------------------------------------------------------------------- */

static double value_of(const rg_svg_point *p, int which)
{
    return which ? p->throughput : 1e3 * p->latency_s;
}

/* True if no other point is as fast and has more throughput. */
static bool on_frontier(const rg_svg_plan *p, int i)
{
    for (int k = 0; k < p->n_points; k++)
        if (k != i && p->points[k].latency_s <= p->points[i].latency_s &&
            p->points[k].throughput >= p->points[i].throughput &&
            (p->points[k].latency_s < p->points[i].latency_s || p->points[k].throughput > p->points[i].throughput))
            return false;
    return true;
}

static void put_dot(rg_buf *b, double x, double y, const rg_svg_point *p)
{
    rg_buf_printf(b,
                  "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>batch %lld: %.4g ms, %.4g tokens/s%s"
                  "</title></circle>\n",
                  p->fits ? "decode" : "hollow", x, y, (long long)p->batch, 1e3 * p->latency_s, p->throughput,
                  p->fits ? "" : "; does not fit");
}

static void put_measured(rg_buf *b, double x, double y)
{
    rg_buf_printf(b, "<path class=\"cross\" d=\"M%.1f %.1fl8 8m0 -8l-8 8\"/>\n", x - 4, y - 4);
}

static void put_against_batch(rg_buf *b, const rg_svg_plan *p, int which, rg_chart *c)
{
    int64_t knee = p->row->knee_batch;

    for (int i = 0; i < p->n_points; i++) {
        rg_chart_widen(&c->x0, &c->x1, (double)p->points[i].batch);
        rg_chart_widen(&c->y0, &c->y1, value_of(&p->points[i], which));
    }
    rg_chart_pad(&c->x0, &c->x1);
    rg_chart_pad(&c->y0, &c->y1);
    rg_chart_axes(b, c, which ? "Throughput" : "Latency");
    if (knee > 0 && (double)knee <= c->x1) {
        double x = rg_chart_x(c, (double)knee);
        rg_buf_printf(b, "<path class=\"knee\" d=\"M%.1f %.1fV%.1f\"/>\n", x, c->top, c->top + c->height);
        rg_chart_text(b, x - 5, which ? c->top + c->height - 8 : c->top + 14, "mute", "end", "knee");
    }
    rg_buf_str(b, "<path class=\"curve\" d=\"");
    for (int i = 0; i < p->n_points; i++)
        rg_buf_printf(b, "%c%.1f %.1f", i ? 'L' : 'M', rg_chart_x(c, (double)p->points[i].batch),
                      rg_chart_y(c, value_of(&p->points[i], which)));
    rg_buf_str(b, "\"/>\n");
    for (int i = 0; i < p->n_points; i++) {
        const rg_svg_point *q = &p->points[i];
        double x = rg_chart_x(c, (double)q->batch), measured = q->measured_latency_s;
        put_dot(b, x, rg_chart_y(c, value_of(q, which)), q);
        if (measured > 0)
            put_measured(b, x, rg_chart_y(c, which ? (double)q->batch / measured : 1e3 * measured));
    }
}

static void put_pareto(rg_buf *b, const rg_svg_plan *p, rg_chart *c)
{
    char text[32];
    bool begun = false;

    for (int i = 0; i < p->n_points; i++) {
        rg_chart_widen(&c->x0, &c->x1, 1e3 * p->points[i].latency_s);
        rg_chart_widen(&c->y0, &c->y1, p->points[i].throughput);
    }
    rg_chart_pad(&c->x0, &c->x1);
    rg_chart_pad(&c->y0, &c->y1);
    rg_chart_axes(b, c, "Pareto frontier");
    rg_buf_str(b, "<path class=\"front\" d=\"");
    for (int i = 0; i < p->n_points; i++)
        if (on_frontier(p, i)) {
            rg_buf_printf(b, "%c%.1f %.1f", begun ? 'L' : 'M', rg_chart_x(c, 1e3 * p->points[i].latency_s),
                          rg_chart_y(c, p->points[i].throughput));
            begun = true;
        }
    rg_buf_str(b, begun ? "\"/>\n" : "M0 0\"/>\n");
    double last_x = -100, last_y = -100;
    for (int i = 0; i < p->n_points; i++) {
        const rg_svg_point *q = &p->points[i];
        double x = rg_chart_x(c, 1e3 * q->latency_s), y = rg_chart_y(c, q->throughput);
        put_dot(b, x, y, q);
        if (fabs(x - last_x) < 26 && fabs(y - last_y) < 14)
            continue;
        last_x = x;
        last_y = y;
        snprintf(text, sizeof text, "%lld", (long long)q->batch);
        bool inside = x + 34 < c->left + c->width;
        rg_chart_text(b, inside ? x + 7 : x - 7, inside ? y + 13 : y - 7, "mute small", inside ? "start" : "end", text);
    }
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

void rg_svg_write(rg_buf *b, const rg_svg_plan *p)
{
    rg_chart charts[3];
    char line[300];

    rg_chart_page_begin(b, p->title, WIDTH, HEIGHT);
    snprintf(line, sizeof line, "%.120s on %.80s%s", p->title, p->machine->title, "");
    rg_chart_text(b, 24, 34, "ink title", "start", line);
    snprintf(line, sizeof line, "%.3g GB of %.3g; bound by %s; critical batch %.0f; %lld sequences fit",
             p->row->memory.total / 1e9, p->row->memory.of / 1e9, rg_bound_names[p->row->bound_by],
             p->row->critical_batch, (long long)p->row->max_batch);
    rg_chart_text(b, 24, 56, "mute", "start", line);
    put_roofline(b, p);
    for (int i = 0; i < 3; i++)
        charts[i] = (rg_chart){ .left = 70 + i * 325, .top = 600, .width = 250, .height = 270, .x_name = "batch" };
    charts[0].y_name = "ms per token";
    charts[1].y_name = "tokens per second";
    charts[2].x_name = "latency, ms (numbers: batch)";
    charts[2].y_name = "tokens per second";
    put_against_batch(b, p, 0, &charts[0]);
    put_against_batch(b, p, 1, &charts[1]);
    put_pareto(b, p, &charts[2]);
    rg_chart_text(
        b, 24, HEIGHT - 16, "mute small", "start",
        "Dots are predicted (hollow: does not fit), crosses measured.  Knee: from there on throughput gains less "
        "than 10 % for each doubling of latency.");
    rg_chart_page_end(b);
}
