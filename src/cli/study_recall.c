/* study_recall.c -- `ridge study recall`: what a model remembers, beside what remembering costs.
 *
 * For each model, context and batch: bytes of state, and the time of a decode step after a synthetic context.  A config
 * without weights gets random ones.  What does not fit into memory, and what rows of a diffusion model that see the
 * whole text would take, is counted and marked.  Trained checkpoints are also asked: the share of the values of
 * multi-query associative recall that they predict (plan/mqar.h).  Results are written after every row, so that
 * --resume goes on from them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/asking.h"
#include "cli/profile.h"
#include "cli/speed.h"
#include "cli/study.h"
#include "measure/cost.h"
#include "plan/lines.h"
#include "plan/mqar.h"
#include "plan/plan.h"

extern const cli_command cli_study_recall;

enum { MOST_ROWS = RG_LINES_MOST * RG_LINES_POINTS * 4, MOST_LIST = RG_LINES_POINTS, FILE_CAP = 1 << 22 };

typedef struct row {
    char model[64], architecture[48];
    double parameters, position_bytes, sequence_bytes; /* of state: for each position, and for a sequence besides */
    int context, batch;
    double state_bytes; /* of one sequence of that context */
    double step_s;
    bool measured;      /* else counted */
    double accuracy;    /* of recall; negative: not asked */
} row;

typedef struct job {
    cli_args args;
    cli_ints context, batch;
    int32_t decode, examples;
    rg_mqar recall;
    const char *type_name, *csv, *svg;
    size_t memory;
    bool resume, remeasure;
    rg_type type;
    rg_profile profile;
    rg_plan_machine here;
    row *rows; /* [MOST_ROWS] */
    int n_rows;
    const char *path; /* of the model at hand, */
    rg_checkpoint *ckpt;
    rg_model *model;  /*   declared only */
    bool trained;     /*   which has weights */
    double accuracy;
} job;

/* ---- the table of results ---------------------------------------------------------------------------------------- */

static const char csv_head[] =
    "model,architecture,parameters,state_bytes_per_position,state_bytes_per_sequence,context,"
    "batch,state_bytes,step_s,tokens_s,how,accuracy\n";

static double tokens_s(const row *r)
{
    return r->step_s > 0 ? r->batch / r->step_s : 0;
}

static bool write_csv(const job *j, rg_error *err)
{
    rg_buf b;

    if (!j->csv)
        return true;
    rg_buf_init(&b, FILE_CAP);
    rg_buf_str(&b, csv_head);
    for (int i = 0; i < j->n_rows; i++) {
        const row *r = &j->rows[i];
        rg_buf_printf(&b, "%s,%s,%.0f,%.0f,%.0f,%d,%d,%.0f,%.6g,%.6g,%s,", r->model, r->architecture, r->parameters,
                      r->position_bytes, r->sequence_bytes, r->context, r->batch, r->state_bytes, r->step_s,
                      tokens_s(r), r->measured ? "measured" : "counted");
        if (r->accuracy >= 0)
            rg_buf_printf(&b, "%.4f", r->accuracy);
        rg_buf_str(&b, "\n");
    }
    return cli_write_file(j->csv, &b, err);
}

/* One line of the file that write_csv makes. */
static bool parse_row(const char *line, row *r)
{
    char how[16];
    double ignored;
    int n = 0;

    *r = (row){ .accuracy = -1 };
    if (sscanf(line, "%63[^,],%47[^,],%lf,%lf,%lf,%d,%d,%lf,%lf,%lf,%15[a-z],%n", r->model, r->architecture,
               &r->parameters, &r->position_bytes, &r->sequence_bytes, &r->context, &r->batch, &r->state_bytes,
               &r->step_s, &ignored, how, &n) != 11 || !n)
        return false;
    r->measured = !strcmp(how, "measured");
    if (line[n])
        r->accuracy = strtod(line + n, NULL);
    return true;
}

