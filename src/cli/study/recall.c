/* recall.c -- `ridge study recall`: what a model remembers, beside what remembering costs.
 *
 * For each model, context and batch: bytes of state, and the time of a decode step after a synthetic context.  A config
 * without weights gets random ones.  What does not fit into memory, and what rows of a diffusion model that see the
 * whole text would take, is counted and marked.  Trained checkpoints are also asked: the share of the values of
 * multi-query associative recall that they predict (cli/study/mqar.h). */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "cli/study/recall_score.h"
#include "cli/profile.h"
#include "cli/speed.h"
#include "cli/study/study.h"
#include "measure/cost.h"
#include "plan/plan.h"

extern const study study_recall;

enum {
    MODEL, ARCHITECTURE, PARAMETERS, POSITION_BYTES, SEQUENCE_BYTES, CONTEXT, BATCH, STATE_BYTES, STEP_S, TOKENS_S, HOW,
    ACCURACY, N_COLUMNS
};

static const study_column columns[] = {
    [MODEL] = { "model", STUDY_TEXT, .key = true, .json = "model", .head = "model", .width = 18 },
    [ARCHITECTURE] = { "architecture", STUDY_TEXT, .json = "architecture" },
    [PARAMETERS] = { "parameters", STUDY_REAL, .format = "%.0f", .json = "parameters", .head = "weights", .width = 9,
                     .digits = 1, .scale = 1e-6, .unit = " M" },
    [POSITION_BYTES] = { "state_bytes_per_position", STUDY_REAL, .format = "%.0f", .json = "state_bytes_per_position",
                         .head = "B/pos.", .width = 9 },
    [SEQUENCE_BYTES] = { "state_bytes_per_sequence", STUDY_REAL, .format = "%.0f", .json = "state_bytes_per_sequence",
                         .head = "B/seq.", .width = 11 },
    [CONTEXT] = { "context", STUDY_INT, .key = true, .json = "context", .head = "context", .width = 8 },
    [BATCH] = { "batch", STUDY_INT, .key = true, .json = "batch", .head = "batch", .width = 6 },
    [STATE_BYTES] = { "state_bytes", STUDY_REAL, .format = "%.0f", .json = "state_bytes", .head = "state", .width = 13,
                      .digits = 3, .scale = 1e-6, .unit = " MB" }, /* of one sequence of that context */
    [STEP_S] = { "step_s", STUDY_REAL, .format = "%.6g", .json = "step_ms", .json_scale = 1e3, .head = "step",
                 .width = 13, .digits = 3, .scale = 1e3, .unit = " ms" },
    [TOKENS_S] = { "tokens_s", STUDY_REAL, .format = "%.6g", .json = "tok_s", .head = "tokens/s", .width = 10,
                   .digits = 1 },
    [HOW] = { "how", STUDY_BOOL, .no_yes = { "counted", "measured" }, .json = "measured", .head = "", .width = 8 },
    [ACCURACY] = { "accuracy", STUDY_REAL, .format = "%.4f", .json = "accuracy", .head = "recall", .width = 6,
                   .digits = 3 },
};

static char one[80], many[80]; /* titles of charts */

static const rg_lines_page page = {
    .title = "What remembering costs",
    .note = "Synthetic context.  Hollow: counted, since it does not fit or is not decoded row by row.",
    .n_charts = 3,
    .charts = { { one, "positions before", "ms per token" },
                { many, "positions before", "tokens per second" },
                { "State of a sequence", "positions", "bytes" } },
};

/* What the options give. */
static cli_ints contexts, batches;
static int32_t decode = 8;
static const char *type_name = "bf16";
static size_t memory;
static bool remeasure;
static recall_task ask = { .examples = 64, .text = { .seed = 1, .length = 128, .pairs = 8, .fill = true } };

