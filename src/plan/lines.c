/* lines.c -- see lines.h.
 *
 * Lines are told apart by colour and by dashes: twelve colours, four ways to dash. */
#include "plan/lines.h"

#include <stdio.h>

#include "plan/chart.h"

enum { WIDTH = 1180, CHART_HEIGHT = 380, PITCH = 470, TOP = 110, COLOURS = 12, NAME_ROW = 18 };

static const char *const dashes[] = { "", "7 4", "2 3", "9 3 2 3" };

static const char palette[] =
    "<style>\n"
    ".c0{stroke:#1769c4}.c1{stroke:#c8560f}.c2{stroke:#1f8a4c}.c3{stroke:#8a3fbf}.c4{stroke:#b8860b}\n"
    ".c5{stroke:#c2255c}.c6{stroke:#0b8a94}.c7{stroke:#6b4a2b}.c8{stroke:#4a5bd4}.c9{stroke:#6f8f16}\n"
    ".c10{stroke:#d04a7a}.c11{stroke:#555f69}.open{fill:none;stroke-width:1.6}.dot{stroke-width:2}\n"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}\n"
    "@media (prefers-color-scheme: dark){\n"
    ".c0{stroke:#62a8f0}.c1{stroke:#f0914e}.c2{stroke:#5ccb8a}.c3{stroke:#c78bf0}.c4{stroke:#e5bd4f}\n"
    ".c5{stroke:#f07aa0}.c6{stroke:#4fd0da}.c7{stroke:#c9a27e}.c8{stroke:#93a0ff}.c9{stroke:#b4d652}\n"
    ".c10{stroke:#ff9dc0}.c11{stroke:#a9b4bf}}\n"
    "</style>\n";

static void put_line(rg_buf *b, const rg_chart *c, const rg_curve *l, int number)
{
    const char *move = "M";

    rg_buf_printf(b, "<path class=\"line c%d\" stroke-dasharray=\"%s\" d=\"", number % COLOURS,
                  dashes[number / COLOURS % (int)RG_LEN(dashes)]);
    for (int i = 0; i < l->n; i++) {
        if (!(l->point[i].y > 0))
            continue;
        rg_buf_printf(b, "%s%.1f %.1f", move, rg_chart_x(c, l->point[i].x), rg_chart_y(c, l->point[i].y));
        move = "L";
    }
    rg_buf_str(b, *move == 'M' ? "M0 0\"><title>" : "\"><title>");
    rg_chart_escaped(b, l->name);
    rg_buf_str(b, "</title></path>\n");
    for (int i = 0; i < l->n; i++) {
        const rg_lines_point *p = &l->point[i];

        if (p->y > 0)
            rg_buf_printf(b, "<circle class=\"%s c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>%.4g: %.4g</title>"
                             "</circle>\n", p->solid ? "dot" : "open", number % COLOURS, rg_chart_x(c, p->x),
                          rg_chart_y(c, p->y), p->solid ? "1.5" : "4", p->x, p->y);
    }
}

static void put_chart(rg_buf *b, const rg_lines_page *p, int which)
{
    const rg_lines_chart *from = &p->charts[which];
    rg_chart c = { .left = 80 + which % 2 * (WIDTH / 2), .top = TOP + which / 2 * PITCH, .width = WIDTH / 2 - 110,
                   .height = CHART_HEIGHT, .x_name = from->x_name, .y_name = from->y_name };

    for (int i = 0; i < p->n_lines; i++)
        for (int k = 0; k < from->lines[i].n; k++)
            if (from->lines[i].point[k].y > 0) {
                rg_chart_widen(&c.x0, &c.x1, from->lines[i].point[k].x);
                rg_chart_widen(&c.y0, &c.y1, from->lines[i].point[k].y);
            }
    if (!(c.x1 > 0))
        return; /* nothing to show */
    rg_chart_pad(&c.x0, &c.x1);
    rg_chart_pad(&c.y0, &c.y1);
    rg_chart_axes(b, &c, from->title);
    for (int i = 0; i < p->n_lines; i++)
        put_line(b, &c, &from->lines[i], i);
}

/* The lines' names, four in a row. */
static void put_names(rg_buf *b, const rg_lines_page *p, int top)
{
    for (int i = 0; p->n_charts > 0 && i < p->n_lines; i++) {
        double x = 80 + i % 4 * ((WIDTH - 100) / 4), y = top + i / 4 * NAME_ROW;

        rg_buf_printf(b, "<path class=\"line c%d\" stroke-dasharray=\"%s\" d=\"M%.1f %.1fh30\"/>\n", i % COLOURS,
                      dashes[i / COLOURS % (int)RG_LEN(dashes)], x, y - 4);
        rg_chart_text(b, x + 38, y, "ink", "start", p->charts[0].lines[i].name);
    }
}

void rg_lines_write(rg_buf *b, const rg_lines_page *p)
{
    int names = TOP + (p->n_charts + 1) / 2 * PITCH, height = names + (p->n_lines + 3) / 4 * NAME_ROW + 30;

    RG_ASSERT(p->n_charts <= RG_LINES_CHARTS && p->n_lines <= RG_LINES_MOST);
    rg_chart_page_begin(b, p->title, WIDTH, height);
    rg_buf_str(b, palette);
    rg_chart_text(b, 24, 34, "ink title", "start", p->title);
    rg_chart_text(b, 24, 58, "mute", "start", p->note);
    for (int i = 0; i < p->n_charts; i++)
        put_chart(b, p, i);
    put_names(b, p, names);
    rg_chart_page_end(b);
}
