/* study_kv.c -- `ridge study kv`: what K/V in fewer bits loses, beside the bytes that it keeps.
 *
 * For each model and type of K/V: perplexity of a text, and the share of the values of associative recall
 * (plan/mqar.h) that the model predicts.  Results are written after every row, so that --resume goes on from them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/asking.h"
#include "cli/study.h"
#include "ops/kv.h"

extern const cli_command cli_study_kv;

enum { MAX_MODELS = 8, LINE = 1200 };

static const char *const types[] = { "f32", "bf16", "q8", "q4" };

enum { MAX_ROWS = MAX_MODELS * RG_LEN(types) };

typedef struct kv_row {
    char model[900];
    const char *type;
    double position_bytes, sequence_bytes; /* for each position, and for a sequence besides */
    double ppl, recall;                    /* NAN: not yet; negative: without a tokenizer, not asked */
} kv_row;

typedef struct kv_job {
    cli_args args;
    const char *file, *csv, *svg;
    int32_t ctx, examples;
    rg_mqar recall;
    bool resume;
    kv_row row[MAX_ROWS];
    int n, n_kept; /* rows; of them, known from the file */
} kv_job;

static void plan_rows(kv_job *j)
{
    for (int m = 0; m < j->args.n_positional; m++)
        for (size_t t = 0; t < RG_LEN(types); t++) {
            kv_row *r = &j->row[j->n++];

            *r = (kv_row){ .type = types[t], .ppl = NAN, .recall = -1 };
            snprintf(r->model, sizeof r->model, "%s", j->args.positional[m]);
        }
}

/* ---- the file of rows -------------------------------------------------------------------------------------------- */

static const char header[] = "model,kv_type,text,ctx,pairs,length,vocab,gap_limit,examples,seed,bytes_per_position,"
                             "bytes_per_sequence,ppl,recall\n";

static void put_start(const kv_job *j, const kv_row *r, char out[LINE])
{
    char text[64];

    snprintf(out, LINE, "%s,%s,%s,%d,%d,%d,%d,%d,%d,%llu,", r->model, r->type, study_name(j->file, text), (int)j->ctx,
             (int)j->recall.pairs, (int)j->recall.length, (int)j->recall.vocab_size, (int)j->recall.gap_limit,
             (int)j->examples, (unsigned long long)j->recall.seed);
}

static bool write_csv(const kv_job *j, rg_error *err)
{
    char line[LINE];
    rg_buf b;

    if (!j->csv)
        return true;
    rg_buf_init(&b, 1 << 20);
    rg_buf_str(&b, header);
    for (int i = 0; i < j->n; i++) {
        const kv_row *r = &j->row[i];

        if (!isfinite(r->ppl))
            continue;
        put_start(j, r, line);
        rg_buf_printf(&b, "%s%.0f,%.0f,", line, r->position_bytes, r->sequence_bytes);
        if (r->ppl >= 0)
            rg_buf_printf(&b, "%.17g", r->ppl);
        rg_buf_str(&b, ",");
        if (r->recall >= 0)
            rg_buf_printf(&b, "%.17g", r->recall);
        rg_buf_str(&b, "\n");
    }
    return cli_write_file(j->csv, &b, err);
}

/* Rows that an earlier run wrote, of the same settings. */
static bool read_csv(kv_job *j, rg_error *err)
{
    char start[LINE], *text;

    if (!study_read_rows(j->csv, j->resume, header, &text, err))
        return false;
    for (int i = 0; text && i < j->n; i++) {
        kv_row *r = &j->row[i];
        int end = 0;

        put_start(j, r, start);
        const char *rest = study_find_row(text, start);
        if (!rest || sscanf(rest, "%lf,%lf,%n", &r->position_bytes, &r->sequence_bytes, &end) != 2 || !end)
            continue;
        r->ppl = rest[end] == ',' ? -1 : strtod(rest + end, NULL);
        rest = strchr(rest + end, ',');
        r->recall = !rest || rest[1] == '\n' ? -1 : strtod(rest + 1, NULL);
        j->n_kept++;
    }
    rg_free(text);
    return true;
}