static const cli_option options[] = {
    { "--context", CLI_INTS, &contexts, "1024,8192,32768", "positions before the step" },
    { "--batch", CLI_INTS, &batches, "1,32", "sequences that decode together" },
    { "--decode", CLI_INT, &decode, "N", "steps that are timed, the median counts (default 8)", 1, 4096 },
    { "--type", CLI_STRING, &type_name, "TYPE", "of random weights (default bf16)" },
    { "--memory", CLI_BYTES, &memory, "BYTES", "what needs more is counted (default: most of what is free)" },
    RECALL_OPTIONS(ask, "128", "64"),
    CLI_REMEASURE_OPTION(remeasure, ""),
    { NULL },
};

/* The model whose rows are being made. */
static struct open_model {
    const study_model *m; /* NULL: none yet */
    tool_options how;     /* to open it with its weights */
    rg_checkpoint *ckpt;
    rg_model *model;      /* declared only */
    double accuracy;
} at;

static rg_type type;
static rg_profile profile; /* of this machine, */
static rg_plan_machine here; /*   as plans have it; name NULL: not known yet */

static bool settle(const study_run *run, rg_error *err)
{
    const cli_ints_rule context = { "study recall", "--context", 1, 1 << 24, RG_LINES_POINTS };
    const cli_ints_rule batch = { "study recall", "--batch", 1, SPEED_ROWS, RG_LINES_POINTS };

    (void)run;
    if (!cli_ints_settle(&contexts, (const int32_t[]){ 1024, 8192, 32768 }, 3, &context, err) ||
        !cli_ints_settle(&batches, (const int32_t[]){ 1, 32 }, 2, &batch, err))
        return false;
    snprintf(one, sizeof one, "Time of a token, batch %d", batches.item[0]);
    snprintf(many, sizeof many, "Throughput, batch %d", batches.item[batches.n - 1]);
    return (rg_type_by_name(type_name, &type) && rg_format_of(type)->encode) ||
           rg_fail(err, RG_E_USAGE, "study: type '%.40s' is not one of f32, f16, bf16, q8_0, q4_0, ...", type_name);
}

static bool plan(const study_run *run, const study_model *m, rg_error *err)
{
    for (size_t c = 0; c < contexts.n; c++)
        for (size_t b = 0; b < batches.n; b++) {
            study_value *v = study_add_row(run, m, err);

            if (!v)
                return false;
            v[MODEL].text = m->name;
            v[CONTEXT].number = contexts.item[c];
            v[BATCH].number = batches.item[b];
        }
    return true;
}

/* ---- a model ----------------------------------------------------------------------------------------------------- */

static void close_model(void)
{
    rg_model_close(at.model);
    rg_checkpoint_close(at.ckpt);
    at = (struct open_model){ 0 };
}

/* Measure this machine, once. */
static bool know_machine(const cli_common *common, rg_error *err)
{
    const rg_backend *backend = rg_backend_find(common->isa, err);
    const int n = common->threads ? common->threads : rg_cores();

    if (here.name)
        return true;
    if (!backend || !cli_profile(&profile, common, backend, n, remeasure, err))
        return false;
    here = (rg_plan_machine){ .name = "here", .title = "this machine", .chips = 1, .chunk = SPEED_ROWS,
                              .m = { profile.roofs, &profile.rates } };
    return true;
}

static bool is_row_by_row(const rg_model *m)
{
    return m->config.sees == RG_CAUSAL;
}

/* Make m the model at hand, and ask it if it is trained. */
static bool open_model(const study_run *run, const study_model *m, rg_error *err)
{
    char path[1024];

    if (at.m == m)
        return true;
    close_model();
    if (!know_machine(run->common, err) || !cli_find_model(m->given, path, sizeof path, err))
        return false;
    at.ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err);
    at.model = at.ckpt ? rg_model_open(at.ckpt, &(rg_model_options){ .declare_only = true, .declared_type = type }, err)
                       : NULL;
    if (!at.model)
        return false;
    if (!rg_config_has_logits(&at.model->config))
        return rg_fail(err, RG_E_UNSUPPORTED, "study: %s is an encoder, which writes no text", m->given);
    at.how = (tool_options){ .common = run->common, .model = m->given, .max_rows = SPEED_ROWS, .declared_type = type,
                             .random = !rg_checkpoint_n_tensors(at.ckpt) };
    at.accuracy = NAN;
    if (!at.how.random && is_row_by_row(at.model) && !recall_score(&at.how, &ask, &at.accuracy, err))
        return false;
    at.m = m;
    return true;
}

