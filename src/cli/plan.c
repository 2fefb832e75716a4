/* plan.c -- `ridge plan`: what a model will cost on a machine, predicted, and beside it what this machine measures.
 *
 * Opens a config (no weights needed) and the machines, and prints the plan of src/plan. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/plan.h"
#include "model/named_recipe.h"

extern const cli_command cli_plan;

enum { MAX_LIST = 32 };

/* ---- what is planned for ----------------------------------------------------------------------------------------- */

static bool parse_size(const char *name, const char *text, double *out, rg_error *err)
{
    char *end;

    errno = 0;
    *out = strtod(text, &end);
    if (end == text || *end || errno || !isfinite(*out) || !(*out > 0) || *out > 1e18)
        return rg_fail(err, RG_E_USAGE, "plan: %s '%.40s' is not a size above 0 (as in 30e9)", name, text);
    return true;
}

/* A format by its name here, or by one that data sheets use; bytes: of a value, by the name. */
static bool parse_dtype(const char *name, rg_type *type, double *bytes, rg_error *err)
{
    static const struct {
        const char *name;
        rg_type type;
        double bytes;
    } others[] = { { "int8", RG_Q8_0, 1 },      { "fp8", RG_Q8_0, 1 },      { "int4", RG_Q4_0, 0.5 },
                   { "bfloat16", RG_BF16, 2 }, { "float16", RG_F16, 2 }, { "fp16", RG_F16, 2 },
                   { "float32", RG_F32, 4 },   { "fp32", RG_F32, 4 } };

    for (size_t i = 0; i < RG_LEN(others); i++) {
        if (!strcmp(name, others[i].name)) {
            *type = others[i].type;
            *bytes = others[i].bytes;
            return true;
        }
    }
    if (!rg_type_by_name(name, type) || !rg_format_of(*type)->encode)
        return rg_fail(err, RG_E_USAGE, "plan: type '%.40s' is not one of f32, f16, bf16, int8, int4, q4_k, ...", name);
    *bytes = (double)rg_format_of(*type)->block_bytes / rg_format_of(*type)->block_len;
    return true;
}

/* The type of the weights as the config says. */
static rg_type own_type(const rg_checkpoint *ckpt)
{
    const char *keys[] = { "dtype", "torch_dtype" }, *name;
    rg_type type = RG_BF16;
    rg_error err;
    double bytes;

    for (size_t i = 0; i < RG_LEN(keys); i++)
        if (rg_meta_string(ckpt, keys[i], &name, NULL) == 1 && parse_dtype(name, &type, &bytes, &err))
            return type;
    return RG_BF16;
}

/* The name of the K/V type that --kv-type, else --dtype where it is one, asks for; NULL: the model's own. */
static const char *kv_name(const plan_job *j, rg_type dtype)
{
    return j->kv_type ? j->kv_type : j->dtype ? rg_kv_name(dtype) : NULL;
}

static bool open_model(plan_job *j, rg_error *err)
{
    rg_model_options o = { .declare_only = true };
    rg_type dtype = RG_BF16;
    char path[1024];
    double bytes;

    if (!cli_find_model(j->args.n_positional ? j->args.positional[0] : NULL, path, sizeof path, err))
        return false;
    const char *name = strrchr(path, '/');
    snprintf(j->title, sizeof j->title, "%.200s", name && name[1] ? name + 1 : path);
    j->ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err);
    if (!j->ckpt || (j->dtype && !parse_dtype(j->dtype, &dtype, &bytes, err)))
        return false;
    o.declared_type = j->weight_type = j->dtype ? dtype : own_type(j->ckpt);
    o.kv_type = j->subject.method == RG_PLAN_COUNTED ? kv_name(j, dtype) : NULL;
    j->model = rg_model_open(j->ckpt, &o, err);
    if (j->model && j->dtype && rg_checkpoint_n_tensors(j->ckpt)) { /* not as the checkpoint has them */
        rg_model *as_asked = rg_model_declare(&j->model->config, &o, err);
        rg_model_close(j->model);
        j->model = as_asked;
    }
    if (!j->model)
        return false;
    return j->model->weights.n_parameters > 0 || rg_fail(err, RG_E_INPUT, "plan: %s has no parameters", path);
}

