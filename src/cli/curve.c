/* curve.c -- see curve.h. */
#include "cli/curve.h"

#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "plan/chart.h"

enum { LOG_CAP = 1 << 30, SVG_CAP = 1 << 24, WIDTH = 720, HEIGHT = 440, MOST_POINTS = 2000 };

#define HEAD "step,loss,grad_norm,lr,tokens_s\n"

static bool add_point(cli_curve *c, cli_curve_point p, rg_error *err)
{
    if (c->n == c->room) {
        const size_t room = c->room ? 2 * c->room : 256;
        cli_curve_point *more = rg_resize_array(c->at, room, sizeof *more);

        if (!more)
            return rg_fail_memory(err, room * sizeof *more);
        c->at = more;
        c->room = room;
    }
    c->at[c->n++] = p;
    return true;
}

static bool write_point(cli_curve *c, const cli_curve_point *p, rg_error *err)
{
    if (fprintf(c->log, "%lld,%.9g,%.9g,%.9g,%.9g\n", (long long)p->step, p->loss, p->grad_norm, p->lr, p->tokens_s) <
            0 ||
        fflush(c->log))
        return rg_fail(err, RG_E_IO, "%s: cannot be written: %s", c->path, strerror(errno));
    return true;
}

/* Rows of a run that was stopped, up to its checkpoint. */
static bool read_rows(cli_curve *c, int64_t done, rg_error *err)
{
    size_t n;
    char *text = rg_file_slurp(c->path, LOG_CAP, &n, err), *line = text;
    bool ok = text;

    while (ok && line && *line) {
        char *next = strchr(line, '\n');
        cli_curve_point p;
        long long step;

        if (next && sscanf(line, "%lld,%lf,%lf,%lf,%lf", &step, &p.loss, &p.grad_norm, &p.lr, &p.tokens_s) == 5 &&
            step <= done) {
            p.step = step;
            ok = add_point(c, p, err);
        }
        line = next ? next + 1 : NULL;
    }
    rg_free(text);
    return ok;
}

bool cli_curve_open(cli_curve *c, const char *path, int64_t done, rg_error *err)
{
    *c = (cli_curve){ .path = path };
    if (!path)
        return true;
    if (done > 0 && rg_path_look(path) == RG_PATH_FILE && !read_rows(c, done, err))
        return false;
    c->log = fopen(path, "w");
    if (!c->log)
        return rg_fail(err, RG_E_IO, "%s: cannot be written: %s", path, strerror(errno));
    fputs(HEAD, c->log);
    for (size_t i = 0; i < c->n; i++)
        if (!write_point(c, &c->at[i], err))
            return false;
    return true;
}

bool cli_curve_add(cli_curve *c, const rg_training_step *s, rg_error *err)
{
    const cli_curve_point p = { s->step, s->loss, s->grad_norm, s->lr, (double)s->n_tokens / s->seconds };

    return add_point(c, p, err) && (!c->log || write_point(c, &p, err));
}

bool cli_curve_svg(const cli_curve *c, const char *path, rg_error *err)
{
    rg_chart chart = { .left = 70,
                       .top = 50,
                       .width = WIDTH - 100,
                       .height = HEIGHT - 110,
                       .x_name = "step",
                       .y_name = "loss, nats a token" };
    const size_t each = c->n / MOST_POINTS + 1;
    rg_buf b;

    rg_buf_init(&b, SVG_CAP);
    for (size_t i = 0; i < c->n; i++) {
        rg_chart_widen(&chart.x0, &chart.x1, (double)c->at[i].step);
        rg_chart_widen(&chart.y0, &chart.y1, c->at[i].loss);
    }
    rg_chart_pad(&chart.x0, &chart.x1);
    rg_chart_pad(&chart.y0, &chart.y1);
    rg_chart_page_begin(&b, "training", WIDTH, HEIGHT);
    rg_chart_axes(&b, &chart, "training");
    rg_buf_str(&b, "<polyline fill=\"none\" stroke=\"#2a6fdb\" stroke-width=\"1.5\" points=\"");
    for (size_t i = 0; i < c->n; i += each) /* of so many steps the mean */
        if (c->at[i].loss > 0) {
            double sum = 0;
            size_t n = 0;

            for (; n < each && i + n < c->n; n++)
                sum += c->at[i + n].loss;
            rg_buf_printf(&b, "%.1f,%.1f ", rg_chart_x(&chart, (double)c->at[i].step),
                          rg_chart_y(&chart, sum / (double)n));
        }
    rg_buf_str(&b, "\"/>\n");
    rg_chart_page_end(&b);
    return cli_write_file(path, &b, err);
}

void cli_curve_close(cli_curve *c)
{
    if (c->log)
        fclose(c->log);
    rg_free(c->at);
    *c = (cli_curve){ 0 };
}
