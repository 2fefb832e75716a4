/* study_kbit.c -- `ridge study kbit`: perplexity against the bits of a model, over models and codes of 3 to 8 bits
 * (Dettmers and Zettlemoyer 2023). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/study.h"
#include "plan/lines.h"
#include "shrink/rtn.h"

extern const cli_command cli_study_kbit;

enum { MAX_MODELS = 5, MAX_ROWS = 128, LINE = 1200 };

typedef struct study_row {
    char model[900];
    const char *codes; /* "stored": as it is */
    int bits;
    double total_bits, ppl; /* ppl NAN: not yet */
} study_row;

typedef struct study_job {
    cli_args args;
    const char *file, *csv, *svg;
    int32_t ctx, group;
    bool resume;
    study_row row[MAX_ROWS];
    int n, n_kept; /* rows; of them, known from the file */
    rg_coding coding;
    study_row *current;
} study_job;

static const char *const kinds[] = { "int", "float", "quantile" };

static void plan_rows(study_job *j)
{
    for (int m = 0; m < j->args.n_positional; m++)
        for (int bits = 9; bits >= 3; bits--)
            for (size_t k = 0; k < (bits == 9 ? 1 : RG_LEN(kinds)); k++) {
                study_row *r = &j->row[j->n++];
                *r = (study_row){ .codes = bits == 9 ? "stored" : kinds[k], .bits = bits == 9 ? 16 : bits, .ppl = NAN };
                snprintf(r->model, sizeof r->model, "%s", j->args.positional[m]);
            }
}

/* ---- the file of rows -------------------------------------------------------------------------------------------- */

static const char header[] = "model,codes,bits,group,ctx,total_bits,ppl\n";

static void put_start(const study_job *j, const study_row *r, char out[LINE])
{
    snprintf(out, LINE, "%s,%s,%d,%d,%d,", r->model, r->codes, r->bits, (int)j->group, (int)j->ctx);
}

static bool write_csv(const study_job *j, rg_error *err)
{
    rg_buf b;
    char line[LINE];

    if (!j->csv)
        return true;
    rg_buf_init(&b, 1 << 20);
    rg_buf_str(&b, header);
    for (int i = 0; i < j->n; i++)
        if (isfinite(j->row[i].ppl)) {
            put_start(j, &j->row[i], line);
            rg_buf_printf(&b, "%s%.0f,%.17g\n", line, j->row[i].total_bits, j->row[i].ppl);
        }
    return cli_write_file(j->csv, &b, err);
}

/* Rows that an earlier run wrote, of the same settings. */
static bool read_csv(study_job *j, rg_error *err)
{
    char start[LINE], *text;

    if (!study_read_rows(j->csv, j->resume, header, &text, err))
        return false;
    for (int i = 0; text && i < j->n; i++) {
        study_row *r = &j->row[i];
        put_start(j, r, start);
        const char *rest = study_find_row(text, start);
        j->n_kept += rest && sscanf(rest, "%lf,%lf", &r->total_bits, &r->ppl) == 2;
    }
    rg_free(text);
    return true;
}

/* ---- the picture ------------------------------------------------------------------------------------------------- */

/* A line for each model and kind of codes, over the bits of the whole model; as they are stored is a point. */
static int gather_lines(const study_job *j, rg_curve *lines, char (*names)[80])
{
    int n = 0;

    for (int i = 0; i < j->n; i++) {
        const study_row *r = &j->row[i];
        char model[64], name[80];

        if (!isfinite(r->ppl))
            continue;
        snprintf(name, sizeof name, "%s, %s", study_name(r->model, model), r->codes);
        study_add_point(lines, names, &n, name, r->total_bits, r->ppl);
    }
    return n;
}

