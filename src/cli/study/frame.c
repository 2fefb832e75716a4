/* frame.c -- see study.h: what all studies do alike.
 *
 * Rows are planned first, in the order in which all outputs have them.  Those that the file of an earlier run has are
 * taken from it (--resume); the others are measured, and the file is written anew, whole, after each.  Lines of the
 * file that are of no row of this command line stay in it, before the others. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/study/study.h"

enum { MOST_OPTIONS = 32, FILE_CAP = 1 << 22 };

typedef struct row {
    const study_model *model;
    bool made; /* kept or measured: all values are there */
    study_value v[STUDY_MOST_COLUMNS];
} row;

typedef struct study_frame {
    const study *what;
    study_run run;
    cli_args args;
    cli_option options[MOST_OPTIONS];
    const char *csv, *svg;
    bool resume;
    study_model model[RG_LEN(((cli_args *)0)->positional)];
    int n_models;
    row *row;
    int n, n_kept;   /* rows; of them, known from the file */
    char *file;      /* the file of the earlier run, cut into its fields */
    rg_buf others;   /* lines of it that are of no row */
    int n_measured;  /* since then: */
    uint64_t began;
} study_frame;

const char *study_name(const char *path, char out[64])
{
    static const char config[] = "/config.json";
    size_t n = strlen(path), end = sizeof config - 1, from;

    if (n > end && !strcmp(path + n - end, config))
        n -= end;
    while (n > 1 && path[n - 1] == '/')
        n--;
    for (from = n; from > 0 && path[from - 1] != '/';)
        from--;
    for (size_t k = n; k > from + 1; k--)
        if (path[k - 1] == '.') {
            n = k - 1;
            break;
        }
    snprintf(out, 64, "%.*s", (int)(n - from < 60 ? n - from : 60), path + from);
    return out;
}