/* ---- the picture ------------------------------------------------------------------------------------------------- */

/* A line for each model: a point for each type, the fewest bytes first. */
static int gather_lines(const kv_job *j, bool recall, rg_curve *lines, char (*names)[80])
{
    const int each = (int)RG_LEN(types);
    int n = 0;

    for (int i = 0; i < j->n; i++) {
        const kv_row *r = &j->row[i / each * each + each - 1 - i % each];
        char name[64];

        if (isfinite(r->ppl)) /* what is not above 0 is not drawn */
            study_add_point(lines, names, &n, study_name(r->model, name), r->position_bytes,
                            recall ? r->recall : r->ppl);
    }
    return n;
}

static bool write_svg(const kv_job *j, rg_error *err)
{
    rg_curve lines[2][MAX_MODELS] = { 0 };
    char names[2][MAX_MODELS][80];
    rg_buf b;

    if (!j->svg)
        return true;
    rg_lines_page page = { .title = "K/V in fewer bits",
                           .note = "Right to left: f32, bf16, q8, q4.  Associative recall: the share that is right.",
                           .n_charts = 2,
                           .charts = { { "One text", "bytes per position", "perplexity", lines[0] },
                                       { "Recall", "bytes per position", "share", lines[1] } } };
    page.n_lines = gather_lines(j, false, lines[0], names[0]);
    gather_lines(j, true, lines[1], names[1]);
    rg_buf_init(&b, 1 << 20);
    rg_lines_write(&b, &page);
    return cli_write_file(j->svg, &b, err);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool find_bytes(kv_row *r, rg_error *err)
{
    const rg_model_options o = { .declare_only = true, .declared_type = RG_BF16, .kv_type = r->type };
    char path[1024];

    if (!cli_find_model(r->model, path, sizeof path, err))
        return false;
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err);
    rg_model *m = ckpt ? rg_model_open(ckpt, &o, err) : NULL;
    if (m) {
        r->position_bytes = (double)rg_state_bytes_per_position(&m->state);
        r->sequence_bytes = (double)rg_state_bytes_per_sequence(&m->state);
    }
    rg_model_close(m);
    rg_checkpoint_close(ckpt);
    return m;
}

static bool make_row(const kv_job *j, kv_row *r, rg_error *err)
{
    cli_common quiet = j->args.common;
    scoring s = { .kv_type = r->type };
    const tool_options o = { .common = &quiet, .model = r->model, .kv_type = r->type, .max_rows = 512 };
    double ppl;

    quiet.quiet = true;
    quiet.recipe = "exact";
    if (!find_bytes(r, err))
        return false;
    if (j->examples && !asking_recall(&o, &j->recall, j->examples, &r->recall, err))
        return false;
    if (!study_perplexity(r->model, &j->args.common, j->file, j->ctx, &s, &ppl, err))
        return false;
    if (!cli_interrupted()) /* else it is of less than all */
        r->ppl = ppl;
    return true;
}

static void print_table(const kv_job *j)
{
    printf("%-24s %-5s %10s %10s %12s %8s\n", "model", "K/V", "B/pos.", "B/seq.", "perplexity", "recall");
    for (int i = 0; i < j->n; i++) {
        const kv_row *r = &j->row[i];

        if (!isfinite(r->ppl))
            continue;
        printf("%-24s %-5s %10.0f %10.0f", r->model, r->type, r->position_bytes, r->sequence_bytes);
        if (r->ppl >= 0)
            printf(" %12.5f", r->ppl);
        else
            printf(" %12s", "");
        if (r->recall >= 0)
            printf(" %8.4f", r->recall);
        printf("\n");
    }
}