static bool open_subject(plan_job *j, rg_error *err)
{
    rg_plan_subject *s = &j->subject;
    rg_type type = RG_BF16;
    rg_named_recipe recipe;

    if (!rg_named_recipe_find(&recipe, j->args.common.recipe, err))
        return false;
    s->exact = recipe.exact;
    s->weight_bytes = s->kv_value_bytes = 2;
    if (!rg_plan_method_by_name(j->method ? j->method : j->params ? "general" : "counted", &s->method, err))
        return false;
    if (j->params) {
        if (j->args.n_positional || !j->kv_bytes || s->method != RG_PLAN_GENERAL)
            return rg_fail(err, RG_E_USAGE, "plan: --params replaces CONFIG, needs --kv-bytes beside it, and has only "
                                            "the method general");
        snprintf(j->title, sizeof j->title, "%.40s parameters, %.40s bytes of K/V a position", j->params, j->kv_bytes);
        return parse_size("--params", j->params, &s->params, err) &&
               parse_size("--kv-bytes", j->kv_bytes, &s->kv_bytes, err) &&
               (!j->dtype || parse_dtype(j->dtype, &type, &s->weight_bytes, err));
    }
    if (j->kv_bytes)
        return rg_fail(err, RG_E_USAGE, "plan: --kv-bytes goes with --params; a model says its own");
    if (!open_model(j, err))
        return false;
    s->model = j->model;
    s->weight_bytes = (double)j->model->weights.stored_bytes / (double)j->model->weights.n_parameters;
    if (!rg_checkpoint_n_tensors(j->ckpt)) /* norms are kept in f32, which the textbook does not know */
        s->weight_bytes = (double)rg_format_of(own_type(j->ckpt))->block_bytes;
    s->kv_value_bytes = rg_kv_value_bytes(j->model->kv_type);
    if (j->dtype && !parse_dtype(j->dtype, &type, &s->weight_bytes, err))
        return false;
    if (s->method == RG_PLAN_COUNTED || !kv_name(j, type))
        return true;
    if (rg_kv_type_by_name(kv_name(j, type), &type))
        return s->kv_value_bytes = rg_kv_value_bytes(type), true;
    return parse_dtype(kv_name(j, type), &type, &s->kv_value_bytes, err); /* the textbook's need not be one of ours */
}

/* How a diffusion model is assumed to fill in answers. */
static bool settle_filling(plan_job *j, rg_error *err)
{
    const int cache = j->cache ? rg_diffusion_cache_find(j->cache) : RG_CACHE_NONE;

    if ((j->answer || j->block || j->per_evaluation > 0 || j->cache) && !rg_plan_fills(j->model))
        return rg_fail(err, RG_E_USAGE,
                       "plan: --answer, --block, --per-evaluation and --diffusion-cache are for "
                       "diffusion models, which %s is not",
                       j->title);
    if (cache < 0)
        return rg_fail(err, RG_E_USAGE, "plan: diffusion-cache '%.20s' is not one of none, prefix, dual", j->cache);
    j->subject.filling = (rg_plan_filling){ .answer = j->answer,
                                            .block = j->block,
                                            .per_evaluation = (double)j->per_evaluation,
                                            .cache = (rg_diffusion_cache)cache };
    return true;
}

/* ---- machines ---------------------------------------------------------------------------------------------------- */

