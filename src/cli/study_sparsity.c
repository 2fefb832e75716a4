/* study_sparsity.c -- `ridge study sparsity`: perplexity and speed against the share of activations that count as zero,
 * by TEAL's thresholds (Liu et al. 2024). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/calibration.h"
#include "cli/scoring.h"
#include "cli/speed.h"
#include "cli/study.h"
#include "plan/lines.h"
#include "shrink/sparsity.h"

extern const cli_command cli_study_sparsity;

enum { MAX_MODELS = RG_LINES_MOST / 2, MAX_ROWS = 64, LINE = 1200, STEPS = 32, CONTEXT = 16 };

typedef struct study_row {
    const char *model;
    int percent;
    bool greedy;
    double realized, ppl, tokens_s; /* ppl NAN: not yet */
} study_row;

typedef struct study_job {
    cli_args args;
    const char *file, *csv, *svg;
    int32_t ctx, samples;
    bool resume;
    cli_ints percents;
    study_row row[MAX_ROWS];
    int n, n_kept; /* rows; of them, known from the file */
} study_job;

static bool plan_rows(study_job *j, rg_error *err)
{
    for (int m = 0; m < j->args.n_positional; m++)
        for (int i = 0; i < (int)j->percents.n; i++) {
            const int32_t p = j->percents.item[i];
            if (p < 0 || p > 95)
                return rg_fail(err, RG_E_USAGE, "study sparsity: %d %% is not within 0 to 95", p);
            for (int greedy = 0; greedy < (p ? 2 : 1); greedy++) {
                if (j->n == MAX_ROWS)
                    return rg_fail(err, RG_E_LIMIT, "study sparsity: more than %d rows", MAX_ROWS);
                j->row[j->n++] =
                    (study_row){ .model = j->args.positional[m], .percent = p, .greedy = greedy, .ppl = NAN };
            }
        }
    return true;
}

/* ---- the file of rows -------------------------------------------------------------------------------------------- */

static const char header[] = "model,percent,allocation,ctx,realized,ppl,tokens_s\n";

static const char *allocation(const study_row *r)
{
    return r->greedy ? "greedy" : "uniform";
}

static void put_start(const study_job *j, const study_row *r, char out[LINE])
{
    snprintf(out, LINE, "%.900s,%d,%s,%d,", r->model, r->percent, allocation(r), (int)j->ctx);
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
            rg_buf_printf(&b, "%s%.6f,%.17g,%.3f\n", line, j->row[i].realized, j->row[i].ppl, j->row[i].tokens_s);
        }
    return cli_write_file(j->csv, &b, err);
}

