/* chart.c -- see chart.h. */
#include "plan/chart.h"

#include <math.h>
#include <stdio.h>

double rg_chart_x(const rg_chart *c, double v)
{
    return c->left + c->width * (log10(v) - log10(c->x0)) / (log10(c->x1) - log10(c->x0));
}

double rg_chart_y(const rg_chart *c, double v)
{
    return c->top + c->height * (1 - (log10(v) - log10(c->y0)) / (log10(c->y1) - log10(c->y0)));
}

void rg_chart_escaped(rg_buf *b, const char *s)
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

void rg_chart_text(rg_buf *b, double x, double y, const char *classes, const char *anchor, const char *s)
{
    rg_buf_printf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, classes, anchor);
    rg_chart_escaped(b, s);
    rg_buf_str(b, "</text>\n");
}

/* 0.001 .. as a short number with a prefix: 20m, 1, 10k, 1M, 1G, 1T. */
const char *rg_chart_number(double v, bool spaced, char out[32])
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

static void put_x_tick(rg_buf *b, const rg_chart *c, double v)
{
    double x = rg_chart_x(c, v);
    char text[32];

    if (v < c->x0 * 0.999 || v > c->x1 * 1.001)
        return;
    rg_buf_printf(b, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>\n", x, c->top, c->top + c->height);
    rg_chart_text(b, x, c->top + c->height + 16, "mute", "middle", rg_chart_number(v, false, text));
}

static void put_y_tick(rg_buf *b, const rg_chart *c, double v)
{
    double y = rg_chart_y(c, v);
    char text[32];

    if (v < c->y0 * 0.999 || v > c->y1 * 1.001)
        return;
    rg_buf_printf(b, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", c->left, y, c->left + c->width);
    rg_chart_text(b, c->left - 7, y + 4, "mute", "end", rg_chart_number(v, false, text));
}

/* The box, its grid and its numbers. */
void rg_chart_axes(rg_buf *b, const rg_chart *c, const char *title)
{
    static const double steps[] = { 1, 2, 5 };
    int n_x = is_fine(c->x0, c->x1, c->width) ? 3 : 1, n_y = is_fine(c->y0, c->y1, c->height) ? 3 : 1;

    rg_chart_text(b, c->left, c->top - 12, "ink head", "start", title);
    for (int e = (int)floor(log10(c->x0)); e <= (int)ceil(log10(c->x1)); e++)
        for (int i = 0; i < n_x; i++)
            put_x_tick(b, c, steps[i] * pow(10, e));
    for (int e = (int)floor(log10(c->y0)); e <= (int)ceil(log10(c->y1)); e++)
        for (int i = 0; i < n_y; i++)
            put_y_tick(b, c, steps[i] * pow(10, e));
    rg_buf_printf(b, "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", c->left, c->top,
                  c->width, c->height);
    rg_chart_text(b, c->left + c->width / 2, c->top + c->height + 34, "mute", "middle", c->x_name);
    rg_buf_printf(b, "<text class=\"mute\" text-anchor=\"middle\" transform=\"translate(%.1f %.1f) rotate(-90)\">",
                  c->left - 48, c->top + c->height / 2);
    rg_chart_escaped(b, c->y_name);
    rg_buf_str(b, "</text>\n");
}

/* Widen the axes: a margin around what is shown, and at least a decade. */
void rg_chart_pad(double *lo, double *hi)
{
    *lo /= 1.4;
    *hi *= 1.4;
    if (*hi < *lo * 10) {
        double middle = sqrt(*lo * *hi);
        *lo = middle / sqrt(10);
        *hi = middle * sqrt(10);
    }
}

void rg_chart_widen(double *lo, double *hi, double v)
{
    if (!(v > 0) || !isfinite(v))
        return;
    *lo = *lo > 0 && *lo < v ? *lo : v;
    *hi = *hi > v ? *hi : v;
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

void rg_chart_page_begin(rg_buf *b, const char *title, int width, int height)
{
    rg_buf_printf(b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                     "role=\"img\">\n<title>", width, height, width, height);
    rg_chart_escaped(b, title);
    rg_buf_str(b, "</title>\n");
    rg_buf_str(b, style);
    rg_buf_printf(b, "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n", width, height);
}

void rg_chart_page_end(rg_buf *b)
{
    rg_buf_str(b, "</svg>\n");
}