static bool open_machines(plan_job *j, rg_error *err)
{
    const char *at = j->machine_names ? j->machine_names : j->wanted ? "" : "here", *known;

    for (int i = 0; !j->machine_names && j->wanted && (known = rg_plan_machine_nth(i)); i++) {
        if (j->n_machines == PLAN_MACHINES || !rg_plan_machine_find(&j->machine[j->n_machines++], known, err))
            return rg_fail(err, RG_E_LIMIT, "plan: more than %d machines are known: name some", PLAN_MACHINES);
    }

    while (*at) {
        size_t n = strcspn(at, ",");
        char name[64];
        rg_plan_machine *m = &j->machine[j->n_machines];

        if (j->n_machines == PLAN_MACHINES)
            return rg_fail(err, RG_E_USAGE, "plan: --machine takes up to %d names", PLAN_MACHINES);
        snprintf(name, sizeof name, "%.*s", (int)(n < 60 ? n : 60), at);
        if (!(strcmp(name, "here") ? rg_plan_machine_find(m, name, err)
                                   : cli_machine_here(m, &j->profile, j->here, &j->args.common, j->remeasure, err)))
            return false;
        rg_plan_machine_chips(m, j->chips);
        m->chunk = j->chunk ? j->chunk : m->chunk;
        j->n_machines++;
        at += n + (at[n] == ',');
    }
    return j->n_machines > 0 || rg_fail(err, RG_E_USAGE, "plan: --machine names none");
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The rows of one machine. */
static bool predict(plan_job *j, const rg_plan_machine *m, rg_plan_row *rows, rg_error *err)
{
    for (size_t s = 0; s < j->seq.n; s++)
        for (size_t b = 0; b < j->batch.n; b++)
            if (!rg_plan_point(&j->subject, m, j->batch.item[b], j->seq.item[s], rows++, err))
                return false;
    return true;
}

static bool make_rows(plan_job *j, rg_error *err)
{
    size_t each = j->seq.n * j->batch.n, n = (size_t)j->n_machines * each;

    j->rows = rg_array(n, sizeof *j->rows);
    j->measured = rg_array(n, sizeof *j->measured);
    if (!j->rows || !j->measured)
        return rg_fail_memory(err, n * sizeof *j->rows);
    for (int m = 0; m < j->n_machines; m++)
        if (!predict(j, &j->machine[m], j->rows + (size_t)m * each, err))
            return false;
    j->n_rows = (int)n;
    return true;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* Prompts that are computed together, at the first row. */
static bool make_prefills(plan_job *j, rg_error *err)
{
    const rg_plan_row *r = &j->rows[0];

    if (!j->prompts.given)
        return true;
    if (rg_plan_fills(j->model))
        return rg_fail(err, RG_E_USAGE, "plan: --prefill-batch is for models that are drawn from id by id: prompts of "
                       "this one have no steps of their own");
    for (size_t i = 0; i < j->prompts.n; i++)
        if (!rg_plan_prefill_of(&j->subject, r->machine, j->prompts.item[i], r->seq, r->machine->chunk,
                                &j->prefills[j->n_prefills++], err))
            return false;
    return true;
}

static bool work(plan_job *j, rg_error *err)
{
    const cli_ints_rule batch = { "plan", "--batch", 1, INT32_MAX, MAX_LIST };
    const cli_ints_rule seq = { "plan", "--seq", 1, INT32_MAX, MAX_LIST };
    const cli_ints_rule prompts = { "plan", "--prefill-batch", 1, 1 << 16, PLAN_POINTS };
    const cli_ints_rule lengths = { "plan", "--lengths", 1, INT32_MAX, MAX_LIST };

    if (!cli_ints_settle(&j->batch, (const int32_t[]){ 1, 8, 64 }, 3, &batch, err) ||
        !cli_ints_settle(&j->seq, (const int32_t[]){ 1024 }, 1, &seq, err) ||
        !cli_ints_settle(&j->prompts, (const int32_t[]){ 1 }, 1, &prompts, err) ||
        !cli_ints_settle(&j->lengths, (const int32_t[]){ 64, 128, 256, 1024 }, 4, &lengths, err) ||
        !plan_check_goal(j, err) || !plan_check_train(j, err) || !open_subject(j, err) ||
        !settle_filling(j, err) || !open_machines(j, err))
        return false;
    if (j->wanted)
        return plan_goal(j, err);
    if (j->train)
        return plan_train(j, err);
    if ((j->measure && !plan_check_measure(j, err)) || !make_rows(j, err) || !plan_find_ranks(j, err))
        return false;
    const rg_plan_row *first = &j->rows[0];
    rg_what_if_options o = { .keep = (double)j->keep, .acceptance = (double)j->acceptance,
                             .draft_cost = (double)j->draft_cost, .lengths = j->lengths.item,
                             .n_lengths = (int)j->lengths.n, .window = j->window, .chips = 0,
                             .skipped = (double)j->skipped };
    if (!rg_plan_list_ops(&j->subject, first->machine, first->batch, first->seq, &j->ops, err) ||
        (j->measure && !plan_measure(j, err)) ||
        (j->what_if && !rg_what_if_try(&j->subject, first->machine, first->batch, first->seq, &o, &j->changes, err)))
        return false;
    if (rg_plan_fills(j->model) && j->subject.method == RG_PLAN_COUNTED) {
        j->n_fills = rg_plan_fill_table(&j->subject, first->machine, first->batch, first->seq, j->fills, err);
        if (j->n_fills < 0)
            return false;
    }
    return make_prefills(j, err) && plan_give(j, err);
}

static void fini(plan_job *j)
{
    speed_fini(&j->speed);
    tool_close(&j->tool);
    rg_timer_free(j->timer);
    rg_model_close(j->model);
    rg_checkpoint_close(j->ckpt);
    rg_free(j->rows);
    rg_free(j->measured);
    cli_ints_fini(&j->batch);
    cli_ints_fini(&j->seq);
    cli_ints_fini(&j->lengths);
    cli_ints_fini(&j->prompts);
}

static int run(int argc, char **argv)
{
    static plan_job j = {
        .chips = 1, .window = 1024, .top = 12, .rounds = RG_ROUNDS, .keep = 0.5f, .acceptance = 0.7f,
        .draft_cost = 0.1f, .skipped = 0.36f
    };
    const cli_option options[] = {
        { "--machine", CLI_STRING, &j.machine_names, "here,h100", "machines: here (measured once), or known ones" },
        { "--batch", CLI_INTS, &j.batch, "1,8,64", "sequences that decode together" },
        { "--seq", CLI_INTS, &j.seq, "1024", "positions of each" },
        { "--dtype", CLI_STRING, &j.dtype, "TYPE",
          "of weights, and of K/V where it is a K/V type (default: as they are)" },
        CLI_KV_TYPE_OPTION(j.kv_type, CLI_KV_AS_WEIGHTS),
        { "--method", CLI_STRING, &j.method, "NAME", "counted (default), closed-form, or general" },
        { "--params", CLI_STRING, &j.params, "N", "parameters, instead of CONFIG (method general)" },
        { "--kv-bytes", CLI_STRING, &j.kv_bytes, "N", "K/V bytes per position, with --params" },
        { "--chips", CLI_INT, &j.chips, "N", "so many of each machine, sharded without loss (default 1)", 1, 65536 },
        { "--ops", CLI_FLAG, &j.show_ops, NULL,
          "list the operations of the first row; with --measure, what each took" },
        { "--what-if", CLI_FLAG, &j.what_if, NULL, "compare ways to make the model cheaper at the first row" },
        { "--keep", CLI_FLOAT, &j.keep, "0.5", "what if: share of layers that pruning keeps", 0.01, 1 },
        { "--acceptance", CLI_FLOAT, &j.acceptance, "0.7", "what if: of a drafted token", 0, 0.999 },
        { "--draft-cost", CLI_FLOAT, &j.draft_cost, "0.1", "what if: of a draft step, of a step of the model", 0, 1 },
        { "--lengths", CLI_INTS, &j.lengths, "64,128,256,1024", "what if: lengths of answers in a batch" },
        { "--window", CLI_INT, &j.window, "1024", "what if: keys that a window layer sees", 1, 1 << 24 },
        { "--skipped", CLI_FLOAT, &j.skipped, "0.36",
          "what if: share of blocks of keys that --attention-sparsity leaves out (study sparsity --softmax)", 0, 1 },
        { "--prefill-batch", CLI_INTS, &j.prompts, "1,4,16", "also: prompts computed together, and their first token" },
        { "--chunk", CLI_INT, &j.chunk, "N", "rows of a step of prefill at most (default: known machines: all)", 1,
          1 << 24 },
        { "--train", CLI_FLAG, &j.train, NULL,
          "time and memory of training steps of --batch rows (16) of --seq ids (256)" },
        { "--precision", CLI_STRING, &j.precision, "NAME", "--train: of products: f32 (default) or bf16" },
        { "--tokens", CLI_STRING, &j.run_tokens, "N", "--train: of the whole run, as in 1e9 (default 20 a parameter)" },
        { "--for", CLI_STRING, &j.wanted, "WANTED",
          "backwards: latency=50ms,ttft=1s,words=1e9,memory=80e9,budget=16 to machines and formats that do it" },
        { "--prices", CLI_STRING, &j.prices, "h100=2.5", "--for: money an hour of a chip, for budget and order" },
        { "--top", CLI_INT, &j.top, "N", "--for: how many are told (default 12)", 1, 100000, &j.has_top },
        { "--answer", CLI_INT, &j.answer, "N", "diffusion: ids of an answer, within --seq", 1, 1 << 24 },
        { "--block", CLI_INT, &j.block, "N", "diffusion: positions of a block (default 32)", 1, 1 << 24 },
        { "--per-evaluation", CLI_FLOAT, &j.per_evaluation, "X",
          "diffusion: ids that an evaluation finishes (default 1)", 1, 1e6 },
        { "--diffusion-cache", CLI_STRING, &j.cache, "HOW", "diffusion: none, prefix or dual" },
        { "--measure", CLI_FLAG, &j.measure, NULL,
          "run the same points here, and print predicted, measured and error; a config alone with random weights" },
        { "--rounds", CLI_INT, &j.rounds, "N",
          "with --measure: all points in turn so often, the median counts (default 5)", 1, PLAN_ROUNDS },
        CLI_REMEASURE_OPTION(j.remeasure, ""),
        CLI_CSV_OPTION(j.csv),
        { "--svg", CLI_STRING, &j.svg, "FILE", "also draw the roofline, and latency and throughput against batch" },
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_plan, options, argc, argv);
    if (status >= 0)
        return status;
    cli_catch_interrupt();
    bool ok = work(&j, &err);
    fini(&j);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_plan = {
    .name = "plan", .arguments = "[CONFIG]", .summary = "what a model will cost: memory, latency, throughput, bounds",
    .run = run,
    .n_positional = 1,
    .notes = "CONFIG is a checkpoint, its folder or its config.json; no weights are needed.  docs/PLAN.md explains.",
};
