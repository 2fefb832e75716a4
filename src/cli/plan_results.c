/* plan_results.c -- what `ridge plan` gives: text or JSON, and the files asked for. */
#include <stdio.h>
#include <string.h>

#include "cli/plan.h"
#include "plan/printed.h"

enum { FILE_CAP = 1 << 22 };

static void float_or_null(cli_json *out, const char *key, double v)
{
    if (v > 0)
        cli_json_float(out, key, v);
    else
        cli_json_null(out, key);
}

static void machines_json(cli_json *out, const plan_job *j)
{
    cli_json_open(out, "machines", '[');
    for (int i = 0; i < j->n_machines; i++) {
        const rg_plan_machine *m = &j->machine[i];
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "name", m->name);
        cli_json_text(out, "title", m->title);
        cli_json_int(out, "chips", m->chips);
        cli_json_float(out, "read_gb_s", m->m.roofs.read_bytes_s / 1e9);
        cli_json_float(out, "f32_gflop_s", m->m.roofs.f32_ops_s / 1e9);
        cli_json_float(out, "bf16_gflop_s", m->m.roofs.bf16_ops_s / 1e9);
        cli_json_float(out, "int8_gop_s", m->m.roofs.int8_ops_s / 1e9);
        cli_json_float(out, "memory_bytes", m->memory_bytes);
        if (m->m.rates)
            cli_json_bool(out, "busy", j->profile.busy);
        cli_json_close(out);
    }
    cli_json_close(out);
}

static void model_json(cli_json *out, const rg_model *m)
{
    cli_json_float(out, "parameters", (double)m->weights.n_parameters);
    cli_json_u64(out, "bytes_per_position", rg_state_bytes_per_position(&m->state));
    cli_json_u64(out, "bytes_per_sequence", rg_state_bytes_per_sequence(&m->state));
}

static void row_json(cli_json *out, const plan_job *j, int i)
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
    const rg_plan_printed *p = rg_plan_printed_of(&j->subject, r);
    if (p) {
        cli_json_open(out, "printed", '{');
        float_or_null(out, "memory_gb", p->memory_gb);
        float_or_null(out, "latency_ms", p->latency_ms);
        float_or_null(out, "throughput_tok_s", p->tokens_s);
        cli_json_bool(out, "differs", rg_plan_printed_differs(p->memory_gb, r->memory.total / 1e9) ||
                                          rg_plan_printed_differs(p->latency_ms, 1e3 * r->latency_s) ||
                                          rg_plan_printed_differs(p->tokens_s, r->throughput));
        cli_json_close(out);
    }
    if (r->evaluations > 0) {
        cli_json_float(out, "evaluations", r->evaluations);
        cli_json_float(out, "rows_per_evaluation", r->rows);
        cli_json_float(out, "ids_per_evaluation", r->per_evaluation);
        cli_json_float(out, "answer_ms", 1e3 * r->latency_s * r->evaluations);
    }
    if (j->measure) {
        float_or_null(out, "measured_latency_ms", 1e3 * m->decode_s);
        float_or_null(out, "measured_ttft_ms", 1e3 * m->prefill_s);
    }
    cli_json_close(out);
}

static void ops_json(cli_json *out, const plan_job *j)
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
        if (j->measure)
            float_or_null(out, "measured_s", o->measured_s);
        float_or_null(out, "intensity", o->bytes > 0 ? o->ops / o->bytes : 0);
        cli_json_text(out, "bound_by", rg_bound_names[o->bound_by]);
        cli_json_close(out);
    }
    cli_json_close(out);
}

static void what_if_json(cli_json *out, const plan_job *j)
{
    cli_json_open(out, "what_if", '[');
    for (int i = 0; i < j->changes.n; i++) {
        const rg_what_if_row *l = &j->changes.row[i];
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "change", l->name);
        cli_json_text(out, "formula", l->formula);
        cli_json_float(out, "memory_bytes", l->memory_bytes);
        cli_json_float(out, "latency_ms", 1e3 * l->latency_s);
        cli_json_float(out, "throughput_tok_s", l->throughput);
        cli_json_bool(out, "fits", l->fits);
        cli_json_close(out);
    }
    cli_json_close(out);
}

static void fills_json(cli_json *out, const plan_job *j)
{
    cli_json_open(out, "filling", '[');
    for (int i = 0; i < j->n_fills; i++) {
        const rg_plan_fill *f = &j->fills[i];
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "cache", j->model->config.sees != RG_SEES_ALL ? "exact" : rg_plan_cache_names[f->cache]);
        cli_json_int(out, "answer", f->answer);
        cli_json_int(out, "block", f->block);
        cli_json_float(out, "ids_per_evaluation", f->per_evaluation);
        cli_json_float(out, "evaluations", f->evaluations);
        cli_json_float(out, "rows_per_evaluation", f->rows);
        cli_json_float(out, "evaluation_ms", 1e3 * f->seconds / f->evaluations);
        cli_json_float(out, "answer_ms", 1e3 * f->seconds);
        cli_json_float(out, "first_ms", 1e3 * f->first_s);
        cli_json_float(out, "throughput_tok_s", f->throughput);
        cli_json_text(out, "bound_by", rg_bound_names[f->bound_by]);
        cli_json_close(out);
    }
    cli_json_close(out);
}

