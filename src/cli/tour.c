/* tour.c -- `ridge tour`: the lecture that ridge is built after, step by step: what it says, what the planner says for
 * its H100, what this machine does, and what binds. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/tour.h"
#include "plan/chart.h"

extern const cli_command cli_tour;

enum { HTML_CAP = 1 << 20 };

typedef struct job {
    cli_args args;
    const char *html;
    bool full;
    tour_facts facts;
} job;

/* A step's texts, NULL where it has none, by these names. */
static const char *const names[] = { "idea", "formula", "lecture", "planned", "measured", "binds", "command" };
enum { N_TEXTS = sizeof names / sizeof *names };

typedef struct texts {
    char planned[TOUR_TEXT], measured[TOUR_TEXT];
    const char *text[N_TEXTS];
} texts;

static void tell(const tour_facts *f, const tour_step *s, texts *t)
{
    if (s->planned)
        s->planned(f, t->planned);
    if (s->measured)
        s->measured(f, t->measured);
    const char *const all[N_TEXTS] = { s->idea, s->formula, s->lecture, s->planned ? t->planned : NULL,
                                       s->measured ? t->measured : NULL, s->binds, s->command };
    memcpy(t->text, all, sizeof all);
}

static void print_text(const job *j)
{
    texts t;

    printf("Stanford CS336, spring 2025, lecture 10, \"Inference\".  docs/LECTURE.md says where each idea lives.\n"
           "here: %s\n", j->facts.here_title);
    for (int i = 0; i < tour_n_steps; i++) {
        tell(&j->facts, &tour_steps[i], &t);
        printf("\n%d. %s\n", i + 1, tour_steps[i].title);
        for (int k = 0; k < N_TEXTS; k++)
            if (t.text[k])
                printf("   %-9s %s\n", names[k], t.text[k]);
    }
}

static bool print_json(const job *j)
{
    cli_json *out = cli_json_new();
    texts t;

    cli_json_open(out, NULL, '{');
    cli_json_text(out, "lecture", "Stanford CS336, spring 2025, lecture 10, Inference");
    cli_json_text(out, "here", j->facts.here_title);
    cli_json_open(out, "steps", '[');
    for (int i = 0; i < tour_n_steps; i++) {
        tell(&j->facts, &tour_steps[i], &t);
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "title", tour_steps[i].title);
        for (int k = 0; k < N_TEXTS; k++)
            cli_json_text(out, names[k], t.text[k]);
        cli_json_close(out);
    }
    cli_json_close(out);
    cli_json_close(out);
    return cli_json_print(out);
}

/* ---- a page ------------------------------------------------------------------------------------------------------ */

static void html_steps(rg_buf *b, const tour_facts *f)
{
    texts t;

    for (int i = 0; i < tour_n_steps; i++) {
        tell(f, &tour_steps[i], &t);
        rg_buf_printf(b, "<h2>%d. ", i + 1);
        rg_chart_escaped(b, tour_steps[i].title);
        rg_buf_printf(b, "</h2>\n<dl>\n");
        for (int k = 0; k < N_TEXTS; k++)
            if (t.text[k]) {
                rg_buf_printf(b, "<dt>%s</dt><dd>", names[k]);
                rg_chart_escaped(b, t.text[k]);
                rg_buf_printf(b, "</dd>\n");
            }
        rg_buf_printf(b, "</dl>\n");
    }
}

static bool write_html(const job *j, rg_error *err)
{
    const tour_facts *f = &j->facts;
    rg_svg_point points[TOUR_BATCHES] = { 0 };
    rg_svg_plan p = { .title = "the shipped model on this machine", .machine = &f->here, .row = &f->row, .ops = &f->ops,
                      .points = points, .n_points = f->n_steps };
    rg_buf b;

    rg_buf_init(&b, HTML_CAP);
    for (int i = 0; i < f->n_steps; i++)
        points[i] = (rg_svg_point){ .batch = f->step[i].batch, .latency_s = f->step[i].planned_s,
                                    .throughput = f->step[i].batch / f->step[i].planned_s,
                                    .measured_latency_s = f->step[i].measured_s, .fits = true };
    rg_buf_printf(&b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>ridge tour</title>\n"
                  "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
                  "color-scheme:light dark}dl{display:grid;grid-template-columns:6rem 1fr;gap:.2rem 1rem}dt{opacity:.7}"
                  "dd{margin:0}svg{max-width:100%%;height:auto}</style></head><body>\n<h1>Inference, step by "
                  "step</h1>\n"
                  "<p>Stanford CS336, spring 2025, lecture 10. Here: ");
    rg_chart_escaped(&b, f->here_title);
    rg_buf_printf(&b, "</p>\n");
    rg_svg_write(&b, &p);
    html_steps(&b, f);
    rg_buf_printf(&b, "</body></html>\n");
    return cli_write_file(j->html, &b, err);
}

static int run(int argc, char **argv)
{
    static job j;
    const cli_option options[] = {
        { "--full", CLI_FLAG, &j.full, NULL, "measure every batch from 1 to 128" },
        { "--html", CLI_STRING, &j.html, "FILE", "also write one page with the pictures" },
        { NULL },
    };
    rg_error err = { 0 };
    int status = cli_parse(&j.args, &cli_tour, options, argc, argv);

    if (status >= 0)
        return status;
    cli_catch_interrupt();
    if (!tour_plan(&j.facts, &j.args, j.full, &err) || !tour_measure(&j.facts, &j.args, &err) ||
        (j.html && !write_html(&j, &err)))
        return cli_fail(&err);
    if (j.args.common.json)
        return print_json(&j) ? EXIT_DONE : EXIT_FAILED;
    print_text(&j);
    return EXIT_DONE;
}

const cli_command cli_tour = {
    .name = "tour", .arguments = "[MODEL]", .summary = "the lecture step by step: its figures, planned, and "
        "measured here",
    .run = run,
    .n_positional = 1,
    .notes = "MODEL writes text; without it, the shipped one.  docs/LECTURE.md has the lecture.",
};
