/* plan.c -- `ridge plan`: what a model will cost on a machine, predicted, and beside it what this machine measures.
 *
 * Opens a config (no weights needed), the machines, and prints what src/plan makes of them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/speed.h"
#include "model/rates.h"
#include "plan/report.h"
#include "plan/svg.h"

extern const cli_command cli_plan;

enum { MAX_MACHINES = 16, MAX_LIST = 32, MAX_STEPS = 32, MAX_POINTS = 20, FILE_CAP = 1 << 22 };

static const double MEASURE_S = 0.4; /* of a point, about */

typedef struct job {
    cli_args args;
    const char *machine_names, *dtype, *kv_type, *method, *params, *kv_bytes, *csv, *svg;
    cli_ints batch, seq, lengths;
    int32_t chips, window;
    float keep, acceptance, draft_cost;
    bool measure, what_if, show_ops;

    char title[256], here[96];
    rg_checkpoint *ckpt;
    rg_model *model;
    rg_plan_subject subject;
    rg_plan_machine machine[MAX_MACHINES];
    int n_machines;
    rg_plan_row *rows;
    rg_plan_measured *measured;
    int n_rows;
    rg_plan_ops ops;
    rg_levers levers;
    rg_svg_point points[MAX_POINTS];
    int n_points;
    tool tool;
    speed speed;
} job;

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
static const char *kv_name(const job *j, rg_type dtype)
{
    return j->kv_type ? j->kv_type : j->dtype ? rg_kv_name(dtype) : NULL;
}

static bool open_model(job *j, rg_error *err)
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

static bool open_subject(job *j, rg_error *err)
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

static bool measure_here(job *j, rg_plan_machine *out, rg_error *err)
{
    const rg_cpu *cpu = rg_cpu_find(j->args.common.isa, err);
    int n = j->args.common.threads ? j->args.common.threads : rg_cores();
    rg_pool *pool = cpu ? rg_pool_new(n, err) : NULL;
    void *quiet = j->args.common.quiet || j->args.common.json ? j : NULL;
    bool ok = true;

    if (!pool)
        return false;
    snprintf(j->here, sizeof j->here, "this machine (%s, %d thread%s)", cpu->isa, n, n > 1 ? "s" : "");
    *out = (rg_plan_machine){ .name = "here", .title = j->here, .memory_bytes = memory_here(), .chips = 1,
                              .chunk = SPEED_ROWS };
    cli_progress(quiet, "measuring this machine", 0);
    rg_machine_measure(&out->m, cpu, pool, n, 0);
    rg_pool_free(pool);
    cli_progress(quiet, "measuring this machine", 0.2);
    if (j->subject.method == RG_PLAN_COUNTED) {
        rg_rates_wanted wanted = rg_rates_for(j->model, j->subject.exact);
        wanted.twice = true;
        if (j->what_if)
            wanted.linear[RG_Q8_0] = wanted.linear[RG_Q4_0] = true;
        ok = rg_rates_measure(&out->m, cpu, n, &wanted, err);
    }
    cli_progress(quiet, "measuring this machine", 1);
    return ok;
}