bool study_add_model(const study_run *run, const char *name, rg_error *err)
{
    study_frame *f = run->frame;

    if (f->n_models == (int)RG_LEN(f->model))
        return rg_fail(err, RG_E_LIMIT, "study: more than %zu models", RG_LEN(f->model));
    study_model *m = &f->model[f->n_models++];
    m->given = name;
    study_name(name, m->name);
    return true;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

study_value *study_add_row(const study_run *run, const study_model *m, rg_error *err)
{
    study_frame *f = run->frame;

    if (f->n == STUDY_MOST_ROWS)
        return rg_fail(err, RG_E_LIMIT, "study: more than %d rows", STUDY_MOST_ROWS), NULL;
    row *r = &f->row[f->n++];
    r->model = m;
    for (int i = 0; i < f->what->n_columns; i++)
        if (f->what->columns[i].kind == STUDY_TEXT)
            r->v[i].text = "";
        else
            r->v[i].number = NAN;
    return r->v;
}

static bool same_keys(const study *s, const study_value *a, const study_value *b)
{
    for (int i = 0; i < s->n_columns; i++) {
        const study_column *c = &s->columns[i];

        if (c->key && (c->kind == STUDY_TEXT ? strcmp(a[i].text, b[i].text) != 0 : a[i].number != b[i].number))
            return false;
    }
    return true;
}

/* ---- the file of rows: fields are quoted as in RFC 4180, where they have to be ----------------------------------- */

static void put_text(rg_buf *b, const char *s)
{
    if (!s[strcspn(s, ",\"\r\n")]) {
        rg_buf_str(b, s);
        return;
    }
    rg_buf_str(b, "\"");
    for (; *s; s++)
        rg_buf_printf(b, *s == '"' ? "\"%c" : "%c", *s);
    rg_buf_str(b, "\"");
}

static void put_row(rg_buf *b, const study *s, const study_value *v)
{
    for (int i = 0; i < s->n_columns; i++) {
        const study_column *c = &s->columns[i];

        rg_buf_str(b, i ? "," : "");
        if (c->kind == STUDY_TEXT)
            put_text(b, v[i].text);
        else if (c->kind == STUDY_BOOL)
            put_text(b, c->no_yes[v[i].number != 0]);
        else if (!isnan(v[i].number))
            rg_buf_printf(b, c->kind == STUDY_INT ? "%.0f" : c->format, v[i].number);
    }
    rg_buf_str(b, "\n");
}

static void put_head(rg_buf *b, const study *s)
{
    for (int i = 0; i < s->n_columns; i++)
        rg_buf_printf(b, "%s%s", i ? "," : "", s->columns[i].csv);
    rg_buf_str(b, "\n");
}

static bool write_csv(const study_frame *f, rg_error *err)
{
    rg_buf b;

    rg_buf_init(&b, FILE_CAP);
    put_head(&b, f->what);
    rg_buf_add(&b, f->others.data, f->others.n);
    for (int i = 0; i < f->n; i++)
        if (f->row[i].made)
            put_row(&b, f->what, f->row[i].v);
    return cli_write_file(f->csv, &b, err);
}

/* Cut a field out of a line, in place: *at goes behind what ends it, which is returned. */
static char cut_field(char **at, const char **field)
{
    char *from = *at, *to = from;

    if (*from == '"') {
        *field = to;
        for (from++; *from && (*from != '"' || from[1] == '"'); from++) {
            from += *from == '"';
            *to++ = *from;
        }
        from += *from == '"';
    } else {
        *field = from;
        to = from += strcspn(from, ",\n");
    }
    const char end = *from;
    *to = 0;
    *at = from + (end != 0);
    return end;
}

static bool read_value(const study_column *c, const char *field, study_value *v)
{
    char *end;

    switch (c->kind) {
    case STUDY_TEXT: v->text = field; return true;
    case STUDY_BOOL:
        v->number = !strcmp(field, c->no_yes[1]);
        return v->number != 0 || !strcmp(field, c->no_yes[0]);
    case STUDY_INT:
    case STUDY_REAL: break;
    }
    v->number = *field ? strtod(field, &end) : NAN;
    return !*field || !*end;
}

/* A line of the file: into the row that it is of, or to the others. */
static bool take_line(study_frame *f, char **at, rg_error *err)
{
    const study *s = f->what;
    study_value v[STUDY_MOST_COLUMNS];
    const char *field, *first = *at;

    for (int i = 0; i < s->n_columns; i++)
        if (cut_field(at, &field) != (i + 1 < s->n_columns ? ',' : '\n') || !read_value(&s->columns[i], field, &v[i]))
            return rg_fail(err, RG_E_INPUT, "study: %s: the row that begins with '%.60s' is not one of `%s --csv`",
                           f->csv, first, s->command.name);
    for (int i = 0; i < f->n; i++)
        if (!f->row[i].made && same_keys(s, f->row[i].v, v)) {
            memcpy(f->row[i].v, v, sizeof v);
            f->row[i].made = true;
            return true;
        }
    put_row(&f->others, s, v);
    return true;
}

static bool read_csv(study_frame *f, rg_error *err)
{
    rg_buf head;
    size_t n;

    if (!f->resume || rg_path_look(f->csv) == RG_PATH_NONE)
        return true;
    f->file = rg_file_slurp(f->csv, FILE_CAP, &n, err);
    if (!f->file)
        return false;
    rg_buf_init(&head, FILE_CAP);
    put_head(&head, f->what);
    char *at = f->file + head.n;
    bool ok = !head.failed ? !strncmp(f->file, head.data, head.n) : rg_fail_memory(err, head.n);
    if (!ok && !head.failed)
        rg_fail(err, RG_E_INPUT, "study: %s is not what `%s --csv` writes", f->csv, f->what->command.name);
    rg_buf_fini(&head);
    while (ok && *at)
        ok = take_line(f, &at, err);
    for (int i = 0; i < f->n; i++)
        f->n_kept += f->row[i].made;
    return ok;
}

/* ---- what is printed --------------------------------------------------------------------------------------------- */

static double scaled(double x, double by)
{
    return by != 0 ? x * by : x;
}

static void put_cell(rg_buf *b, const study_column *c, study_value v)
{
    const char *unit = c->unit ? c->unit : "";

    if (c->kind == STUDY_TEXT || c->kind == STUDY_BOOL)
        rg_buf_printf(b, "%-*s", c->width, c->kind == STUDY_TEXT ? v.text : c->no_yes[v.number != 0]);
    else if (isnan(v.number))
        rg_buf_printf(b, "%*s", c->width, "");
    else
        rg_buf_printf(b, "%*.*f%s", c->width - (int)strlen(unit), c->digits, scaled(v.number, c->scale), unit);
}

/* A line of the table; v NULL: its head. */
static void print_row(const study_frame *f, const study_value *v)
{
    rg_buf b;

    if (f->run.common->json)
        return;
    rg_buf_init(&b, FILE_CAP);
    for (int i = 0; i < f->what->n_columns; i++) {
        const study_column *c = &f->what->columns[i];

        if (!c->head)
            continue;
        rg_buf_str(&b, b.n ? " " : "");
        if (v)
            put_cell(&b, c, v[i]);
        else
            rg_buf_printf(&b, "%*s", c->kind == STUDY_TEXT || c->kind == STUDY_BOOL ? -c->width : c->width, c->head);
    }
    while (b.n && b.data[b.n - 1] == ' ')
        b.data[--b.n] = 0;
    printf("%s\n", b.n ? b.data : "");
    cli_flush(NULL);
    rg_buf_fini(&b);
}

static void put_json(cli_json *out, const study_column *c, study_value v)
{
    switch (c->kind) {
    case STUDY_TEXT: cli_json_text(out, c->json, v.text); return;
    case STUDY_INT: cli_json_int(out, c->json, (int64_t)v.number); return;
    case STUDY_REAL: cli_json_float(out, c->json, scaled(v.number, c->json_scale)); return;
    case STUDY_BOOL: cli_json_bool(out, c->json, v.number != 0); return;
    }
}

static bool print_json(const study_frame *f, rg_error *err)
{
    const study *s = f->what;

    if (!f->run.common->json)
        return true;
    cli_json *out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_json_int(out, "kept", f->n_kept);
    cli_json_open(out, "rows", '[');
    for (int i = 0; i < f->n; i++) {
        if (!f->row[i].made)
            continue;
        cli_json_open(out, NULL, '{');
        for (int c = 0; c < s->n_columns; c++)
            if (s->columns[c].json)
                put_json(out, &s->columns[c], f->row[i].v[c]);
        cli_json_close(out);
    }
    cli_json_close(out);
    if (s->conclude)
        s->conclude(&f->run, out);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "study: standard output cannot be written");
}

