/* svg.c -- see svg.h.
 *
 * Charts are boxes with logarithmic axes.  Colours are classes, given twice: for light, and for dark by
 * prefers-color-scheme. */
#include "plan/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 1000, HEIGHT = 950, LINE = 15, MAX_LABELS = RG_PLAN_MAX_OPS };

/* A chart: a box on the page, and the decades that its axes span. */
typedef struct chart {
    double left, top, width, height;
    double x0, x1, y0, y1; /* values at the ends, powers or at least above 0 */
    const char *x_name, *y_name;
} chart;

static double at_x(const chart *c, double v)
{
    return c->left + c->width * (log10(v) - log10(c->x0)) / (log10(c->x1) - log10(c->x0));
}

static double at_y(const chart *c, double v)
{
    return c->top + c->height * (1 - (log10(v) - log10(c->y0)) / (log10(c->y1) - log10(c->y0)));
}

static void put_escaped(rg_buf *b, const char *s)
{
    for (; *s; s++) {
        switch (*s) {
        case '<': rg_buf_str(b, "&lt;"); break;
        case '>': rg_buf_str(b, "&gt;"); break;
        case '&': rg_buf_str(b, "&amp;"); break;
        case '"': rg_buf_str(b, "&quot;"); break;
        default:
            if ((unsigned char)*s >= ' ')
                rg_buf_add(b, s, 1);
        }
    }
}

static void put_text(rg_buf *b, double x, double y, const char *classes, const char *anchor, const char *s)
{
    rg_buf_printf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, classes, anchor);
    put_escaped(b, s);
    rg_buf_str(b, "</text>\n");
}