static bool open_machines(job *j, rg_error *err)
{
    const char *at = j->machine_names ? j->machine_names : "here";

    while (*at) {
        size_t n = strcspn(at, ",");
        char name[64];
        rg_plan_machine *m = &j->machine[j->n_machines];

        if (j->n_machines == MAX_MACHINES)
            return rg_fail(err, RG_E_USAGE, "plan: --machine takes up to %d names", MAX_MACHINES);
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

static bool make_rows(job *j, rg_error *err)
{
    size_t n = (size_t)j->n_machines * j->seq.n * j->batch.n;

    j->rows = rg_array(n, sizeof *j->rows);
    j->measured = rg_array(n, sizeof *j->measured);
    if (!j->rows || !j->measured)
        return rg_fail_memory(err, n * sizeof *j->rows);
    for (int m = 0; m < j->n_machines; m++)
        for (size_t s = 0; s < j->seq.n; s++)
            for (size_t b = 0; b < j->batch.n; b++)
                if (!rg_plan_point(&j->subject, &j->machine[m], j->batch.item[b], j->seq.item[s], &j->rows[j->n_rows++],
                                   err))
                    return false;
    return true;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static bool measure_decode(job *j, const rg_plan_row *r, double *seconds, rg_error *err)
{
    int n = (int)(MEASURE_S / r->latency_s), context;
    double all;

    n = n < 5 ? 5 : n > MAX_STEPS ? MAX_STEPS : n;
    context = (int)r->seq - 1 - n / 2; /* so that the middle step is the one predicted */
    return speed_decode(&j->speed, (int)r->batch, context > 0 ? context : 0, n, &all, seconds, err);
}

static bool measure_prefill(job *j, const rg_plan_row *r, double *seconds, rg_error *err)
{
    int n = (int)(MEASURE_S / r->ttft_s);
    double tries[5];

    n = n < 1 ? 1 : n > (int)RG_LEN(tries) ? (int)RG_LEN(tries) : n;
    for (int i = 0; i < n; i++)
        if (!speed_prefill(&j->speed, (int)r->seq, 0, &tries[i], err))
            return false;
    *seconds = speed_median(tries, n);
    return true;
}

static int largest(const cli_ints *v)
{
    int most = 1;

    for (size_t i = 0; i < v->n; i++)
        most = v->item[i] > most ? v->item[i] : most;
    return most;
}

static bool check_measure(job *j, rg_error *err)
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
    if (largest(&j->batch) > SPEED_ROWS)
        return rg_fail(err, RG_E_USAGE, "plan: --measure runs batches of up to %d", SPEED_ROWS);
    if (largest(&j->seq) > j->model->config.max_seq_len)
        return rg_fail(err, RG_E_USAGE, "plan: --measure of %d positions: the model has %d", largest(&j->seq),
                       j->model->config.max_seq_len);
    return true;
}

/* Rows that fit; a prompt once for each length, with its first batch. */
static bool measure(job *j, rg_error *err)
{
    tool_options o = { .common = &j->args.common, .model = j->args.n_positional ? j->args.positional[0] : NULL,
                       .kv_type = j->kv_type, .max_rows = SPEED_ROWS };
    void *quiet = j->args.common.quiet || j->args.common.json ? j : NULL;

    for (int i = 0; i < j->n_rows; i++)
        if (!strcmp(j->rows[i].machine->name, "here") && j->rows[i].fits && j->rows[i].batch > o.max_seqs)
            o.max_seqs = (int)j->rows[i].batch;
    o.max_seq_len = largest(&j->seq) + MAX_STEPS + 1;
    if (o.max_seqs < 1)
        return rg_fail(err, RG_E_LIMIT, "plan: --measure: no batch fits into this machine's memory");
    if (!tool_open(&j->tool, &o, err) || !speed_init(&j->speed, &j->tool, err))
        return false;
    for (int i = 0; i < j->n_rows && !cli_interrupted(); i++) {
        const rg_plan_row *r = &j->rows[i];
        bool first = !i || r[-1].seq != r->seq || r[-1].machine != r->machine;

        cli_progress(quiet, "measuring the model", (double)i / j->n_rows);
        if (strcmp(r->machine->name, "here") != 0 || !r->fits)
            continue;
        if (!measure_decode(j, r, &j->measured[i].latency_s, err) ||
            (first && !measure_prefill(j, r, &j->measured[i].ttft_s, err)))
            return false;
    }
    cli_progress(quiet, "measuring the model", 1);
    return true;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void machines_json(cli_json *out, const job *j)
{
    cli_json_open(out, "machines", '[');
    for (int i = 0; i < j->n_machines; i++) {
        const rg_plan_machine *m = &j->machine[i];
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "name", m->name);
        cli_json_text(out, "title", m->title);
        cli_json_int(out, "chips", m->chips);
        cli_json_float(out, "read_gb_s", m->m.read_bytes_s / 1e9);
        cli_json_float(out, "f32_gflop_s", m->m.f32_ops_s / 1e9);
        cli_json_float(out, "bf16_gflop_s", m->m.bf16_ops_s / 1e9);
        cli_json_float(out, "int8_gop_s", m->m.int8_ops_s / 1e9);
        cli_json_float(out, "memory_bytes", m->memory_bytes);
        cli_json_close(out);
    }
    cli_json_close(out);
}

static void float_or_null(cli_json *out, const char *key, double v)
{
    if (v > 0)
        cli_json_float(out, key, v);
    else
        cli_json_null(out, key);
}

static void row_json(cli_json *out, const job *j, int i)
{
    const rg_plan_row *r = &j->rows[i];
    const rg_plan_measured *m = &j->measured[i];

    cli_json_open(out, NULL, '{');
    cli_json_text(out, "machine", r->machine->name);
    cli_json_int(out, "batch", r->batch);
    cli_json_int(out, "seq", r->seq);
    cli_json_float(out, "memory_bytes", r->memory.total);
    cli_json_open(out, "memory", '{');
    cli_json_float(out, "weights", r->memory.weights);
    cli_json_float(out, "kv", r->memory.kv);
    cli_json_float(out, "recurrent", r->memory.recurrent);
    cli_json_float(out, "activations", r->memory.activations);
    cli_json_float(out, "of", r->memory.of);
    cli_json_close(out);
    cli_json_bool(out, "fits", r->fits);
    cli_json_float(out, "latency_ms", 1e3 * r->latency_s);
    cli_json_float(out, "ttft_ms", 1e3 * r->ttft_s);
    cli_json_float(out, "throughput_tok_s", r->throughput);
    cli_json_float(out, "ops", r->ops);
    cli_json_float(out, "bytes", r->bytes);
    cli_json_float(out, "intensity", r->intensity);
    cli_json_text(out, "bound_by", rg_bound_names[r->bound_by]);
    cli_json_float(out, "limit_ms", 1e3 * r->limit_s);
    cli_json_float(out, "fixed_ms", 1e3 * r->fixed_s);
    cli_json_int(out, "max_batch", r->max_batch);
    cli_json_float(out, "critical_batch", r->critical_batch);
    if (r->knee_batch)
        cli_json_int(out, "knee_batch", r->knee_batch);
    else
        cli_json_null(out, "knee_batch");
    float_or_null(out, "closed_form_latency_ms", 1e3 * r->closed_latency_s);
    if (j->measure) {
        float_or_null(out, "measured_latency_ms", 1e3 * m->latency_s);
        float_or_null(out, "measured_ttft_ms", 1e3 * m->ttft_s);
    }
    cli_json_close(out);
}

static void ops_json(cli_json *out, const job *j)
{
    cli_json_open(out, "operations", '[');
    for (int i = 0; i < j->ops.n; i++) {
        const rg_plan_op *o = &j->ops.op[i];
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "what", o->prefill ? "prefill" : "decode");
        cli_json_text(out, "kind", o->kind);
        cli_json_text(out, "name", o->name);
        cli_json_int(out, "count", o->count);
        cli_json_float(out, "ops", o->ops);
        cli_json_float(out, "bytes", o->bytes);
        cli_json_float(out, "seconds", o->seconds);
        float_or_null(out, "intensity", o->bytes > 0 ? o->ops / o->bytes : 0);
        cli_json_text(out, "bound_by", rg_bound_names[o->bound_by]);
        cli_json_close(out);
    }
    cli_json_close(out);
}

static void levers_json(cli_json *out, const job *j)
{
    cli_json_open(out, "levers", '[');
    for (int i = 0; i < j->levers.n; i++) {
        const rg_lever *l = &j->levers.lever[i];
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "lever", l->name);
        cli_json_text(out, "formula", l->formula);
        cli_json_float(out, "memory_bytes", l->memory_bytes);
        cli_json_float(out, "latency_ms", 1e3 * l->latency_s);
        cli_json_float(out, "throughput_tok_s", l->throughput);
        cli_json_bool(out, "fits", l->fits);
        cli_json_close(out);
    }
    cli_json_close(out);
}