static bool read_csv(job *j, rg_error *err)
{
    size_t n;
    char *text = cli_text(NULL, j->csv, &n, err);
    bool ok = text;

    if (ok && strncmp(text, csv_head, strlen(csv_head)))
        ok = rg_fail(err, RG_E_INPUT, "study: %s is not what `study recall --csv` writes", j->csv);
    for (char *line = ok ? text + strlen(csv_head) : NULL; ok && line && *line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = 0;
        ok = j->n_rows < MOST_ROWS && parse_row(line, &j->rows[j->n_rows]);
        if (!ok)
            rg_fail(err, RG_E_INPUT, "study: %s: '%.60s' is no row of this study", j->csv, line);
        j->n_rows += ok;
        line = end ? end + 1 : NULL;
    }
    rg_free(text);
    return ok;
}

static const row *find_row(const job *j, const char *model, int context, int batch)
{
    for (int i = 0; i < j->n_rows; i++)
        if (!strcmp(j->rows[i].model, model) && j->rows[i].context == context && j->rows[i].batch == batch)
            return &j->rows[i];
    return NULL;
}

static void print_row(const job *j, const row *r)
{
    if (j->args.common.json)
        return;
    printf("%-18s %7.1f M %9.0f %11.0f %8d %6d %10.3f MB %10.3f ms %10.1f  %-8s", r->model, r->parameters / 1e6,
           r->position_bytes, r->sequence_bytes, r->context, r->batch, r->state_bytes / 1e6, 1e3 * r->step_s,
           tokens_s(r), r->measured ? "measured" : "counted");
    printf(r->accuracy >= 0 ? " %.3f\n" : "\n", r->accuracy);
    fflush(stdout);
}

static bool print_json(const job *j)
{
    cli_json *out = cli_json_new();

    cli_json_open(out, NULL, '{');
    cli_json_open(out, "rows", '[');
    for (int i = 0; i < j->n_rows; i++) {
        const row *r = &j->rows[i];
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "model", r->model);
        cli_json_text(out, "architecture", r->architecture);
        cli_json_float(out, "parameters", r->parameters);
        cli_json_float(out, "state_bytes_per_position", r->position_bytes);
        cli_json_float(out, "state_bytes_per_sequence", r->sequence_bytes);
        cli_json_int(out, "context", r->context);
        cli_json_int(out, "batch", r->batch);
        cli_json_float(out, "state_bytes", r->state_bytes);
        cli_json_float(out, "step_ms", 1e3 * r->step_s);
        cli_json_float(out, "tok_s", tokens_s(r));
        cli_json_bool(out, "measured", r->measured);
        if (r->accuracy >= 0)
            cli_json_float(out, "accuracy", r->accuracy);
        else
            cli_json_null(out, "accuracy");
        cli_json_close(out);
    }
    cli_json_close(out);
    cli_json_close(out);
    return cli_json_print(out);
}

/* ---- the picture ------------------------------------------------------------------------------------------------- */

enum { STEP_MS, TOKENS_S, STATE_BYTES };

/* What a chart shows of every model: a point for each context, at one batch. */
static int gather_lines(const job *j, int what, int batch, rg_curve *lines)
{
    int n = 0;

    for (int i = 0; i < j->n_rows; i++) {
        const row *r = &j->rows[i];
        int k = 0;

        if (r->batch != batch)
            continue;
        while (k < n && strcmp(lines[k].name, r->model))
            k++;
        if (k == RG_LINES_MOST || (k < n && lines[k].n == RG_LINES_POINTS))
            continue;
        if (k == n)
            lines[n++] = (rg_curve){ .name = r->model };
        lines[k].point[lines[k].n++] =
            (rg_lines_point){ .x = r->context, .solid = r->measured || what == STATE_BYTES,
                              .y = what == STEP_MS    ? 1e3 * r->step_s
                                   : what == TOKENS_S ? tokens_s(r)
                                                      : r->state_bytes };
    }
    return n;
}

