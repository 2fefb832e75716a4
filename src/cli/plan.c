/* plan.c -- `ridge plan`: what a model will cost on a machine, predicted, and beside it what this machine measures.
 *
 * Opens a config (no weights needed), the machines, and prints what src/plan makes of them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/quantile.h"
#include "base/mem.h"
#include "cli/plan.h"

extern const cli_command cli_plan;

enum { MAX_LIST = 32, MAX_STEPS = 64, MAX_RUNS = 400, MAX_ROUNDS = 1000, MAX_ROOFS = 3 };

/* Of a point, in a round: what is enough while it is quiet, what is enough at all, and what is waited. */
static const double MEASURE_S = 1, LONGEST_S = 2.5, PATIENCE_S = 2;

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

/* What a config says that its weights are. */
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
    o.declared_type = j->dtype ? dtype : own_type(j->ckpt);
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

    s->exact = !strcmp(j->args.common.recipe, "exact");
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

/* ---- machines ---------------------------------------------------------------------------------------------------- */

static double memory_here(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 ? (double)pages * (double)page : 0;
}

static int n_threads(const plan_job *j)
{
    return j->args.common.threads ? j->args.common.threads : rg_cores();
}

/* What operations take, once more: with what was seen before. */
static bool measure_rates(plan_job *j, rg_machine *m, rg_error *err)
{
    const rg_cpu *cpu = rg_cpu_find(j->args.common.isa, err);
    rg_rates_wanted wanted = rg_rates_for(j->model, j->subject.exact);

    wanted.passes = 3; /* a median, not a mean */
    if (j->what_if)
        wanted.linear[RG_Q8_0] = wanted.linear[RG_Q4_0] = true;
    return cpu && rg_rates_measure(m, cpu, n_threads(j), &wanted, &j->seen, err);
}

/* The roofs, and the rates if plans are counted: again while those find other roofs, as a host may leave both threads
 * in one core for so long that roofs seem to hold. */
static bool measure_machine(plan_job *j, rg_machine *m, rg_error *err)
{
    const rg_cpu *cpu = rg_cpu_find(j->args.common.isa, err);
    rg_pool *pool = cpu ? rg_pool_new(n_threads(j), err) : NULL;
    bool ok = pool != NULL;

    for (int i = 0; ok && i < MAX_ROOFS; i++) {
        rg_machine_measure(m, cpu, pool, n_threads(j), 0);
        if (j->subject.method != RG_PLAN_COUNTED)
            break;
        memset(&j->seen, 0, sizeof j->seen);
        ok = measure_rates(j, m, err);
        if (rg_machine_holds(&m->share))
            break;
    }
    rg_pool_free(pool);
    return ok && (!j->measure || (j->pulse = rg_pulse_open(m, cpu, n_threads(j), err)));
}

static bool measure_here(plan_job *j, rg_plan_machine *out, rg_error *err)
{
    const rg_cpu *cpu = rg_cpu_find(j->args.common.isa, err);
    int n = n_threads(j);
    void *quiet = j->args.common.quiet || j->args.common.json ? j : NULL;

    if (!cpu)
        return false;
    snprintf(j->here, sizeof j->here, "this machine (%s, %d thread%s)", cpu->isa, n, n > 1 ? "s" : "");
    *out = (rg_plan_machine){ .name = "here", .title = j->here, .memory_bytes = memory_here(), .chips = 1,
                              .chunk = SPEED_ROWS };
    cli_progress(quiet, "measuring this machine", 0);
    bool ok = measure_machine(j, &out->m, err);
    cli_progress(quiet, "measuring this machine", 1);
    return ok;
}