static bool print_json(const job *j)
{
    static const char *const methods[] = { "counted", "closed-form", "general" };
    cli_json *out = cli_json_new();

    cli_json_open(out, NULL, '{');
    cli_json_text(out, "model", j->title);
    cli_json_text(out, "method", methods[j->subject.method]);
    if (j->model)
        cli_json_float(out, "parameters", (double)j->model->weights.n_parameters);
    machines_json(out, j);
    cli_json_open(out, "rows", '[');
    for (int i = 0; i < j->n_rows; i++)
        row_json(out, j, i);
    cli_json_close(out);
    ops_json(out, j);
    if (j->what_if)
        levers_json(out, j);
    cli_json_close(out);
    return cli_json_print(out);
}

static bool write_file(const char *path, rg_buf *b, rg_error *err)
{
    rg_writer *w = b->failed ? NULL : rg_writer_open(path, err);
    bool ok = w && rg_writer_write(w, b->data, b->n, err);

    if (b->failed)
        rg_fail_memory(err, b->n);
    rg_buf_fini(b);
    if (ok)
        return rg_writer_commit(w, err);
    rg_writer_abort(w);
    return false;
}

/* Batches 1, 2, 4 .. past the knee, and the measured ones in their places. */
static bool make_points(job *j, rg_error *err)
{
    const rg_plan_row *r = &j->rows[0];
    int64_t most = r->knee_batch ? 4 * r->knee_batch : 4096, least = 2 * (int64_t)largest(&j->batch);

    most = most > least ? most : least;
    most = most > 64 ? most : 64;
    for (int64_t b = 1; b <= most && j->n_points < MAX_POINTS; b *= 2) {
        rg_svg_point *p = &j->points[j->n_points];

        *p = (rg_svg_point){ .batch = b, .fits = b <= r->max_batch };
        if (!rg_plan_latency(&j->subject, r->machine, b, r->seq, &p->latency_s, err))
            return false;
        p->throughput = (double)b / p->latency_s;
        for (int i = 0; i < j->n_rows; i++)
            if (j->rows[i].machine == r->machine && j->rows[i].seq == r->seq && j->rows[i].batch == b)
                p->measured_latency_s = j->measured[i].latency_s;
        j->n_points++;
    }
    return true;
}