static bool write_svg(const job *j, rg_error *err)
{
    rg_curve *lines = rg_array(3 * RG_LINES_MOST, sizeof *lines);
    int first = j->batch.item[0], last = j->batch.item[j->batch.n - 1];
    char one[80], many[80];
    rg_buf b;

    if (!lines)
        return rg_fail_memory(err, 3 * RG_LINES_MOST * sizeof *lines);
    snprintf(one, sizeof one, "Time of a token, batch %d", first);
    snprintf(many, sizeof many, "Throughput, batch %d", last);
    rg_lines_page page = { .title = "What remembering costs", .n_charts = 3,
                           .note = "Synthetic context.  Hollow: counted, since it does not fit or is not decoded row "
                                   "by row.",
                           .charts = { { one, "positions before", "ms per token", lines },
                                       { many, "positions before", "tokens per second", lines + RG_LINES_MOST },
                                       { "State of a sequence", "positions", "bytes", lines + 2 * RG_LINES_MOST } } };
    page.n_lines = gather_lines(j, STEP_MS, first, lines);
    gather_lines(j, TOKENS_S, last, lines + RG_LINES_MOST);
    gather_lines(j, STATE_BYTES, first, lines + 2 * RG_LINES_MOST);
    rg_buf_init(&b, FILE_CAP);
    rg_lines_write(&b, &page);
    rg_free(lines);
    return cli_write_file(j->svg, &b, err);
}

/* ---- a model ----------------------------------------------------------------------------------------------------- */

static bool open_model(job *j, rg_error *err)
{
    char path[1024];

    if (!cli_find_model(j->path, path, sizeof path, err))
        return false;
    j->ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err);
    if (!j->ckpt)
        return false;
    j->trained = rg_checkpoint_n_tensors(j->ckpt) > 0;
    j->accuracy = -1;
    j->model = rg_model_open(j->ckpt, &(rg_model_options){ .declare_only = true, .declared_type = j->type }, err);
    if (j->model && j->model->config.arch->is_encoder)
        return rg_fail(err, RG_E_UNSUPPORTED, "study: %s is an encoder, which writes no text", j->path);
    return j->model;
}

static void close_model(job *j)
{
    rg_model_close(j->model);
    rg_checkpoint_close(j->ckpt);
    j->model = NULL;
    j->ckpt = NULL;
}

static tool_options options_of(const job *j)
{
    return (tool_options){ .common = &j->args.common, .model = j->path, .random = !j->trained, .max_rows = SPEED_ROWS,
                           .declared_type = j->type };
}

/* ---- recall ------------------------------------------------------------------------------------------------------ */