static bool open_machines(plan_job *j, rg_error *err)
{
    const char *at = j->machine_names ? j->machine_names : "here";

    while (*at) {
        size_t n = strcspn(at, ",");
        char name[64];
        rg_plan_machine *m = &j->machine[j->n_machines];

        if (j->n_machines == PLAN_MACHINES)
            return rg_fail(err, RG_E_USAGE, "plan: --machine takes up to %d names", PLAN_MACHINES);
        snprintf(name, sizeof name, "%.*s", (int)(n < 60 ? n : 60), at);
        if (!(strcmp(name, "here") ? rg_plan_machine_find(m, name, err) : measure_here(j, m, err)))
            return false;
        rg_plan_machine_chips(m, j->chips);
        j->n_machines++;
        at += n + (at[n] == ',');
    }
    return j->n_machines > 0 || rg_fail(err, RG_E_USAGE, "plan: --machine names none");
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool defaults(cli_ints *v, const int32_t *values, size_t n, const char *name, rg_error *err)
{
    if (!v->given) {
        v->item = rg_array(n, sizeof *v->item);
        if (!v->item)
            return rg_fail_memory(err, n * sizeof *v->item);
        memcpy(v->item, values, n * sizeof *values);
        v->n = n;
    }
    if (v->n < 1 || v->n > MAX_LIST)
        return rg_fail(err, RG_E_USAGE, "plan: %s takes 1 to %d numbers", name, MAX_LIST);
    for (size_t i = 0; i < v->n; i++)
        if (v->item[i] < 1)
            return rg_fail(err, RG_E_USAGE, "plan: %s %d: must be 1 or more", name, v->item[i]);
    return true;
}

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
    j->tries = rg_array(n, 2 * (size_t)j->rounds * sizeof *j->tries); /* fits: rounds is an int */
    if (!j->rows || !j->measured || !j->tries)
        return rg_fail_memory(err, n * sizeof *j->rows);
    memset(j->measured, 0, n * sizeof *j->measured);
    memset(j->tries, 0, n * 2 * (size_t)j->rounds * sizeof *j->tries);
    for (int m = 0; m < j->n_machines; m++)
        if (!predict(j, &j->machine[m], j->rows + (size_t)m * each, err))
            return false;
    j->n_rows = (int)n;
    return true;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

_Static_assert((int)MAX_ROUNDS <= (int)SPEED_TIMED, "both have their medians taken by usual");

static void begin_window(plan_job *j)
{
    if (j->timer)
        rg_timer_reset(j->timer);
    rg_pulse_usual(j->pulse);
    j->speed.n_timed = 0;
}

/* Whether to go on, after all_s: not when there is enough that was timed while it was quiet. */
static bool wants_more(const plan_job *j, double all_s)
{
    double quiet_s = 0;

    for (int i = 0; i < j->speed.n_timed; i++) {
        const speed_timed *t = &j->speed.timed[i];
        if (rg_pulse_quiet(j->pulse, &t->share))
            quiet_s += t->n * t->seconds;
    }
    return quiet_s < MEASURE_S && all_s < LONGEST_S;
}

/* Some runs of some steps. */
static bool measure_decode(plan_job *j, const rg_plan_row *r, rg_error *err)
{
    int n = (int)(MEASURE_S / r->latency_s), context;
    double patience_s = PATIENCE_S, all_s = 0, one;

    n = n < 5 ? 5 : n > MAX_STEPS ? MAX_STEPS : n;
    context = (int)r->seq - 1 - n; /* so that the last step is the one predicted: kernels go by whole blocks */
    begin_window(j);
    for (int i = 0; !i || (i < MAX_RUNS && wants_more(j, all_s)); i++, all_s += one) {
        rg_pulse_wait(j->pulse, rg_model_runner_pool(j->tool.runner), true, &patience_s);
        if (!speed_decode(&j->speed, (int)r->batch, context > 0 ? context : 0, n, &one, err))
            return false;
    }
    return true;
}

static bool measure_prefill(plan_job *j, const rg_plan_row *r, rg_error *err)
{
    double patience_s = PATIENCE_S, all_s = 0, one;

    begin_window(j);
    for (int i = 0; !i || (i < MAX_RUNS && wants_more(j, all_s)); i++, all_s += one) {
        rg_pulse_wait(j->pulse, rg_model_runner_pool(j->tool.runner), true, &patience_s);
        if (!speed_prefill(&j->speed, (int)r->seq, 0, &one, err))
            return false;
    }
    return true;
}

static rg_plan_timed *tries_of(plan_job *j, int row, bool prefill)
{
    return j->tries + (size_t)(2 * row + prefill) * (size_t)j->rounds;
}

/* The medians of what was timed while it was quiet, if anything was, else of all.  (0: nothing was timed.) */
static rg_plan_timed usual(const plan_job *j, const rg_plan_timed *timed, int n)
{
    rg_plan_timed out = { 0 };
    double *const to[] = { &out.predicted_s, &out.measured_s, &out.share.memory, &out.share.compute,
                           &out.share.meeting, &out.share.cache };
    double v[RG_LEN(to)][SPEED_TIMED];
    bool quiet = false;
    int kept = 0;

    for (int i = 0; i < n; i++)
        quiet |= timed[i].measured_s > 0 && rg_pulse_quiet(j->pulse, &timed[i].share);
    for (int i = 0; i < n; i++) {
        if (!timed[i].measured_s || (quiet && !rg_pulse_quiet(j->pulse, &timed[i].share)))
            continue;
        v[0][kept] = timed[i].predicted_s;
        v[1][kept] = timed[i].measured_s;
        v[2][kept] = timed[i].share.memory;
        v[3][kept] = timed[i].share.compute;
        v[4][kept] = timed[i].share.meeting;
        v[5][kept++] = timed[i].share.cache;
    }
    for (size_t k = 0; kept && k < RG_LEN(to); k++)
        *to[k] = rg_quantile(v[k], kept, 0.5);
    return out;
}

/* What was measured in a round, and what the machine gave meanwhile. */
static void keep_try(plan_job *j, int row, bool prefill, int round)
{
    rg_plan_timed timed[SPEED_TIMED];

    for (int i = 0; i < j->speed.n_timed; i++)
        timed[i] = (rg_plan_timed){ .measured_s = j->speed.timed[i].seconds, .share = j->speed.timed[i].share };
    tries_of(j, row, prefill)[round] = usual(j, timed, j->speed.n_timed);
}

/* What the operations of the first row took, and what the machine gave, the mean over rounds. */
static void measured_ops(plan_job *j, bool prefill, int round)
{
    rg_share now = rg_pulse_usual(j->pulse), *mean = &j->ops_share[prefill];

    if (!j->timer)
        return;
    mean->memory += (now.memory - mean->memory) / (round + 1);
    mean->compute += (now.compute - mean->compute) / (round + 1);
    mean->cache += (now.cache - mean->cache) / (round + 1);
    for (int i = 0; i < j->ops.n; i++) {
        rg_plan_op *o = &j->ops.op[i];
        if (o->prefill == prefill)
            o->measured_s += (rg_timer_seconds(j->timer, o->kind, o->name) - o->measured_s) / (round + 1);
    }
}

static bool check_measure(plan_job *j, rg_error *err)
{
    bool here = false;

    for (int i = 0; i < j->n_machines; i++)
        here |= !strcmp(j->machine[i].name, "here");
    if (!here || j->chips > 1 || j->subject.method != RG_PLAN_COUNTED)
        return rg_fail(err, RG_E_USAGE, "plan: --measure runs the model here: it needs --machine here, a single chip "
                                        "and the method counted");
    if (j->dtype)
        return rg_fail(err, RG_E_USAGE, "plan: --measure runs the weights as they are: leave --dtype out");
    if (!rg_checkpoint_n_tensors(j->ckpt))
        return rg_fail(err, RG_E_INPUT, "plan: --measure needs weights, and %s has none", j->title);
    if (cli_ints_most(&j->batch, 1) > SPEED_ROWS)
        return rg_fail(err, RG_E_USAGE, "plan: --measure runs batches of up to %d", SPEED_ROWS);
    if (cli_ints_most(&j->seq, 1) > j->model->config.max_seq_len)
        return rg_fail(err, RG_E_USAGE, "plan: --measure of %d positions: the model has %d", cli_ints_most(&j->seq, 1),
                       j->model->config.max_seq_len);
    return true;
}

/* The machine again, and what follows. */
static bool measure_machine_again(plan_job *j, rg_error *err)
{
    int here = 0;

    while (strcmp(j->machine[here].name, "here") != 0)
        here++;
    return measure_rates(j, &j->machine[here].m, err) &&
           predict(j, &j->machine[here], j->rows + (size_t)here * j->seq.n * j->batch.n, err);
}

/* A row's machine as it is when it gives that share of its roofs. */
static rg_plan_machine giving(const rg_plan_row *r, const rg_share *share)
{
    rg_plan_machine m = *r->machine;

    m.m.share = *share;
    return m;
}

/* What was predicted for the share that was given in each round. */
static bool predict_tries(plan_job *j, int row, bool prefill, rg_error *err)
{
    const rg_plan_row *r = &j->rows[row];
    rg_plan_timed *tries = tries_of(j, row, prefill);

    for (int i = 0; i < j->rounds; i++) {
        rg_plan_machine m = giving(r, &tries[i].share);
        rg_plan_row then;

        if (!tries[i].measured_s)
            continue;
        if (!(prefill ? rg_plan_point(&j->subject, &m, r->batch, r->seq, &then, err)
                      : rg_plan_latency(&j->subject, &m, r->batch, r->seq, &then.latency_s, err)))
            return false;
        tries[i].predicted_s = prefill ? then.ttft_s : then.latency_s;
    }
    return true;
}

/* Rows that fit; a prompt once for each length, with its first batch; in rounds the machine before each length. */
static bool measure_rows(plan_job *j, int round, rg_error *err)
{
    void *quiet = j->args.common.quiet || j->args.common.json ? j : NULL;

    for (int i = 0; i < j->n_rows && !cli_interrupted(); i++) {
        const rg_plan_row *r = &j->rows[i];
        bool first = !i || r[-1].seq != r->seq || r[-1].machine != r->machine;

        cli_progress(quiet, "measuring the model", ((double)i / j->n_rows + round) / j->rounds);
        if (strcmp(r->machine->name, "here") != 0 || !r->fits)
            continue;
        if ((first && (i || round) && j->rounds > 1 && !measure_machine_again(j, err)) ||
            !measure_decode(j, r, err))
            return false;
        keep_try(j, i, false, round);
        if (!i)
            measured_ops(j, false, round);
        if (!first)
            continue;
        if (!measure_prefill(j, r, err))
            return false;
        keep_try(j, i, true, round);
        if (!i)
            measured_ops(j, true, round);
    }
    return true;
}

static const rg_reader *watch_steps(void *arg, const rg_reader *inner)
{
    const plan_job *j = arg;

    return rg_pulse_wrap(j->pulse, j->timer ? rg_timer_wrap(j->timer, inner) : inner);
}

static bool measure(plan_job *j, rg_error *err)
{
    tool_options o = { .common = &j->args.common, .model = j->args.n_positional ? j->args.positional[0] : NULL,
                       .kv_type = j->kv_type, .max_rows = SPEED_ROWS, .wrap = watch_steps, .wrap_arg = j };

    for (int i = 0; i < j->n_rows; i++)
        if (!strcmp(j->rows[i].machine->name, "here") && j->rows[i].fits && j->rows[i].batch > o.max_seqs)
            o.max_seqs = (int)j->rows[i].batch;
    o.max_seq_len = cli_ints_most(&j->seq, 1) + MAX_STEPS + 1;
    if (o.max_seqs < 1)
        return rg_fail(err, RG_E_LIMIT, "plan: --measure: no batch fits into this machine's memory");
    j->timer = j->show_ops ? rg_timer_new(n_threads(j), err) : NULL; /* it takes a hundredth of a small model's step */
    if ((j->show_ops && !j->timer) || !tool_open(&j->tool, &o, err) || !speed_init(&j->speed, &j->tool, err))
        return false;
    j->speed.timer = j->timer;
    j->speed.pulse = j->pulse;
    for (int round = 0; round < j->rounds && !cli_interrupted(); round++)
        if (!measure_rows(j, round, err))
            return false;
    for (int i = 0; i < j->n_rows; i++) {
        if (!predict_tries(j, i, false, err) || !predict_tries(j, i, true, err))
            return false;
        j->measured[i].decode = usual(j, tries_of(j, i, false), j->rounds);
        j->measured[i].prefill = usual(j, tries_of(j, i, true), j->rounds);
    }
    cli_progress(j->args.common.quiet || j->args.common.json ? j : NULL, "measuring the model", 1);
    return true;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* The operations of the first row as the machine is known now, at what it gave while they were measured, and what was
 * measured of them. */
static bool list_ops(plan_job *j, rg_error *err)
{
    const rg_plan_row *first = &j->rows[0];
    rg_plan_ops before = j->ops;

    for (int prefill = 0; prefill < 2; prefill++) {
        const rg_share *then = &j->ops_share[prefill];
        rg_plan_machine m = giving(first, then->compute > 0 ? then : &first->machine->m.share);
        rg_plan_ops ops;

        if (!rg_plan_list_ops(&j->subject, &m, first->batch, first->seq, &ops, err))
            return false;
        j->ops.n = ops.n;
        for (int i = 0; i < ops.n; i++)
            if (ops.op[i].prefill == (bool)prefill)
                j->ops.op[i] = ops.op[i];
    }
    for (int i = 0; i < before.n; i++)
        j->ops.op[i].measured_s = before.op[i].measured_s;
    return true;
}

static bool work(plan_job *j, rg_error *err)
{
    if (!defaults(&j->batch, (const int32_t[]){ 1, 8, 64 }, 3, "--batch", err) ||
        !defaults(&j->seq, (const int32_t[]){ 1024 }, 1, "--seq", err) ||
        !defaults(&j->lengths, (const int32_t[]){ 64, 128, 256, 1024 }, 4, "--lengths", err) ||
        !open_subject(j, err) || !open_machines(j, err) || (j->measure && !check_measure(j, err)) || !make_rows(j, err))
        return false;
    const rg_plan_row *first = &j->rows[0];
    rg_lever_options o = { .keep = (double)j->keep, .acceptance = (double)j->acceptance,
                           .draft_cost = (double)j->draft_cost, .lengths = j->lengths.item,
                           .n_lengths = (int)j->lengths.n, .window = j->window, .chips = 0 };
    if (!list_ops(j, err) || (j->measure && (!measure(j, err) || !list_ops(j, err))) ||
        (j->what_if && !rg_levers_try(&j->subject, first->machine, first->batch, first->seq, &o, &j->levers, err)))
        return false;
    return plan_give(j, err);
}

static void fini(plan_job *j)
{
    speed_fini(&j->speed);
    tool_close(&j->tool);
    rg_timer_free(j->timer);
    rg_pulse_close(j->pulse);
    rg_model_close(j->model);
    rg_checkpoint_close(j->ckpt);
    rg_free(j->rows);
    rg_free(j->measured);
    rg_free(j->tries);
    cli_ints_fini(&j->batch);
    cli_ints_fini(&j->seq);
    cli_ints_fini(&j->lengths);
}

static int run(int argc, char **argv)
{
    static plan_job j = { .chips = 1, .window = 1024, .rounds = 1,
                          .keep = 0.5f, .acceptance = 0.7f, .draft_cost = 0.1f };
    const cli_option options[] = {
        { "--machine", CLI_STRING, &j.machine_names, "here,h100", "machines: here (measured now), or known ones" },
        { "--batch", CLI_INTS, &j.batch, "1,8,64", "sequences that decode together" },
        { "--seq", CLI_INTS, &j.seq, "1024", "positions of each" },
        { "--dtype", CLI_STRING, &j.dtype, "TYPE",
          "of weights, and of K/V where it is a K/V type (default: as they are)" },
        { "--kv-type", CLI_STRING, &j.kv_type, "TYPE", "f32, f16, bf16, q8 (default: f32 for F32 weights, else bf16)" },
        { "--method", CLI_STRING, &j.method, "NAME", "counted (default), closed-form, or general" },
        { "--params", CLI_STRING, &j.params, "N", "parameters, instead of CONFIG (method general)" },
        { "--kv-bytes", CLI_STRING, &j.kv_bytes, "N", "K/V bytes per position, with --params" },
        { "--chips", CLI_INT, &j.chips, "N", "so many of each machine, sharded without loss (default 1)", 1, 65536 },
        { "--ops", CLI_FLAG, &j.show_ops, NULL,
          "list the operations of the first row; with --measure, what each took" },
        { "--what-if", CLI_FLAG, &j.what_if, NULL, "compare the levers at the first row" },
        { "--keep", CLI_FLOAT, &j.keep, "0.5", "what if: share of layers that pruning keeps", 0.01, 1 },
        { "--acceptance", CLI_FLOAT, &j.acceptance, "0.7", "what if: of a drafted token", 0, 0.999 },
        { "--draft-cost", CLI_FLOAT, &j.draft_cost, "0.1", "what if: of a draft step, of a step of the model", 0, 1 },
        { "--lengths", CLI_INTS, &j.lengths, "64,128,256,1024", "what if: lengths of answers in a batch" },
        { "--window", CLI_INT, &j.window, "1024", "what if: keys that a window layer sees", 1, 1 << 24 },
        { "--measure", CLI_FLAG, &j.measure, NULL,
          "run the same points here, and print predicted, measured and error" },
        { "--rounds", CLI_INT, &j.rounds, "N",
          "with --measure: machine and points so often in turn, the median counts (default 1)", 1, MAX_ROUNDS },
        { "--csv", CLI_STRING, &j.csv, "FILE", "also write the rows to a file" },
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