static bool write_svg(job *j, rg_error *err)
{
    rg_svg_plan p = { .title = j->title, .machine = j->rows[0].machine, .row = &j->rows[0], .ops = &j->ops,
                      .points = j->points };
    rg_buf b;

    if (!make_points(j, err))
        return false;
    p.n_points = j->n_points;
    rg_buf_init(&b, FILE_CAP);
    rg_svg_write(&b, &p);
    return write_file(j->svg, &b, err);
}

static bool give_results(job *j, rg_error *err)
{
    rg_plan_report r = { .title = j->title, .subject = &j->subject, .rows = j->rows, .n_rows = j->n_rows,
                         .measured = j->measure ? j->measured : NULL, .ops = j->show_ops ? &j->ops : NULL,
                         .levers = j->what_if ? &j->levers : NULL };
    rg_buf b;

    if (j->csv) {
        rg_buf_init(&b, FILE_CAP);
        rg_report_csv(&b, &r);
        if (!write_file(j->csv, &b, err))
            return false;
    }
    if (j->svg && !write_svg(j, err))
        return false;
    if (j->args.common.json)
        return print_json(j) || rg_fail(err, RG_E_IO, "plan: standard output cannot be written");
    rg_buf_init(&b, FILE_CAP);
    rg_report_text(&b, &r);
    bool ok = b.failed ? rg_fail_memory(err, b.n) : fwrite(b.data, 1, b.n, stdout) == b.n && !fflush(stdout);
    rg_buf_fini(&b);
    return ok || b.failed || rg_fail(err, RG_E_IO, "plan: standard output cannot be written");
}

static bool work(job *j, rg_error *err)
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
    if (!rg_plan_list_ops(&j->subject, first->machine, first->batch, first->seq, &j->ops, err) ||
        (j->what_if &&
         !rg_levers_try(&j->subject, first->machine, first->batch, first->seq, &o, &j->levers, err)) ||
        (j->measure && !measure(j, err)))
        return false;
    return give_results(j, err);
}

static void fini(job *j)
{
    speed_fini(&j->speed);
    tool_close(&j->tool);
    rg_model_close(j->model);
    rg_checkpoint_close(j->ckpt);
    rg_free(j->rows);
    rg_free(j->measured);
    cli_ints_fini(&j->batch);
    cli_ints_fini(&j->seq);
    cli_ints_fini(&j->lengths);
}

static int run(int argc, char **argv)
{
    static job j = { .chips = 1, .window = 1024, .keep = 0.5f, .acceptance = 0.7f, .draft_cost = 0.1f };
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
        { "--ops", CLI_FLAG, &j.show_ops, NULL, "list the operations of the first row" },
        { "--what-if", CLI_FLAG, &j.what_if, NULL, "compare the levers at the first row" },
        { "--keep", CLI_FLOAT, &j.keep, "0.5", "what if: share of layers that pruning keeps", 0.01, 1 },
        { "--acceptance", CLI_FLOAT, &j.acceptance, "0.7", "what if: of a drafted token", 0, 0.999 },
        { "--draft-cost", CLI_FLOAT, &j.draft_cost, "0.1", "what if: of a draft step, of a step of the model", 0, 1 },
        { "--lengths", CLI_INTS, &j.lengths, "64,128,256,1024", "what if: lengths of answers in a batch" },
        { "--window", CLI_INT, &j.window, "1024", "what if: keys that a window layer sees", 1, 1 << 24 },
        { "--measure", CLI_FLAG, &j.measure, NULL,
          "run the same points here, and print predicted, measured and error" },
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