static bool print_rows(const kv_job *j, rg_error *err)
{
    if (!j->args.common.json)
        return print_table(j), true;
    cli_json *out = cli_json_new();

    cli_json_open(out, NULL, '{');
    cli_json_int(out, "kept", j->n_kept);
    cli_json_open(out, "rows", '[');
    for (int i = 0; i < j->n; i++) {
        const kv_row *r = &j->row[i];

        if (!isfinite(r->ppl))
            continue;
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "model", r->model);
        cli_json_text(out, "kv_type", r->type);
        cli_json_float(out, "state_bytes_per_position", r->position_bytes);
        cli_json_float(out, "state_bytes_per_sequence", r->sequence_bytes);
        if (r->ppl >= 0)
            cli_json_float(out, "ppl", r->ppl);
        else
            cli_json_null(out, "ppl");
        if (r->recall >= 0)
            cli_json_float(out, "recall", r->recall);
        else
            cli_json_null(out, "recall");
        cli_json_close(out);
    }
    cli_json_close(out);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "study: standard output cannot be written");
}

static bool work(kv_job *j, rg_error *err)
{
    if (j->resume && !j->csv)
        return rg_fail(err, RG_E_USAGE, "study: --resume goes on from the file of --csv");
    plan_rows(j);
    if (!read_csv(j, err))
        return false;
    for (int i = 0; i < j->n && !cli_interrupted(); i++) {
        char what[96], name[64];

        if (isfinite(j->row[i].ppl))
            continue;
        snprintf(what, sizeof what, "%s, %s", study_name(j->row[i].model, name), j->row[i].type);
        cli_progress(j->args.common.quiet ? j : NULL, what, (double)i / j->n);
        if (!make_row(j, &j->row[i], err) || !write_csv(j, err))
            return false;
    }
    cli_progress(j->args.common.quiet ? j : NULL, "study", 1);
    return write_svg(j, err) && print_rows(j, err);
}

static int run(int argc, char **argv)
{
    static kv_job j = { .ctx = 512, .examples = 32, .recall = { .seed = 1, .length = 256, .pairs = 8, .fill = true } };
    const cli_option options[] = {
        { "--perplexity", CLI_STRING, &j.file, "FILE", "the text to score (default: the shipped calibration text)" },
        { "--ctx", CLI_INT, &j.ctx, "N", "ids of a window (default 512)", 2, 1 << 20 },
        { "--pairs", CLI_INT, &j.recall.pairs, "N", "recall: keys with a value (default 8)", 1, 1 << 20 },
        { "--length", CLI_INT, &j.recall.length, "N", "recall: ids of a text (default 256)", 4, 1 << 24 },
        { "--vocab", CLI_INT, &j.recall.vocab_size, "N", "recall: ids are below it (default: the model's)", 4,
          1 << 24 },
        { "--gap-limit", CLI_INT, &j.recall.gap_limit, "N", "recall: queries stand within 2 N ids (default: anywhere)",
          0, 1 << 24 },
        { "--examples", CLI_INT, &j.examples, "N", "recall: texts (default 32; 0: nothing is asked)", 0, 1 << 20 },
        { "--seed", CLI_U64, &j.recall.seed, "N", "recall: of the texts (default 1)" },
        CLI_CSV_OPTION(j.csv),
        { "--svg", CLI_STRING, &j.svg, "FILE", "also draw perplexity and recall over bytes" },
        { "--resume", CLI_FLAG, &j.resume, NULL, "rows that stand in the --csv file are not made again" },
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_study_kv, options, argc, argv);
    if (status >= 0)
        return status;
    if (!j.args.n_positional)
        return cli_usage("study kv: at least one MODEL is needed; see `ridge study kv --help`");
    j.file = j.file ? j.file : study_shipped_text();
    cli_catch_interrupt();
    return work(&j, &err) ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_study_kv = {
    .name = "study kv",
    .arguments = "MODEL...",
    .summary = "perplexity and recall against the bytes of K/V",
    .run = run,
    .n_positional = MAX_MODELS,
    .recipe = "exact",
    .notes = "K/V as f32, bf16, q8 and q4.  Recall: how many values of synthetic pairs, asked for later in the\n"
             "text, a model predicts; one that was not trained to look up what stood before predicts few.",
};