static bool write_svg(const study_job *j, rg_error *err)
{
    enum { MOST = MAX_MODELS * 4 };
    rg_curve lines[MOST] = { 0 };
    char names[MOST][80];
    rg_buf b;

    if (!j->svg)
        return true;
    rg_lines_page page = { .title = "Perplexity against bits", .n_charts = 1,
                           .note = "Matrices of layers rounded to nearest, 8 bits to 3; all weights are counted.",
                           .charts = { { "One text", "bits of the whole model", "perplexity", lines } } };
    page.n_lines = gather_lines(j, lines, names);
    rg_buf_init(&b, 1 << 20);
    rg_lines_write(&b, &page);
    return cli_write_file(j->svg, &b, err);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool change(void *arg, rg_model *m, rg_error *err)
{
    study_job *j = arg;

    if (!strcmp(j->current->codes, "stored")) {
        j->current->total_bits = rg_stored_bits(m);
        return true;
    }
    return rg_round_model(m, &j->coding, &j->current->total_bits, err);
}

static bool make_row(study_job *j, study_row *r, rg_error *err)
{
    scoring s = { .change = change, .change_arg = j };

    j->current = r;
    j->coding = (rg_coding){ .bits = r->bits, .group = j->group, .scale_type = RG_F16 };
    if (strcmp(r->codes, "stored") &&
        (!rg_code_kind_by_name(r->codes, &j->coding.kind) || !rg_coding_init(&j->coding, err)))
        return false;
    if (!study_perplexity(r->model, &j->args.common, j->file, j->ctx, &s, &r->ppl, err))
        return false;
    return r->ppl >= 0 || rg_fail(err, RG_E_UNSUPPORTED, "%s: the checkpoint has no tokenizer", r->model);
}

static bool print_rows(const study_job *j, rg_error *err)
{
    if (!j->args.common.json) {
        printf("%-24s %-9s %4s %14s %12s\n", "model", "codes", "bits", "bits in all", "perplexity");
        for (int i = 0; i < j->n && !j->args.common.quiet; i++)
            if (isfinite(j->row[i].ppl))
                printf("%-24s %-9s %4d %14.0f %12.4f\n", j->row[i].model, j->row[i].codes, j->row[i].bits,
                       j->row[i].total_bits, j->row[i].ppl);
        return true;
    }
    cli_json *out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_json_int(out, "kept", j->n_kept);
    cli_json_open(out, "rows", '[');
    for (int i = 0; i < j->n; i++) {
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "model", j->row[i].model);
        cli_json_text(out, "codes", j->row[i].codes);
        cli_json_int(out, "bits", j->row[i].bits);
        cli_json_float(out, "total_bits", j->row[i].total_bits);
        cli_json_float(out, "ppl", j->row[i].ppl);
        cli_json_close(out);
    }
    cli_json_close(out);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "study: standard output cannot be written");
}

static bool work(study_job *j, rg_error *err)
{
    plan_rows(j);
    if (!read_csv(j, err))
        return false;
    for (int i = 0; i < j->n && !cli_interrupted(); i++) {
        char what[64];
        if (isfinite(j->row[i].ppl))
            continue;
        snprintf(what, sizeof what, "%s of %d bits", j->row[i].codes, j->row[i].bits);
        cli_progress(j->args.common.quiet ? j : NULL, what, (double)i / j->n);
        if (!make_row(j, &j->row[i], err) || !write_csv(j, err))
            return false;
    }
    cli_progress(j->args.common.quiet ? j : NULL, "study", 1);
    return write_svg(j, err) && print_rows(j, err);
}

static int run(int argc, char **argv)
{
    static study_job j = { .ctx = 512, .group = 64 };
    const cli_option options[] = {
        { "--perplexity", CLI_STRING, &j.file, "FILE", "the text to score (default: the shipped calibration text)" },
        { "--ctx", CLI_INT, &j.ctx, "N", "ids of a window (default 512)", 2, 1 << 20 },
        { "--group", CLI_INT, &j.group, "N", "columns under a scale (default 64)", 1, 1 << 20 },
        CLI_CSV_OPTION(j.csv),
        { "--svg", CLI_STRING, &j.svg, "FILE", "also draw them" },
        { "--resume", CLI_FLAG, &j.resume, NULL, "rows that stand in the --csv file are not made again" },
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_study_kbit, options, argc, argv);
    if (status >= 0)
        return status;
    if (!j.args.n_positional)
        return cli_usage("study kbit: at least one MODEL is needed; see `ridge study kbit --help`");
    j.file = j.file ? j.file : study_shipped_text();
    cli_catch_interrupt();
    return work(&j, &err) ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_study_kbit = {
    .name = "study kbit",
    .arguments = "MODEL...",
    .summary = "perplexity against bits, over codes and models",
    .run = run,
    .n_positional = MAX_MODELS,
    .recipe = "exact",
    .notes =
        "Matrices of layers are rounded to nearest in memory: int (with zero points), float and quantile codes of\n"
        "8 to 3 bits; what stands outside the layers stays as it is stored, and is counted.",
};