/* Rows that an earlier run wrote, of the same settings. */
static bool read_csv(study_job *j, rg_error *err)
{
    char start[LINE];
    size_t n;

    if (!j->resume || !j->csv || rg_path_look(j->csv) == RG_PATH_NONE)
        return true;
    char *text = rg_file_slurp(j->csv, 1 << 20, &n, err);
    if (!text)
        return false;
    if (strncmp(text, header, strlen(header))) {
        rg_free(text);
        return rg_fail(err, RG_E_INPUT, "%s: is no file of this study", j->csv);
    }
    for (int i = 0; i < j->n; i++) {
        study_row *r = &j->row[i];
        put_start(j, r, start);
        for (char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
            if (!strncmp(line, start, strlen(start)) &&
                sscanf(line + strlen(start), "%lf,%lf,%lf", &r->realized, &r->ppl, &r->tokens_s) == 3)
                j->n_kept++;
    }
    rg_free(text);
    return true;
}

/* ---- the picture ------------------------------------------------------------------------------------------------- */

static bool write_svg(const study_job *j, rg_error *err)
{
    rg_curve ppl[2 * MAX_MODELS] = { 0 }, rate[2 * MAX_MODELS] = { 0 };
    char names[2][2 * MAX_MODELS][80];
    int n = 0;
    rg_buf b;

    if (!j->svg)
        return true;
    rg_lines_page page = { .title = "Perplexity and speed against sparsity", .n_charts = 2,
                           .note = "Activations below TEAL's thresholds count as zero in every row; steps of one row "
                                   "skip their columns.",
                           .charts = { { "One text", "zeros, %", "perplexity", ppl },
                                       { "Decoding one sequence", "zeros, %", "tokens/s", rate } } };
    for (int i = 0; i < j->n; i++) {
        const study_row *r = &j->row[i];
        char model[64], name[80];

        for (int greedy = r->greedy; isfinite(r->ppl) && greedy < (r->percent ? r->greedy + 1 : 2); greedy++) {
            snprintf(name, sizeof name, "%s, %s", study_name(r->model, model), greedy ? "greedy" : "uniform");
            study_add_point(ppl, names[0], &page.n_lines, name, 100 * r->realized, r->ppl);
            study_add_point(rate, names[1], &n, name, 100 * r->realized, r->tokens_s);
        }
    }
    rg_buf_init(&b, 1 << 20);
    rg_lines_write(&b, &page);
    return cli_write_file(j->svg, &b, err);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Thresholds of a row's model, in text; of 0 %: none. */
static bool calibrate(study_job *j, study_row *r, const char *path, const calibration *text, rg_buf *json,
                      rg_error *err)
{
    const cli_common *common = &j->args.common;
    rg_stage_options o = { .backend = rg_backend_find(common->isa, err),
                           .n_threads = common->threads ? common->threads : rg_cores(),
                           .ids = text->ids, .n_samples = text->n_samples, .ctx = text->ctx,
                           .thresholds = r->greedy };
    const rg_sparsity_options how = { .sparsity = r->percent / 100.0, .greedy = r->greedy,
                                      .n_samples = text->n_samples, .ctx = text->ctx, .stop = cli_interrupted };

    if (!r->percent)
        return true;
    rg_checkpoint *ckpt = o.backend ? rg_checkpoint_open(path, RG_CKPT_DEFAULT, err) : NULL;
    rg_stage *s = ckpt ? rg_stage_open(ckpt, &o, err) : NULL;
    bool ok = s && rg_sparsity_calibrate(s, &how, json, &r->realized, err);

    rg_stage_close(s);
    rg_checkpoint_close(ckpt);
    return ok;
}

static bool measure(study_job *j, study_row *r, tool *t, const calibration *text, rg_error *err)
{
    scoring s = { .tool = t, .text = text->rest, .n_text = text->n_rest, .file = text->path, .ctx = j->ctx,
                  .quiet = true };
    speed *v = rg_zalloc(sizeof *v);
    double seconds, step_s;
    bool ok = v ? scoring_run(&s, err) && speed_init(v, t, err) : rg_fail_memory(err, sizeof *v);

    ok = ok && speed_decode(v, 1, CONTEXT, STEPS, &seconds, &step_s, err);
    if (ok) {
        r->ppl = exp(s.nll / (double)s.n_scored);
        r->tokens_s = 1 / step_s;
    }
    if (v)
        speed_fini(v);
    rg_free(v);
    return ok;
}

static bool read_text(study_job *j, const char *path, calibration *text, rg_error *err)
{
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, err);
    rg_tokenizer *t = ckpt ? rg_tokenizer_open(ckpt, err) : NULL;
    bool ok = t && calibration_read(text, t, err);

    (void)j;
    if (ckpt && !t && err->code == RG_OK)
        rg_fail(err, RG_E_UNSUPPORTED, "%s: the checkpoint has no tokenizer", path);
    rg_tokenizer_close(t);
    rg_checkpoint_close(ckpt);
    return ok;
}

static bool make_row(study_job *j, study_row *r, rg_error *err)
{
    calibration text = { .file = NULL, .ctx = j->ctx, .score = j->file, .n_samples = j->samples };
    cli_common common = j->args.common;
    rg_sparsity *thresholds = NULL;
    char path[1024];
    tool t = { 0 };
    rg_buf json;

    common.quiet = true;
    rg_buf_init(&json, 1 << 24);
    bool ok = cli_find_model(r->model, path, sizeof path, err) && read_text(j, path, &text, err) &&
              calibrate(j, r, path, &text, &json, err);
    if (ok && r->percent)
        ok = (thresholds = rg_sparsity_parse("thresholds", json.data, json.n, err)) != NULL;
    const tool_options o = { .common = &common, .model = path, .kv_type = "f32", .thresholds = thresholds,
                             .max_rows = 512, .max_seqs = 1, .max_seq_len = j->ctx > 512 ? j->ctx : 512,
                             .all_logits = true };
    ok = ok && tool_open(&t, &o, err);
    ok = ok && tool_reaches(&t, (size_t)j->ctx, err) && measure(j, r, &t, &text, err);
    tool_close(&t);
    rg_sparsity_free(thresholds);
    rg_buf_fini(&json);
    calibration_fini(&text);
    return ok;
}

static bool print_rows(const study_job *j, rg_error *err)
{
    if (!j->args.common.json) {
        printf("%-24s %-10s %7s %9s %12s %10s\n", "model", "allocation", "target", "zeros", "perplexity",
               "tokens/s");
        for (int i = 0; i < j->n && !j->args.common.quiet; i++)
            if (isfinite(j->row[i].ppl))
                printf("%-24s %-10s %5d %% %7.1f %% %12.4f %10.1f\n", j->row[i].model, allocation(&j->row[i]),
                       j->row[i].percent, 100 * j->row[i].realized, j->row[i].ppl, j->row[i].tokens_s);
        return true;
    }
    cli_json *out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_json_int(out, "kept", j->n_kept);
    cli_json_open(out, "rows", '[');
    for (int i = 0; i < j->n; i++) {
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "model", j->row[i].model);
        cli_json_int(out, "percent", j->row[i].percent);
        cli_json_text(out, "allocation", allocation(&j->row[i]));
        cli_json_float(out, "realized", j->row[i].realized);
        cli_json_float(out, "ppl", j->row[i].ppl);
        cli_json_float(out, "tokens_s", j->row[i].tokens_s);
        cli_json_close(out);
    }
    cli_json_close(out);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "study: standard output cannot be written");
}