static void prefills_json(cli_json *out, const plan_job *j)
{
    cli_json_open(out, "prefill", '[');
    for (int i = 0; i < j->n_prefills; i++) {
        const rg_plan_prefill *p = &j->prefills[i];
        cli_json_open(out, NULL, '{');
        cli_json_int(out, "prompts", p->prompts);
        cli_json_int(out, "steps", p->steps);
        cli_json_float(out, "ttft_ms", 1e3 * p->ttft_s);
        cli_json_float(out, "prompts_s", p->prompts_s);
        cli_json_float(out, "activation_bytes", p->activation_bytes);
        cli_json_text(out, "bound_by", rg_bound_names[p->bound_by]);
        cli_json_close(out);
    }
    cli_json_close(out);
}

static bool print_json(const plan_job *j)
{
    static const char *const methods[] = { "counted", "closed-form", "general" };
    cli_json *out = cli_json_new();

    cli_json_open(out, NULL, '{');
    cli_json_text(out, "model", j->title);
    cli_json_text(out, "method", methods[j->subject.method]);
    if (j->model)
        model_json(out, j->model);
    machines_json(out, j);
    cli_json_open(out, "rows", '[');
    for (int i = 0; i < j->n_rows; i++)
        row_json(out, j, i);
    cli_json_close(out);
    ops_json(out, j);
    if (j->n_prefills)
        prefills_json(out, j);
    if (j->n_fills)
        fills_json(out, j);
    plan_ranks_json(out, j);
    if (j->what_if)
        what_if_json(out, j);
    cli_json_close(out);
    return cli_json_print(out);
}

/* Batches 1, 2, 4 .. past the knee, and the measured ones in their places. */
static bool make_points(plan_job *j, rg_error *err)
{
    const rg_plan_row *r = &j->rows[0];
    int64_t most = r->knee_batch ? 4 * r->knee_batch : 4096, least = 2 * (int64_t)cli_ints_most(&j->batch, 1);

    most = most > least ? most : least;
    most = most > 64 ? most : 64;
    for (int64_t b = 1; b <= most && j->n_points < PLAN_POINTS; b *= 2) {
        rg_svg_point *p = &j->points[j->n_points];

        *p = (rg_svg_point){ .batch = b, .fits = b <= r->max_batch };
        if (!rg_plan_latency(&j->subject, r->machine, b, r->seq, &p->latency_s, err))
            return false;
        p->throughput = (double)b / p->latency_s;
        for (int i = 0; i < j->n_rows; i++)
            if (j->rows[i].machine == r->machine && j->rows[i].seq == r->seq && j->rows[i].batch == b)
                p->measured_latency_s = j->measured[i].decode_s;
        j->n_points++;
    }
    return true;
}

static bool write_svg(plan_job *j, rg_error *err)
{
    rg_svg_plan p = { .title = j->title, .machine = j->rows[0].machine, .row = &j->rows[0], .ops = &j->ops,
                      .points = j->points };
    rg_buf b;

    if (!make_points(j, err))
        return false;
    p.n_points = j->n_points;
    rg_buf_init(&b, FILE_CAP);
    rg_svg_write(&b, &p);
    return cli_write_file(j->svg, &b, err);
}

bool plan_give(plan_job *j, rg_error *err)
{
    rg_plan_report r = { .title = j->title,
                         .subject = &j->subject,
                         .rows = j->rows,
                         .n_rows = j->n_rows,
                         .measured = j->measure ? j->measured : NULL,
                         .ops = j->show_ops ? &j->ops : NULL,
                         .what_if = j->what_if ? &j->changes : NULL,
                         .fills = j->fills,
                         .n_fills = j->n_fills,
                         .prefills = j->prefills, .n_prefills = j->n_prefills };
    rg_buf b;

    if (j->csv) {
        rg_buf_init(&b, FILE_CAP);
        rg_report_csv(&b, &r);
        if (!cli_write_file(j->csv, &b, err))
            return false;
    }
    if (j->svg && !write_svg(j, err))
        return false;
    if (j->args.common.json)
        return print_json(j) || rg_fail(err, RG_E_IO, "plan: standard output cannot be written");
    rg_buf_init(&b, FILE_CAP);
    rg_report_text(&b, &r);
    plan_ranks_text(&b, j);
    bool ok = b.failed ? rg_fail_memory(err, b.n) : fwrite(b.data, 1, b.n, stdout) == b.n && cli_flush(NULL);
    rg_buf_fini(&b);
    return ok || b.failed || rg_fail(err, RG_E_IO, "plan: standard output cannot be written");
}