/* 0.001 .. as a short number with a prefix: 20m, 1, 10k, 1M, 1G, 1T. */
static const char *short_number(double v, bool spaced, char out[32])
{
    static const struct {
        double size;
        const char *name;
    } prefixes[] = { { 1e15, "P" }, { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" }, { 1, "" }, { 1e-3, "m" },
                     { 1e-6, "u" }, { 1e-9, "n" } };
    size_t i = 0;

    while (i < RG_LEN(prefixes) - 1 && v < prefixes[i].size * 0.9999)
        i++;
    snprintf(out, 32, "%.3g%s%s", v / prefixes[i].size, spaced && *prefixes[i].name ? " " : "", prefixes[i].name);
    return out;
}

/* ---- axes -------------------------------------------------------------------------------------------------------- */

/* True if there is room for 2 and 5 between the decades. */
static bool is_fine(double lo, double hi, double length)
{
    return length / (log10(hi) - log10(lo)) > 130;
}

static void put_x_tick(rg_buf *b, const chart *c, double v)
{
    double x = at_x(c, v);
    char text[32];

    if (v < c->x0 * 0.999 || v > c->x1 * 1.001)
        return;
    rg_buf_printf(b, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>\n", x, c->top, c->top + c->height);
    put_text(b, x, c->top + c->height + 16, "mute", "middle", short_number(v, false, text));
}

static void put_y_tick(rg_buf *b, const chart *c, double v)
{
    double y = at_y(c, v);
    char text[32];

    if (v < c->y0 * 0.999 || v > c->y1 * 1.001)
        return;
    rg_buf_printf(b, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", c->left, y, c->left + c->width);
    put_text(b, c->left - 7, y + 4, "mute", "end", short_number(v, false, text));
}

/* The box, its grid and its numbers. */
static void put_axes(rg_buf *b, const chart *c, const char *title)
{
    static const double steps[] = { 1, 2, 5 };
    int n_x = is_fine(c->x0, c->x1, c->width) ? 3 : 1, n_y = is_fine(c->y0, c->y1, c->height) ? 3 : 1;

    put_text(b, c->left, c->top - 12, "ink head", "start", title);
    for (int e = (int)floor(log10(c->x0)); e <= (int)ceil(log10(c->x1)); e++)
        for (int i = 0; i < n_x; i++)
            put_x_tick(b, c, steps[i] * pow(10, e));
    for (int e = (int)floor(log10(c->y0)); e <= (int)ceil(log10(c->y1)); e++)
        for (int i = 0; i < n_y; i++)
            put_y_tick(b, c, steps[i] * pow(10, e));
    rg_buf_printf(b, "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", c->left, c->top,
                  c->width, c->height);
    put_text(b, c->left + c->width / 2, c->top + c->height + 34, "mute", "middle", c->x_name);
    rg_buf_printf(b, "<text class=\"mute\" text-anchor=\"middle\" transform=\"translate(%.1f %.1f) rotate(-90)\">",
                  c->left - 48, c->top + c->height / 2);
    put_escaped(b, c->y_name);
    rg_buf_str(b, "</text>\n");
}

/* Widen the axes: a margin around what is shown, and at least a decade. */
static void pad(double *lo, double *hi)
{
    *lo /= 1.4;
    *hi *= 1.4;
    if (*hi < *lo * 10) {
        double middle = sqrt(*lo * *hi);
        *lo = middle / sqrt(10);
        *hi = middle * sqrt(10);
    }
}

static void widen(double *lo, double *hi, double v)
{
    if (!(v > 0) || !isfinite(v))
        return;
    *lo = *lo > 0 && *lo < v ? *lo : v;
    *hi = *hi > v ? *hi : v;
}

/* ---- the roofline ------------------------------------------------------------------------------------------------ */

typedef struct label {
    double x, y;     /* of its point */
    double text_y;
    char text[96];
    bool prefill;
} label;

static void put_roof(rg_buf *b, const chart *c, double bandwidth, double peak, const char *name)
{
    char line[64], number[32];
    double ridge = peak / bandwidth;

    rg_buf_printf(b, "<path class=\"roof\" d=\"M%.1f %.1fL%.1f %.1fH%.1f\"/>\n", at_x(c, c->x0),
                  at_y(c, bandwidth * c->x0), at_x(c, ridge), at_y(c, peak), c->left + c->width);
    snprintf(line, sizeof line, "%s, %sop/s", name, short_number(peak, true, number));
    put_text(b, at_x(c, ridge) + 36, at_y(c, peak) - 7, "ink", "start", line); /* beside a higher roof's slope */
}

static void put_bandwidth(rg_buf *b, const chart *c, double bandwidth)
{
    double slope = atan2(at_y(c, c->y0) - at_y(c, c->y0 * 10), at_x(c, c->x0 * 10) - at_x(c, c->x0)) * 180 / M_PI;
    double x = c->x0 * 1.3;
    char number[32], line[64];

    if (bandwidth * x < c->y0)
        x = c->y0 / bandwidth * 2;
    snprintf(line, sizeof line, "memory, %sB/s", short_number(bandwidth, true, number));
    rg_buf_printf(b, "<text class=\"ink\" transform=\"translate(%.1f %.1f) rotate(%.1f)\">%s</text>\n", at_x(c, x),
                  at_y(c, bandwidth * x) - 8, -slope, line);
}

/* Operations whose points fall on one another share a label. */
static int gather_labels(const rg_svg_plan *p, const chart *c, label *labels)
{
    int n = 0;

    for (int i = 0; i < p->ops->n; i++) {
        const rg_plan_op *o = &p->ops->op[i];
        if (!(o->ops > 0) || !(o->bytes > 0) || !(o->seconds > 0))
            continue;
        double x = at_x(c, o->ops / o->bytes), y = at_y(c, o->ops / o->seconds);
        bool plain = !strcmp(o->kind, "linear") || !strcmp(o->kind, o->name);
        int k = 0;
        while (k < n && (labels[k].prefill != o->prefill || fabs(labels[k].x - x) > 9 || fabs(labels[k].y - y) > 9))
            k++;
        label *l = &labels[k];
        if (k == n) {
            *l = (label){ .x = x, .y = y, .text_y = y, .prefill = o->prefill };
            n++;
        }
        size_t used = strlen(l->text);
        snprintf(l->text + used, sizeof l->text - used, "%s%s", used ? ", " : "", plain ? o->name : o->kind);
    }
    return n;
}

static void spread_labels(label *labels, int n)
{
    for (int i = 1; i < n; i++) { /* by height */
        label l = labels[i];
        int k = i;
        for (; k > 0 && labels[k - 1].y > l.y; k--)
            labels[k] = labels[k - 1];
        labels[k] = l;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            bool beside = fabs(labels[k].x - labels[i].x) < 170;
            if (beside && labels[i].text_y < labels[k].text_y + LINE)
                labels[i].text_y = labels[k].text_y + LINE;
        }
}

static void put_points(rg_buf *b, const rg_svg_plan *p, const chart *c)
{
    label labels[MAX_LABELS];
    int n = gather_labels(p, c, labels);

    for (int i = 0; i < p->ops->n; i++) {
        const rg_plan_op *o = &p->ops->op[i];
        if (!(o->ops > 0) || !(o->bytes > 0) || !(o->seconds > 0))
            continue;
        double x = at_x(c, o->ops / o->bytes), y = at_y(c, o->ops / o->seconds);
        if (o->prefill)
            rg_buf_printf(b, "<rect class=\"prefill\" x=\"%.1f\" y=\"%.1f\" width=\"9\" height=\"9\"><title>", x - 4.5,
                          y - 4.5);
        else
            rg_buf_printf(b, "<circle class=\"decode\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"><title>", x, y);
        rg_buf_printf(b, "%s %s %s: %.3g operations, %.3g bytes, %.3g s</title>%s\n", o->prefill ? "prefill" : "decode",
                      o->kind, o->name, o->ops, o->bytes, o->seconds, o->prefill ? "</rect>" : "</circle>");
    }
    spread_labels(labels, n);
    for (int i = 0; i < n; i++) {
        const label *l = &labels[i];
        bool right = l->x < c->left + 0.8 * c->width;
        double x = l->x + (right ? 11 : -11), y = l->text_y + 16;
        if (l->text_y > l->y + 4)
            rg_buf_printf(b, "<path class=\"lead\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", l->x, l->y,
                          x - (right ? 2 : -2), y - 4);
        put_text(b, x, y, l->prefill ? "prefill-text" : "decode-text", right ? "start" : "end", l->text);
    }
}

static void put_roofline(rg_buf *b, const rg_svg_plan *p)
{
    const rg_plan_machine *m = p->machine;
    const rg_roofs *roofs = &p->machine->m.roofs;
    double bandwidth = roofs->read_bytes_s, peak = roofs->f32_ops_s;
    double fast = rg_roofs_peak(roofs, RG_Q8_0, false), half = rg_roofs_peak(roofs, RG_BF16, false);
    chart c = { .left = 70, .top = 100, .width = WIDTH - 100, .height = 400, .x_name = "operations per byte of memory",
                .y_name = "operations per second" };
    double most = fast > half ? fast : half; /* neither is below the peak */
    char title[128];

    widen(&c.x0, &c.x1, peak / bandwidth / 30);
    widen(&c.x0, &c.x1, most / bandwidth * 30);
    widen(&c.y0, &c.y1, most * 1.5);
    for (int i = 0; i < p->ops->n; i++) {
        const rg_plan_op *o = &p->ops->op[i];
        if (o->ops > 0 && o->bytes > 0 && o->seconds > 0) {
            widen(&c.x0, &c.x1, o->ops / o->bytes);
            widen(&c.y0, &c.y1, o->ops / o->seconds);
            widen(&c.y0, &c.y1, o->ops / o->seconds / 3); /* its label is below it */
        }
    }
    pad(&c.x0, &c.x1);
    pad(&c.y0, &c.y1);
    if (bandwidth * c.x0 < c.y0) /* the roof starts within the frame */
        c.y0 = bandwidth * c.x0 / 1.4;
    snprintf(title, sizeof title, "Roofline of %s, batch %lld after %lld positions; a prompt of %lld", m->name,
             (long long)p->row->batch, (long long)p->row->seq, (long long)p->row->seq);
    put_axes(b, &c, title);
    put_roof(b, &c, bandwidth, peak, m->accelerator ? "bf16" : "f32");
    if (half > peak * 1.01)
        put_roof(b, &c, bandwidth, half, "bf16");
    if (fast > peak * 1.01)
        put_roof(b, &c, bandwidth, fast, "int8");
    put_bandwidth(b, &c, bandwidth);
    put_points(b, p, &c);
    rg_buf_printf(b, "<circle class=\"decode\" cx=\"%d\" cy=\"84\" r=\"5\"/>\n"
                     "<rect class=\"prefill\" x=\"%d\" y=\"79.5\" width=\"9\" height=\"9\"/>\n",
                  WIDTH - 170, WIDTH - 95);
    put_text(b, WIDTH - 160, 88, "decode-text", "start", "decode");
    put_text(b, WIDTH - 80, 88, "prefill-text", "start", "prefill");
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
    rg_buf_printf(b, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>batch %lld: %.4g ms, %.4g tokens/s%s"
                     "</title></circle>\n", p->fits ? "decode" : "hollow", x, y, (long long)p->batch,
                  1e3 * p->latency_s, p->throughput, p->fits ? "" : "; does not fit");
}

static void put_measured(rg_buf *b, double x, double y)
{
    rg_buf_printf(b, "<path class=\"cross\" d=\"M%.1f %.1fl8 8m0 -8l-8 8\"/>\n", x - 4, y - 4);
}

static void put_against_batch(rg_buf *b, const rg_svg_plan *p, int which, chart *c)
{
    int64_t knee = p->row->knee_batch;

    for (int i = 0; i < p->n_points; i++) {
        widen(&c->x0, &c->x1, (double)p->points[i].batch);
        widen(&c->y0, &c->y1, value_of(&p->points[i], which));
    }
    pad(&c->x0, &c->x1);
    pad(&c->y0, &c->y1);
    put_axes(b, c, which ? "Throughput" : "Latency");
    if (knee > 0 && (double)knee <= c->x1) {
        double x = at_x(c, (double)knee);
        rg_buf_printf(b, "<path class=\"knee\" d=\"M%.1f %.1fV%.1f\"/>\n", x, c->top, c->top + c->height);
        put_text(b, x - 5, which ? c->top + c->height - 8 : c->top + 14, "mute", "end", "knee");
    }
    rg_buf_str(b, "<path class=\"curve\" d=\"");
    for (int i = 0; i < p->n_points; i++)
        rg_buf_printf(b, "%c%.1f %.1f", i ? 'L' : 'M', at_x(c, (double)p->points[i].batch),
                      at_y(c, value_of(&p->points[i], which)));
    rg_buf_str(b, "\"/>\n");
    for (int i = 0; i < p->n_points; i++) {
        const rg_svg_point *q = &p->points[i];
        double x = at_x(c, (double)q->batch), measured = q->measured_latency_s;
        put_dot(b, x, at_y(c, value_of(q, which)), q);
        if (measured > 0)
            put_measured(b, x, at_y(c, which ? (double)q->batch / measured : 1e3 * measured));
    }
}

static void put_pareto(rg_buf *b, const rg_svg_plan *p, chart *c)
{
    char text[32];
    bool begun = false;

    for (int i = 0; i < p->n_points; i++) {
        widen(&c->x0, &c->x1, 1e3 * p->points[i].latency_s);
        widen(&c->y0, &c->y1, p->points[i].throughput);
    }
    pad(&c->x0, &c->x1);
    pad(&c->y0, &c->y1);
    put_axes(b, c, "Pareto frontier");
    rg_buf_str(b, "<path class=\"front\" d=\"");
    for (int i = 0; i < p->n_points; i++)
        if (on_frontier(p, i)) {
            rg_buf_printf(b, "%c%.1f %.1f", begun ? 'L' : 'M', at_x(c, 1e3 * p->points[i].latency_s),
                          at_y(c, p->points[i].throughput));
            begun = true;
        }
    rg_buf_str(b, begun ? "\"/>\n" : "M0 0\"/>\n");
    double last_x = -100, last_y = -100;
    for (int i = 0; i < p->n_points; i++) {
        const rg_svg_point *q = &p->points[i];
        double x = at_x(c, 1e3 * q->latency_s), y = at_y(c, q->throughput);
        put_dot(b, x, y, q);
        if (fabs(x - last_x) < 26 && fabs(y - last_y) < 14)
            continue;
        last_x = x;
        last_y = y;
        snprintf(text, sizeof text, "%lld", (long long)q->batch);
        bool inside = x + 34 < c->left + c->width;
        put_text(b, inside ? x + 7 : x - 7, inside ? y + 13 : y - 7, "mute small", inside ? "start" : "end", text);
    }
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static const char style[] =
    "<style>\n"
    "text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}\n"
    ".head{font-weight:600;font-size:15px}.title{font-weight:600;font-size:19px}.small{font-size:11px}\n"
    ".page{fill:#ffffff}.ink{fill:#1c2127}.mute{fill:#5d6873}.frame{fill:none;stroke:#9aa4ae}\n"
    ".grid{stroke:#e4e8ec;fill:none}.roof{stroke:#1c2127;stroke-width:2;fill:none;stroke-linejoin:round}\n"
    ".lead{stroke:#9aa4ae;fill:none}.knee{stroke:#5d6873;stroke-dasharray:4 4;fill:none}\n"
    ".curve{stroke:#1769c4;stroke-width:2;fill:none;stroke-linejoin:round}\n"
    ".front{stroke:#1f8a4c;stroke-width:2.5;fill:none;stroke-linejoin:round}\n"
    ".decode{fill:#1769c4}.decode-text{fill:#12559f}.prefill{fill:#c8560f}.prefill-text{fill:#a3440a}\n"
    ".hollow{fill:#ffffff;stroke:#1769c4;stroke-width:1.6}.cross{stroke:#c8560f;stroke-width:2;fill:none}\n"
    "@media (prefers-color-scheme: dark){\n"
    ".page{fill:#12161b}.ink{fill:#e6eaee}.mute{fill:#9aa6b2}.frame{stroke:#56616c}.grid{stroke:#262d35}\n"
    ".roof{stroke:#e6eaee}.lead{stroke:#56616c}.knee{stroke:#9aa6b2}.curve{stroke:#62a8f0}.front{stroke:#5ccb8a}\n"
    ".decode{fill:#62a8f0}.decode-text{fill:#8cc0f5}.prefill{fill:#f0914e}.prefill-text{fill:#f5b183}\n"
    ".hollow{fill:#12161b;stroke:#62a8f0}.cross{stroke:#f0914e}}\n"
    "</style>\n";

void rg_svg_write(rg_buf *b, const rg_svg_plan *p)
{
    chart charts[3];
    char line[300];

    rg_buf_printf(b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                     "role=\"img\">\n<title>", WIDTH, HEIGHT, WIDTH, HEIGHT);
    put_escaped(b, p->title);
    rg_buf_str(b, "</title>\n");
    rg_buf_str(b, style);
    rg_buf_printf(b, "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n", WIDTH, HEIGHT);
    snprintf(line, sizeof line, "%.120s on %.80s%s", p->title, p->machine->title, "");
    put_text(b, 24, 34, "ink title", "start", line);
    snprintf(line, sizeof line, "%.3g GB of %.3g; bound by %s; critical batch %.0f; %lld sequences fit",
             p->row->memory.total / 1e9, p->row->memory.of / 1e9, rg_bound_names[p->row->bound_by],
             p->row->critical_batch, (long long)p->row->max_batch);
    put_text(b, 24, 56, "mute", "start", line);
    put_roofline(b, p);
    for (int i = 0; i < 3; i++)
        charts[i] = (chart){ .left = 70 + i * 325, .top = 600, .width = 250, .height = 270, .x_name = "batch" };
    charts[0].y_name = "ms per token";
    charts[1].y_name = "tokens per second";
    charts[2].x_name = "latency, ms (numbers: batch)";
    charts[2].y_name = "tokens per second";
    put_against_batch(b, p, 0, &charts[0]);
    put_against_batch(b, p, 1, &charts[1]);
    put_pareto(b, p, &charts[2]);
    put_text(b, 24, HEIGHT - 16, "mute small", "start",
             "Dots are predicted (hollow: does not fit), crosses measured.  Knee: from there on throughput gains less "
             "than 10 % for each doubling of latency.");
    rg_buf_str(b, "</svg>\n");
}