static bool work(study_job *j, rg_error *err)
{
    if (!plan_rows(j, err) || !read_csv(j, err))
        return false;
    for (int i = 0; i < j->n && !cli_interrupted(); i++) {
        char what[64];
        if (isfinite(j->row[i].ppl))
            continue;
        snprintf(what, sizeof what, "%d %%, %s", j->row[i].percent, allocation(&j->row[i]));
        cli_progress(j->args.common.quiet ? j : NULL, what, (double)i / j->n);
        if (!make_row(j, &j->row[i], err) || !write_csv(j, err))
            return false;
    }
    cli_progress(j->args.common.quiet ? j : NULL, "study", 1);
    return write_svg(j, err) && print_rows(j, err);
}

static int run(int argc, char **argv)
{
    static int32_t percents[] = { 0, 25, 40, 50, 65 };
    static study_job j = { .ctx = 512, .samples = 16 };
    const cli_option options[] = {
        { "--percent", CLI_INTS, &j.percents, "0,25,...", "shares of activations (default 0,25,40,50,65)" },
        { "--perplexity", CLI_STRING, &j.file, "FILE",
          "the text to score (default: the end of the calibration text)" },
        { "--ctx", CLI_INT, &j.ctx, "N", "ids of a window (default 512)", 2, 1 << 20 },
        { "--samples", CLI_INT, &j.samples, "N", "windows of calibration text (default 16)", 1, 1 << 20 },
        CLI_CSV_OPTION(j.csv),
        { "--svg", CLI_STRING, &j.svg, "FILE", "also draw them" },
        { "--resume", CLI_FLAG, &j.resume, NULL, "rows that stand in the --csv file are not made again" },
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_study_sparsity, options, argc, argv);
    if (status >= 0)
        return status;
    if (!j.args.n_positional)
        return cli_usage("study sparsity: at least one MODEL is needed; see `ridge study sparsity --help`");
    const bool given = j.percents.n > 0;
    if (!given)
        j.percents = (cli_ints){ .item = percents, .n = RG_LEN(percents) };
    cli_catch_interrupt();
    bool ok = work(&j, &err);
    if (given)
        cli_ints_fini(&j.percents);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_study_sparsity = {
    .name = "study sparsity",
    .arguments = "MODEL...",
    .summary = "perplexity and speed against the share of zeros among activations",
    .run = run,
    .n_positional = MAX_MODELS,
    .recipe = "exact",
    .notes = "Thresholds are TEAL's, calibrated on the shipped text: the same share for every matrix of the layers,\n"
             "and shares allotted greedily within each layer.",
};