/* ---- the picture ------------------------------------------------------------------------------------------------- */

struct study_picture {
    int n_lines;
    char name[RG_LINES_MOST][80];
    rg_curve line[RG_LINES_CHARTS][RG_LINES_MOST];
};

void study_point(study_picture *p, int chart, const char *model, const char *kind, rg_lines_point at)
{
    char name[80];
    int k = 0, i;

    if (!(at.x > 0 && at.y > 0))
        return;
    snprintf(name, sizeof name, "%s%s%s", model, kind ? ", " : "", kind ? kind : "");
    while (k < p->n_lines && strcmp(p->name[k], name))
        k++;
    if (k == RG_LINES_MOST)
        return;
    if (k == p->n_lines) {
        memcpy(p->name[k], name, sizeof name);
        p->n_lines++;
    }
    rg_curve *l = &p->line[chart][k];
    if (l->n == RG_LINES_POINTS)
        return;
    for (i = l->n++; i > 0 && l->point[i - 1].x > at.x; i--)
        l->point[i] = l->point[i - 1];
    l->point[i] = at;
}

static bool write_svg(const study_frame *f, rg_error *err)
{
    rg_lines_page page = *f->what->page;
    rg_buf b;

    if (!f->svg)
        return true;
    study_picture *p = rg_zalloc(sizeof *p);
    if (!p)
        return rg_fail_memory(err, sizeof *p);
    for (int i = 0; i < f->n; i++)
        if (f->row[i].made)
            f->what->draw(p, f->row[i].model, f->row[i].v);
    page.n_lines = p->n_lines;
    for (int c = 0; c < page.n_charts; c++) {
        page.charts[c].lines = p->line[c];
        for (int k = 0; k < p->n_lines; k++)
            p->line[c][k].name = p->name[k];
    }
    rg_buf_init(&b, FILE_CAP);
    rg_lines_write(&b, &page);
    rg_free(p);
    return cli_write_file(f->svg, &b, err);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* Before the row of that number: which it is, and the minutes that the rest will take if it goes on so. */
static void say_progress(study_frame *f, int number, char what[48])
{
    const int n_left = f->n - f->n_kept - f->n_measured;
    char left[24] = "";

    if (!f->n_measured)
        f->began = rg_now_ns();
    else
        snprintf(left, sizeof left, ", %.0f min left",
                 ceil(rg_seconds(f->began, rg_now_ns()) / f->n_measured * n_left / 60));
    snprintf(what, 48, "row %d of %d%s", number + 1, f->n, left);
    cli_progress(f->run.common->quiet ? f : NULL, what, (double)number / f->n);
}

static bool make_row(study_frame *f, int number, rg_error *err)
{
    row *r = &f->row[number];
    char what[48];

    say_progress(f, number, what);
    bool ok = f->what->measure(&f->run, r->model, r->v, err);
    cli_progress(f->run.common->quiet ? f : NULL, what, 1);
    if (cli_interrupted())
        return true;
    r->made = ok;
    f->n_measured++;
    return ok && (!f->csv || write_csv(f, err));
}

static bool work(study_frame *f, rg_error *err)
{
    const study *s = f->what;

    if (f->resume && !f->csv)
        return rg_fail(err, RG_E_USAGE, "study: --resume goes on from the file of --csv");
    f->row = rg_array(STUDY_MOST_ROWS, sizeof *f->row);
    if (!f->row)
        return rg_fail_memory(err, STUDY_MOST_ROWS * sizeof *f->row);
    if (s->settle && !s->settle(&f->run, err))
        return false;
    if (s->list && !s->list(&f->run, err))
        return false;
    for (int m = 0; m < f->args.n_positional; m++)
        if (!study_add_model(&f->run, f->args.positional[m], err))
            return false;
    for (int m = 0; m < f->n_models; m++)
        if (!s->plan(&f->run, &f->model[m], err))
            return false;
    if (!read_csv(f, err))
        return false;
    print_row(f, NULL);
    for (int i = 0; i < f->n; i++) {
        if (!f->row[i].made && !cli_interrupted() && !make_row(f, i, err))
            return false;
        if (f->row[i].made)
            print_row(f, f->row[i].v);
    }
    if (s->conclude && !f->run.common->json)
        s->conclude(&f->run, NULL);
    return write_svg(f, err) && print_json(f, err);
}

/* The options of this study: about its text, its own, and those of all. */
static void gather_options(study_frame *f)
{
    const cli_option of_text[] = {
        { "--perplexity", CLI_STRING, &f->run.text, "FILE", f->what->text },
        { "--text", CLI_STRING, &f->run.text, "FILE", "the same" },
        { "--ctx", CLI_INT, &f->run.ctx, "N", "ids of a window (default 512)", 2, 1 << 20 },
    };
    const cli_option of_all[] = {
        CLI_CSV_OPTION(f->csv),
        { "--svg", CLI_STRING, &f->svg, "FILE", "also draw them" },
        { "--resume", CLI_FLAG, &f->resume, NULL, "rows that stand in the --csv file are not made again" },
    };
    cli_option *to = f->options;

    for (size_t i = 0; f->what->text && i < RG_LEN(of_text); i++)
        *to++ = of_text[i];
    for (const cli_option *o = f->what->options; o && o->name; o++) {
        RG_ASSERT(to - f->options + RG_LEN(of_all) + 1 < MOST_OPTIONS);
        *to++ = *o;
    }
    for (size_t i = 0; i < RG_LEN(of_all); i++)
        *to++ = of_all[i];
}

int study_main(const study *what, int argc, char **argv)
{
    static study_frame f;
    rg_error err = { 0 };

    for (int i = 1; what->other && i < argc; i++)
        if (!strcmp(argv[i], what->other_option))
            return study_main(what->other, argc, argv);
    f = (study_frame){ .what = what, .run = { .common = &f.args.common, .ctx = 512, .frame = &f } };
    gather_options(&f);
    int status = cli_parse(&f.args, &what->command, f.options, argc, argv);
    if (status >= 0)
        return status;
    if (!f.args.n_positional && !what->list)
        return cli_usage("%s: at least one MODEL is needed%s%s; see `ridge %s --help`", what->command.name,
                         what->where ? ": " : "", what->where ? what->where : "", what->command.name);
    rg_buf_init(&f.others, FILE_CAP);
    cli_catch_interrupt();
    bool ok = work(&f, &err);
    if (what->close)
        what->close();
    for (const cli_option *o = what->options; o && o->name; o++)
        if (o->kind == CLI_INTS)
            cli_ints_fini(o->to);
    rg_buf_fini(&f.others);
    rg_free(f.file);
    rg_free(f.row);
    return ok ? EXIT_DONE : cli_fail(&err);
}