/* ---- what a step takes ------------------------------------------------------------------------------------------- */

static bool count_step(int context, int batch, double *seconds, rg_error *err)
{
    const rg_config *c = &at.model->config;
    rg_step_shape shape = { .n_seqs = batch, .n_rows = 1, .start = context, .exact = false };
    rg_cost cost;

    if (c->sees == RG_SEES_ALL) { /* every evaluation computes the whole text, and makes a token at least */
        shape = (rg_step_shape){ .n_seqs = 1, .n_rows = context + 1 };
        rg_cost_prompt(at.model, &here.m, &shape, context + 1, &cost);
        *seconds = cost.seconds * batch;
        return true;
    }
    if (c->sees > RG_CAUSAL) /* and here a block of it */
        shape.n_rows = c->sees;
    if (!rg_cost_shape(at.model, &here.m, &shape, &cost, NULL, NULL, err))
        return false;
    *seconds = cost.seconds;
    return true;
}

static bool measure_step(int context, int batch, double *seconds, rg_error *err)
{
    tool_options o = at.how;
    tool t = { 0 };
    speed s = { 0 };
    double all;

    o.max_seqs = batch;
    o.max_seq_len = context + decode + 2;
    bool ok = tool_open(&t, &o, err) && speed_init(&s, &t, err) &&
              speed_decode(&s, batch, context, decode, &all, seconds, err);
    speed_fini(&s);
    tool_close(&t);
    return ok;
}

static bool fits(int context, double state_bytes)
{
    const double room = memory ? (double)memory : 0.8 * (double)rg_memory_free();

    return (double)at.model->weights.stored_bytes + 1.3 * state_bytes + 256e6 < room &&
           context + decode + 2 <= at.model->config.max_seq_len;
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    const int context = (int)v[CONTEXT].number, batch = (int)v[BATCH].number;
    double kv, recurrent;

    if (!open_model(run, m, err))
        return false;
    rg_plan_state_bytes(at.model, context, &kv, &recurrent);
    v[ARCHITECTURE].text = rg_config_name(&at.model->config);
    v[PARAMETERS].number = (double)at.model->weights.n_parameters;
    v[POSITION_BYTES].number = (double)rg_state_bytes_per_position(&at.model->state);
    v[SEQUENCE_BYTES].number = (double)rg_state_bytes_per_sequence(&at.model->state);
    v[STATE_BYTES].number = kv + recurrent;
    v[ACCURACY].number = at.accuracy;
    v[HOW].number = is_row_by_row(at.model) && fits(context, (kv + recurrent) * batch);
    if (!(v[HOW].number != 0 ? measure_step : count_step)(context, batch, &v[STEP_S].number, err))
        return false;
    v[TOKENS_S].number = v[STEP_S].number > 0 ? batch / v[STEP_S].number : 0;
    return true;
}

static void draw(study_picture *p, const study_model *m, const study_value *v)
{
    const double context = v[CONTEXT].number;
    const bool measured = v[HOW].number != 0;

    if ((int32_t)v[BATCH].number == batches.item[0]) {
        study_point(p, 0, m->name, NULL, (rg_lines_point){ context, 1e3 * v[STEP_S].number, measured });
        study_point(p, 2, m->name, NULL, (rg_lines_point){ context, v[STATE_BYTES].number, true });
    }
    if ((int32_t)v[BATCH].number == batches.item[batches.n - 1])
        study_point(p, 1, m->name, NULL, (rg_lines_point){ context, v[TOKENS_S].number, measured });
}

const study study_recall = {
    .command = { .name = "study recall", .arguments = "MODEL...", .n_positional = RG_LINES_MOST,
                 .summary = "state and speed over context, and associative recall of trained models",
                 .notes = "MODEL is a checkpoint or a config.json, which gets random weights." },
    .where = "bench/shapes/recall has some",
    STUDY_PARTS,
    .settle = settle,
    .close = close_model,
};