/* The share of the values that the model at hand predicts. */
static bool ask(job *j, rg_error *err)
{
    const tool_options o = options_of(j);

    return asking_recall(&o, &j->recall, j->examples, &j->accuracy, err);
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */

static bool is_row_by_row(const job *j)
{
    return j->model->config.sees == RG_CAUSAL;
}

/* Seconds of a step, by counting. */
static bool count_step(const job *j, row *r, rg_error *err)
{
    const rg_config *c = &j->model->config;
    rg_step_shape shape = { .n_seqs = r->batch, .n_rows = 1, .start = r->context, .exact = false };
    rg_cost cost;

    if (c->sees == RG_SEES_ALL) { /* every evaluation computes the whole text, and makes a token at least */
        shape = (rg_step_shape){ .n_seqs = 1, .n_rows = r->context + 1 };
        rg_cost_prompt(j->model, &j->here.m, &shape, r->context + 1, &cost);
        r->step_s = cost.seconds * r->batch;
        return true;
    }
    if (c->sees > RG_CAUSAL) /* and here a block of it */
        shape.n_rows = c->sees;
    if (!rg_cost_shape(j->model, &j->here.m, &shape, &cost, NULL, NULL, err))
        return false;
    r->step_s = cost.seconds;
    return true;
}

static bool measure_step(const job *j, row *r, rg_error *err)
{
    tool t = { 0 };
    speed s = { 0 };
    tool_options o = options_of(j);
    double all;

    o.max_seqs = r->batch;
    o.max_seq_len = r->context + j->decode + 2;
    bool ok = tool_open(&t, &o, err) && speed_init(&s, &t, err) &&
              speed_decode(&s, r->batch, r->context, j->decode, &all, &r->step_s, err);

    r->measured = ok;
    speed_fini(&s);
    tool_close(&t);
    return ok;
}

static bool fits(const job *j, const row *r)
{
    double room = j->memory ? (double)j->memory : 0.8 * (double)rg_memory_free();

    return (double)j->model->weights.stored_bytes + 1.3 * r->state_bytes * r->batch + 256e6 < room &&
           r->context + j->decode + 2 <= j->model->config.max_seq_len;
}

static bool study_point(job *j, const char *name, int context, int batch, rg_error *err)
{
    const rg_state_spec *spec = &j->model->state;
    double kv, recurrent;

    if (find_row(j, name, context, batch))
        return true;
    if (j->n_rows == MOST_ROWS)
        return rg_fail(err, RG_E_LIMIT, "study: more than %d rows", MOST_ROWS);
    rg_plan_state_bytes(j->model, context, &kv, &recurrent);
    row r = { .parameters = (double)j->model->weights.n_parameters, .context = context, .batch = batch,
              .position_bytes = (double)rg_state_bytes_per_position(spec), .state_bytes = kv + recurrent,
              .sequence_bytes = (double)rg_state_bytes_per_sequence(spec), .accuracy = j->accuracy };
    snprintf(r.model, sizeof r.model, "%s", name);
    snprintf(r.architecture, sizeof r.architecture, "%s", rg_config_name(&j->model->config));
    if (!(is_row_by_row(j) && fits(j, &r) ? measure_step(j, &r, err) : count_step(j, &r, err)))
        return false;
    j->rows[j->n_rows++] = r;
    print_row(j, &r);
    return write_csv(j, err);
}

static bool study_model(job *j, rg_error *err)
{
    char name[64];
    bool ok = open_model(j, err);

    study_name(j->path, name);
    if (ok && j->trained && is_row_by_row(j) && !find_row(j, name, j->context.item[0], j->batch.item[0]))
        ok = ask(j, err);
    for (size_t c = 0; ok && c < j->context.n; c++)
        for (size_t b = 0; ok && b < j->batch.n && !cli_interrupted(); b++)
            ok = study_point(j, name, j->context.item[c], j->batch.item[b], err);
    close_model(j);
    return ok;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* This machine, measured once. */
static bool know_machine(job *j, rg_error *err)
{
    const rg_backend *backend = rg_backend_find(j->args.common.isa, err);
    int n = j->args.common.threads ? j->args.common.threads : rg_cores();

    if (!backend || !cli_profile(&j->profile, &j->args.common, backend, n, j->remeasure, err))
        return false;
    j->here = (rg_plan_machine){ .name = "here", .title = "this machine", .chips = 1, .chunk = SPEED_ROWS,
                                 .m = { j->profile.roofs, &j->profile.rates } };
    return true;
}

static bool work(job *j, rg_error *err)
{
    if (!j->args.n_positional)
        return rg_fail(err, RG_E_USAGE, "study: recall needs models or configs: bench/shapes/recall has some");
    const cli_ints_rule context = { "study recall", "--context", 1, 1 << 24, MOST_LIST };
    const cli_ints_rule batch = { "study recall", "--batch", 1, SPEED_ROWS, MOST_LIST };

    if (!cli_ints_settle(&j->context, (const int32_t[]){ 1024, 8192, 32768 }, 3, &context, err) ||
        !cli_ints_settle(&j->batch, (const int32_t[]){ 1, 32 }, 2, &batch, err))
        return false;
    if (!rg_type_by_name(j->type_name, &j->type) || !rg_format_of(j->type)->encode)
        return rg_fail(err, RG_E_USAGE, "study: type '%.40s' is not one of f32, f16, bf16, q8_0, q4_0, ...",
                       j->type_name);
    if (j->resume && !j->csv)
        return rg_fail(err, RG_E_USAGE, "study: --resume goes on from the file of --csv");
    j->rows = rg_array(MOST_ROWS, sizeof *j->rows);
    if (!j->rows)
        return rg_fail_memory(err, MOST_ROWS * sizeof *j->rows);
    if ((j->resume && rg_path_look(j->csv) != RG_PATH_NONE && !read_csv(j, err)) || !know_machine(j, err))
        return false;
    if (!j->args.common.json)
        printf("%-18s %9s %9s %11s %8s %6s %13s %13s %10s  %-8s recall\n", "model", "weights", "B/pos.", "B/seq.",
               "context", "batch", "state", "step", "tokens/s", "");
    for (int i = 0; i < j->args.n_positional && !cli_interrupted(); i++) {
        j->path = j->args.positional[i];
        if (!study_model(j, err))
            return false;
    }
    if (j->svg && !write_svg(j, err))
        return false;
    return !j->args.common.json || print_json(j) || rg_fail(err, RG_E_IO, "study: standard output cannot be written");
}

static int run(int argc, char **argv)
{
    static job j = { .decode = 8, .examples = 64, .type_name = "bf16",
                     .recall = { .seed = 1, .length = 128, .pairs = 8, .fill = true } };
    const cli_option options[] = {
        { "--context", CLI_INTS, &j.context, "1024,8192,32768", "positions before the step" },
        { "--batch", CLI_INTS, &j.batch, "1,32", "sequences that decode together" },
        { "--decode", CLI_INT, &j.decode, "N", "steps that are timed, the median counts (default 8)", 1, 4096 },
        { "--type", CLI_STRING, &j.type_name, "TYPE", "of random weights (default bf16)" },
        { "--memory", CLI_BYTES, &j.memory, "BYTES", "what needs more is counted (default: most of what is free)" },
        { "--pairs", CLI_INT, &j.recall.pairs, "N", "recall: keys with a value (default 8)", 1, 1 << 20 },
        { "--length", CLI_INT, &j.recall.length, "N", "recall: ids of a text (default 128)", 4, 1 << 24 },
        { "--vocab", CLI_INT, &j.recall.vocab_size, "N", "recall: ids are below it (default: the model's)", 4,
          1 << 24 },
        { "--gap-limit", CLI_INT, &j.recall.gap_limit, "N", "recall: queries stand within 2 N ids (default: anywhere)",
          0, 1 << 24 },
        { "--examples", CLI_INT, &j.examples, "N", "recall: texts (default 64)", 1, 1 << 20 },
        { "--seed", CLI_U64, &j.recall.seed, "N", "recall: of the texts (default 1)" },
        { "--resume", CLI_FLAG, &j.resume, NULL, "keep the rows that the file of --csv has" },
        CLI_REMEASURE_OPTION(j.remeasure, ""),
        CLI_CSV_OPTION(j.csv),
        { "--svg", CLI_STRING, &j.svg, "FILE", "also draw time, throughput and state over context" },
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_study_recall, options, argc, argv);
    if (status >= 0)
        return status;
    cli_catch_interrupt();
    bool ok = work(&j, &err);
    rg_free(j.rows);
    cli_ints_fini(&j.context);
    cli_ints_fini(&j.batch);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_study_recall = {
    .name = "study recall", .arguments = "MODEL...", .run = run, .n_positional = RG_LINES_MOST,
    .summary = "state and speed over context, and associative recall of trained models",
    .notes = "MODEL is a checkpoint or a config.json, which gets random weights.",
};
