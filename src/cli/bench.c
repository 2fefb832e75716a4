/* bench.c -- `ridge bench`: speed beside the measured roofline.
 *
 * One row for each prefill size and context (one stream), and for each batch and context of decode.  The context is
 * synthetic: its state is there but was not computed.  of_roofline is the time at the limit over the time measured, the
 * limit being the sum over operations of the longer of bytes over bandwidth and operations over peak, both measured in
 * this run, the bandwidth at the size of the weights.  With --no-cache predictions stand beside what was measured: they
 * are made from the profile of this machine. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/lora.h"
#include "cli/profile.h"
#include "cli/speed.h"
#include "measure/cost.h"
#include "plan/fill.h"
#include "plan/roofline.h"

extern const cli_command cli_bench;

enum { MAX_ROWS = SPEED_ROWS, FILLED_ROWS = 4096, MAX_LIST = 16 };

typedef struct row {
    const char *what;
    int n, batch, context;
    double tok_s, gb_s, gflop_s, of_roofline;
    double evaluations; /* of an answer of a diffusion model, else 0 */
} row;

/* Tokens after a prompt, with the K/V cache and without: seconds predicted and measured. */
typedef struct naive {
    int context, n;
    double cached_s, cached_predicted_s, naive_s, naive_predicted_s;
} naive;

typedef struct job {
    cli_args args;
    cli_ints prefill, batch, context;
    int32_t decode, reps, block;
    float per_evaluation, attention_sparsity;
    const char *csv, *svg, *record, *commit, *kv_type, *pack_cache, *sparsity;
    cli_loras loras;
    size_t expert_memory;
    const char *random;
    tool tool;
    rg_machine machine;
    rg_profile profile; /* with --no-cache */
    speed speed;
    row rows[2 * MAX_LIST * MAX_LIST];
    int n_rows;
    double evaluations; /* of the answer that was timed last */
    bool no_cache, remeasure;
    naive naive[MAX_LIST];
    int n_naive;
} job;

/* One prompt of n after context, in steps of MAX_ROWS: what it took, its limit and its count. */
static bool run_prefill(job *j, int n, int context, double *seconds, double *limit, rg_count *count, rg_error *err)
{
    rg_step_shape shape = { .n_seqs = 1, .n_rows = n, .start = context, .exact = j->tool.recipe.exact };
    rg_cost cost;

    if (!speed_prefill(&j->speed, n, context, seconds, err))
        return false;
    rg_cost_prompt(j->tool.model, &j->machine, &shape, MAX_ROWS, &cost);
    *limit = cost.limit_s;
    *count = cost.count;
    return true;
}

static bool run_decode(job *j, int batch, int context, double *seconds, double *limit, rg_count *count, rg_error *err)
{
    rg_step_shape shape = {
        .n_seqs = batch, .n_rows = 1, .start = context + 1 + j->decode / 2, .exact = j->tool.recipe.exact
    };
    double n = j->decode;
    rg_cost cost;

    if (!speed_decode(&j->speed, batch, context, j->decode, seconds, NULL, err) ||
        !rg_cost_shape(j->tool.model, &j->machine, &shape, &cost, NULL, NULL, err))
        return false;
    *limit = cost.limit_s * n;
    *count = (rg_count){ cost.count.ops * n, cost.count.weight_bytes * n, cost.count.state_bytes * n };
    return true;
}

/* An answer of j->decode ids that a diffusion model fills in: one evaluation is timed, and taken as often as an answer
 * needs it. */
static bool run_fill(job *j, int batch, int context, double *seconds, double *limit, rg_count *count, rg_error *err)
{
    const rg_plan_subject s = {
        .model = j->tool.model,
        .exact = j->tool.recipe.exact,
        .filling = { .answer = j->decode, .block = j->block, .per_evaluation = (double)j->per_evaluation }
    };
    const rg_plan_machine here = { .name = "here", .m = j->machine };
    const rg_step_shape shape = rg_plan_step(&s, batch, context + j->decode);
    rg_plan_fill f;

    *seconds = 0;
    if (!speed_takes(&j->speed, &shape)) {
        fprintf(stderr, "ridge: an evaluation of %d rows is left out: a step has room for %d rows and %d logits\n",
                shape.n_seqs * shape.n_rows, j->tool.max_rows, j->tool.runner->max_logits);
        return true;
    }
    if (!rg_plan_fill_answer(&s, &here, batch, context + j->decode, &s.filling, &f, err) ||
        !speed_evaluate(&j->speed, &shape, seconds, err))
        return false;
    *seconds *= f.evaluations;
    *limit = f.limit_s * f.evaluations;
    *count = (rg_count){ .ops = f.ops * f.evaluations, .weight_bytes = f.bytes * f.evaluations };
    j->evaluations = f.evaluations;
    return true;
}

/* The best of several repetitions: other work on the machine can only slow one down. */
static bool measure(job *j, const char *what, int n, int batch, int context, rg_error *err)
{
    double best = 0, seconds, limit = 0;
    rg_count count = { 0 };
    bool prefill = !strcmp(what, "prefill");

    if (context + n + 1 > j->tool.model->config.max_seq_len)
        return true; /* said once, by work() */
    for (int i = 0; i < j->reps && !cli_interrupted(); i++) {
        if (!(prefill                        ? run_prefill(j, n, context, &seconds, &limit, &count, err)
              : rg_plan_fills(j->tool.model) ? run_fill(j, batch, context, &seconds, &limit, &count, err)
                                             : run_decode(j, batch, context, &seconds, &limit, &count, err)))
            return false;
        best = !i || seconds < best ? seconds : best;
    }
    if (best <= 0)
        return true;
    row *r = &j->rows[j->n_rows++];
    *r = (row){ .what = what,
                .n = n,
                .batch = batch,
                .context = context,
                .tok_s = (double)n * batch / best,
                .gb_s = (count.weight_bytes + count.state_bytes) / best / 1e9,
                .gflop_s = count.ops / best / 1e9,
                .of_roofline = limit / best,
                .evaluations = j->evaluations };
    if (!j->args.common.json)
        printf("%-8s %6d %6d %8d %12.1f %9.2f %11.1f %10.1f %%\n", r->what, r->n, r->batch, r->context, r->tok_s,
               r->gb_s, r->gflop_s, 100 * r->of_roofline);
    cli_flush(NULL);
    return true;
}

static bool all_rows(job *j, rg_error *err)
{
    const bool fills = rg_plan_fills(j->tool.model); /* its prompts have no steps of their own */

    for (size_t i = 0; i < j->prefill.n && !fills; i++)
        for (size_t k = 0; k <= j->context.n; k++)
            if (j->prefill.item[i] && (k || !j->context.given))
                if (!measure(j, "prefill", j->prefill.item[i], 1, k ? j->context.item[k - 1] : 0, err))
                    return false;
    for (size_t i = 0; i < j->batch.n; i++)
        for (size_t k = 0; k < j->context.n; k++)
            if (j->decode && j->batch.item[i] &&
                !measure(j, fills ? "fill" : "decode", j->decode, j->batch.item[i], j->context.item[k], err))
                return false;
    return true;
}

/* ---- without a cache ---- */

/* n tokens after a prompt of context: a prefill and n - 1 steps, or n prefills of the growing prefix. */
static void predict_naive(job *j, naive *v)
{
    rg_step_shape prompt = { .n_seqs = 1, .n_rows = v->context + 1, .exact = j->tool.recipe.exact };
    rg_cost cost;

    for (int i = 0; i < v->n; i++) {
        prompt.n_rows = v->context + 1 + i;
        rg_cost_prompt(j->tool.model, &j->machine, &prompt, MAX_ROWS, &cost);
        v->naive_predicted_s += cost.seconds;
        if (!i) {
            v->cached_predicted_s += cost.seconds;
            continue;
        }
        prompt.n_rows = 1;
        prompt.start = v->context + i;
        rg_cost_prompt(j->tool.model, &j->machine, &prompt, MAX_ROWS, &cost);
        v->cached_predicted_s += cost.seconds;
        prompt.start = 0;
    }
}

static bool run_naive(job *j, int context, rg_error *err)
{
    naive *v = &j->naive[j->n_naive];
    double first, rest = 0;

    *v = (naive){ .context = context, .n = j->decode };
    if (context + v->n + 1 > j->tool.model->config.max_seq_len)
        return true; /* said once, by work() */
    predict_naive(j, v);
    for (int i = 0; i < j->reps && !cli_interrupted(); i++) {
        double without;
        if (!speed_prefill(&j->speed, context + 1, 0, &first, err) ||
            (v->n > 1 && !speed_decode(&j->speed, 1, context + 1, v->n - 1, &rest, NULL, err)) ||
            !speed_without_cache(&j->speed, v->n, context, &without, err))
            return false;
        v->cached_s = !i || first + rest < v->cached_s ? first + rest : v->cached_s;
        v->naive_s = !i || without < v->naive_s ? without : v->naive_s;
    }
    if (v->cached_s <= 0 || cli_interrupted())
        return true;
    j->n_naive++;
    if (!j->args.common.json)
        printf("%8d %6d %11.4f s %11.4f s %11.4f s %11.4f s %8.1fx %8.1fx\n", v->context, v->n, v->cached_predicted_s,
               v->cached_s, v->naive_predicted_s, v->naive_s, v->naive_predicted_s / v->cached_predicted_s,
               v->naive_s / v->cached_s);
    cli_flush(NULL);
    return true;
}

/* Before the machine is measured. */
static bool check_naive(const job *j, rg_error *err)
{
    if (j->no_cache && rg_plan_fills(j->tool.model))
        return rg_fail(err, RG_E_USAGE,
                       "bench: --no-cache compares answers that are drawn id by id, and this model "
                       "fills them in");
    return !j->no_cache || j->decode > 0 || rg_fail(err, RG_E_USAGE, "bench: --no-cache needs --decode of 1 or more");
}

static bool all_naive(job *j, rg_error *err)
{
    if (!j->args.common.json)
        printf("%8s %6s %13s %13s %13s %13s %9s %9s\n%8s %6s %13s %13s %13s %13s %9s %9s\n", "", "", "with cache",
               "with cache", "without", "without", "ratio", "ratio", "context", "tokens", "predicted", "measured",
               "predicted", "measured", "predicted", "measured");
    for (size_t i = 0; i < j->context.n && !cli_interrupted(); i++)
        if (!run_naive(j, j->context.item[i], err))
            return false;
    return true;
}

/* ---- results ---- */

static const char *format_name(const job *j)
{
    const rg_layer *l = &j->tool.model->layers[0];

    for (int i = 0; i < W_COUNT; i++)
        if (l->w[i] && l->w[i]->placed)
            return rg_format_of(l->w[i]->placed->type)->name;
    return "?";
}

/* The last part of the model's path. */
static const char *model_name(const job *j)
{
    const char *path = j->args.n_positional ? j->args.positional[0] : "the shipped model";
    const char *last = strrchr(path, '/');

    return last && last[1] ? last + 1 : path;
}

static void naive_json(cli_json *out, const job *j)
{
    cli_json_open(out, "no_cache", '[');
    for (int i = 0; i < j->n_naive; i++) {
        const naive *v = &j->naive[i];
        cli_json_open(out, NULL, '{');
        cli_json_int(out, "context", v->context);
        cli_json_int(out, "n", v->n);
        cli_json_float(out, "cached_s", v->cached_s);
        cli_json_float(out, "cached_predicted_s", v->cached_predicted_s);
        cli_json_float(out, "no_cache_s", v->naive_s);
        cli_json_float(out, "no_cache_predicted_s", v->naive_predicted_s);
        cli_json_float(out, "ratio", v->naive_s / v->cached_s);
        cli_json_float(out, "ratio_predicted", v->naive_predicted_s / v->cached_predicted_s);
        cli_json_close(out);
    }
    cli_json_close(out);
}

/* Everything measured, and what is needed to know of what. */
static cli_json *results_json(const job *j)
{
    cli_json *out = cli_json_new();
    char processor[256];

    rg_processor_name(processor, sizeof processor);
    cli_json_open(out, NULL, '{');
    cli_json_text(out, "version", RG_VERSION);
    cli_json_text(out, "commit", j->commit);
    cli_json_text(out, "model", j->args.n_positional ? j->args.positional[0] : NULL);
    cli_json_open(out, "machine", '{');
    cli_json_text(out, "processor", processor);
    cli_json_float(out, "read_gb_s", j->machine.roofs.read_bytes_s / 1e9);
    cli_json_float(out, "f32_gflop_s", j->machine.roofs.f32_ops_s / 1e9);
    cli_json_float(out, "bf16_gflop_s", j->machine.roofs.bf16_ops_s / 1e9);
    cli_json_float(out, "int8_gop_s", j->machine.roofs.int8_ops_s / 1e9);
    cli_json_text(out, "isa", j->tool.backend->name);
    cli_json_int(out, "cores", rg_cores());
    cli_json_int(out, "threads", j->tool.n_threads);
    cli_json_close(out);
    cli_json_open(out, "rows", '[');
    for (int i = 0; i < j->n_rows; i++) {
        const row *r = &j->rows[i];
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "what", r->what);
        cli_json_int(out, "n", r->n);
        cli_json_int(out, "batch", r->batch);
        cli_json_int(out, "context", r->context);
        cli_json_float(out, "tok_s", r->tok_s);
        cli_json_float(out, "gb_s", r->gb_s);
        cli_json_float(out, "gflop_s", r->gflop_s);
        cli_json_float(out, "of_roofline", r->of_roofline);
        if (r->evaluations > 0)
            cli_json_float(out, "evaluations", r->evaluations);
        cli_json_text(out, "format", format_name(j));
        cli_json_text(out, "kv_type", rg_kv_name(j->tool.model->kv_type));
        cli_json_text(out, "isa", j->tool.backend->name);
        cli_json_int(out, "threads", j->tool.n_threads);
        cli_json_close(out);
    }
    cli_json_close(out);
    if (j->no_cache)
        naive_json(out, j);
    cli_json_close(out);
    return out;
}

static void rows_csv(rg_buf *b, const job *j)
{
    rg_buf_str(b, "what,n,batch,context,tok_s,gb_s,gflop_s,of_roofline,format,kv_type,isa,threads,read_gb_s\n");
    for (int i = 0; i < j->n_rows; i++) {
        const row *r = &j->rows[i];
        rg_buf_printf(b, "%s,%d,%d,%d,%.6g,%.6g,%.6g,%.4f,%s,%s,%s,%d,%.6g\n", r->what, r->n, r->batch, r->context,
                      r->tok_s, r->gb_s, r->gflop_s, r->of_roofline, format_name(j), rg_kv_name(j->tool.model->kv_type),
                      j->tool.backend->name, j->tool.n_threads, j->machine.roofs.read_bytes_s / 1e9);
    }
}

static void naive_csv(rg_buf *b, const job *j)
{
    rg_buf_str(b, "context,n,cached_s,cached_predicted_s,no_cache_s,no_cache_predicted_s\n");
    for (int i = 0; i < j->n_naive; i++) {
        const naive *v = &j->naive[i];
        rg_buf_printf(b, "%d,%d,%.6g,%.6g,%.6g,%.6g\n", v->context, v->n, v->cached_s, v->cached_predicted_s,
                      v->naive_s, v->naive_predicted_s);
    }
}

static bool write_csv(const job *j, rg_error *err)
{
    rg_buf b;

    rg_buf_init(&b, 1 << 20);
    if (j->no_cache)
        naive_csv(&b, j);
    else
        rows_csv(&b, j);
    return cli_write_file(j->csv, &b, err);
}

/* The roofs of this run with each row as a dot. */
static bool write_svg(const job *j, rg_error *err)
{
    static rg_roofline r;
    char processor[200], title[200], subtitle[300];
    rg_buf b;

    r = (rg_roofline){ .title = title, .subtitle = subtitle, .roofs = &j->machine.roofs };
    for (int i = 0; i < j->n_rows && r.n < RG_ROOFLINE_POINTS; i++) {
        const row *at = &j->rows[i];
        rg_roofline_point *p = &r.points[r.n];
        if (!(at->gb_s > 0) || !(at->gflop_s > 0))
            continue;
        *p = (rg_roofline_point){ .ops_per_byte = at->gflop_s / at->gb_s,
                                  .ops_s = 1e9 * at->gflop_s,
                                  .prefill = !strcmp(at->what, "prefill") };
        if (p->prefill)
            snprintf(p->name, sizeof p->name, "prompt of %d: %.0f tokens/s", at->n, at->tok_s);
        else
            snprintf(p->name, sizeof p->name, "%d stream%s: %.0f tokens/s", at->batch, at->batch == 1 ? "" : "s",
                     at->tok_s);
        size_t used = strlen(p->name);
        if (j->context.n > 1)
            snprintf(p->name + used, sizeof p->name - used, " after %d", at->context);
        r.n++;
    }
    rg_processor_name(processor, sizeof processor);
    snprintf(title, sizeof title, "%.100s (%s) beside what this machine allows", model_name(j), format_name(j));
    snprintf(subtitle, sizeof subtitle, "%s, %d threads, %s: measured by ridge bench, roofs and dots in one run",
             processor, j->tool.n_threads, j->tool.backend->name);
    rg_buf_init(&b, 1 << 20);
    rg_roofline_write(&b, &r);
    return cli_write_file(j->svg, &b, err);
}

/* Measure the roofs now; predictions need a profile. */
static bool know_machine(job *j, rg_error *err)
{
    if (j->no_cache) {
        if (!cli_profile(&j->profile, &j->args.common, j->tool.backend, j->tool.n_threads, j->remeasure, err))
            return false;
        j->machine = (rg_machine){ .roofs = j->profile.roofs, .rates = &j->profile.rates };
        return true;
    }
    return rg_roofs_probe(&j->machine.roofs, j->tool.backend, j->tool.n_threads, (double)j->tool.model->weights.bytes,
                          err);
}

static bool work(job *j, rg_error *err)
{
    if (j->svg && j->no_cache)
        return rg_fail(err, RG_E_USAGE,
                       "bench: --svg draws rows of speed, and --no-cache measures none; leave one out");
    if (!cli_loras_read_one(&j->loras, err))
        return false;
    const rg_adapter_source adapter = { j->loras.item[0].name, j->loras.item[0].path };
    const cli_ints_rule prefill = { "bench", "--prefill", 0, 1 << 24, MAX_LIST };
    const cli_ints_rule batches = { "bench", "--batch", 0, MAX_ROWS, MAX_LIST };
    const cli_ints_rule context = { "bench", "--context", 0, 1 << 24, MAX_LIST };

    if (!cli_ints_settle(&j->prefill, (const int32_t[]){ 128, 512, 2048 }, 3, &prefill, err) ||
        !cli_ints_settle(&j->batch, (const int32_t[]){ 1, 8, 32, 64 }, 4, &batches, err) ||
        !cli_ints_settle(&j->context, (const int32_t[]){ 128, 4096 }, 2, &context, err))
        return false;
    int batch = cli_ints_most(&j->batch, 1);
    int most = j->no_cache ? j->decode + 1 : cli_ints_most(&j->prefill, j->decode + 1);
    int len = cli_ints_most(&j->context, 0) + most + 1;
    tool_options o = { .common = &j->args.common,
                       .model = j->args.n_positional ? j->args.positional[0] : NULL,
                       .kv_type = j->kv_type,
                       .pack_cache = j->pack_cache,
                       .sparsity = j->sparsity,
                       .attention_sparsity = j->attention_sparsity,
                       .adapter = j->loras.n ? &adapter : NULL,
                       .expert_memory = j->expert_memory,
                       .max_rows = MAX_ROWS,
                       .filled_rows = FILLED_ROWS,
                       .max_seqs = batch,
                       .random = j->random,
                       .max_seq_len = len };
    if (j->random && (!rg_type_by_name(j->random, &o.declared_type) || !rg_format_of(o.declared_type)->encode))
        return rg_fail(err, RG_E_USAGE, "bench: --random '%.40s' is not one of f32, f16, bf16, q8_0, q4_0, ...",
                       j->random);
    const rg_roofs *roofs = &j->machine.roofs;
    if (!tool_open(&j->tool, &o, err) || !check_naive(j, err) || !speed_init(&j->speed, &j->tool, err) ||
        !know_machine(j, err))
        return false;
    if (!j->args.common.json)
        printf("%s, %d threads: %.1f GB/s, %.0f f32 GFLOP/s, %.0f int8 GOP/s\n", j->tool.backend->name,
               j->tool.n_threads, roofs->read_bytes_s / 1e9, roofs->f32_ops_s / 1e9, roofs->int8_ops_s / 1e9);
    for (int i = 0; !j->args.common.json && i < j->tool.model->adapters.n; i++)
        printf("all rows with the adapter %s: %d matrices of rank %d at most, %.1f MB\n",
               j->tool.model->adapters.all[i].name, j->tool.model->adapters.all[i].n_weights,
               (int)j->tool.model->adapters.all[i].max_rank, (double)j->tool.model->adapters.all[i].bytes / 1e6);
    if (!j->args.common.json && !j->no_cache)
        printf("%-8s %6s %6s %8s %12s %9s %11s %12s\n", "what", "n", "batch", "context", "tokens/s", "GB/s", "GFLOP/s",
               "of roofline");
    if (len - 1 > j->tool.model->config.max_seq_len)
        fprintf(stderr, "ridge: rows past the model's context of %d are left out\n", j->tool.model->config.max_seq_len);
    if (!(j->no_cache ? all_naive(j, err) : all_rows(j, err)) || (j->csv && !write_csv(j, err)) ||
        (j->svg && !write_svg(j, err)) || (j->record && !cli_json_write(results_json(j), j->record, err)))
        return false;
    return !j->args.common.json || cli_json_print(results_json(j)) ||
           rg_fail(err, RG_E_IO, "bench: standard output cannot be written");
}

static int run(int argc, char **argv)
{
    static job j = { .decode = 64, .reps = 3 };
    const cli_option options[] = {
        { "--prefill", CLI_INTS, &j.prefill, "128,512,2048", "sizes of prompts (0: none)" },
        { "--decode", CLI_INT, &j.decode, "N", "tokens generated per stream (default 64; 0: none)", 0, 1 << 20 },
        { "--batch", CLI_INTS, &j.batch, "1,8,32,64", "streams that decode together" },
        { "--context", CLI_INTS, &j.context, "128,4096", "positions before the measured ones" },
        { "--reps", CLI_INT, &j.reps, "N", "repetitions, of which the best counts (default 3)", 1, 1000 },
        { "--block", CLI_INT, &j.block, "N", "diffusion: positions of a block (default 32)", 1, 1 << 24 },
        { "--per-evaluation", CLI_FLOAT, &j.per_evaluation, "X",
          "diffusion: ids that an evaluation finishes (default 1)", 1, 1e6 },
        CLI_CSV_OPTION(j.csv),
        { "--svg", CLI_STRING, &j.svg, "FILE", "also draw the measured roofline with every row on it" },
        { "--record", CLI_STRING, &j.record, "FILE", "also write what --json prints to a file" },
        { "--commit", CLI_STRING, &j.commit, "NAME", "the commit that is measured, for --record and --json" },
        { "--no-cache", CLI_FLAG, &j.no_cache, NULL,
          "instead: a prompt of each context and --decode tokens, with the K/V cache and recomputing all for each" },
        CLI_REMEASURE_OPTION(j.remeasure, "with --no-cache: "),
        CLI_KV_TYPE_OPTION(j.kv_type, CLI_KV_AS_WEIGHTS),
        CLI_PACK_CACHE_OPTION(j.pack_cache),
        CLI_SPARSITY_OPTION(j.sparsity),
        CLI_ATTENTION_SPARSITY_OPTION(j.attention_sparsity),
        CLI_EXPERT_MEMORY_OPTION(j.expert_memory),
        { "--random", CLI_STRING, &j.random, "TYPE", "random weights of this type: MODEL may be a config.json alone" },
        CLI_LORA_OPTION(j.loras, "all rows have this LoRA adapter"),
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_bench, options, argc, argv);
    if (status >= 0)
        return status;
    cli_catch_interrupt();
    bool ok = work(&j, &err);
    speed_fini(&j.speed);
    tool_close(&j.tool);
    cli_ints_fini(&j.prefill);
    cli_ints_fini(&j.batch);
    cli_ints_fini(&j.context);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_bench = {
    .name = "bench",
    .arguments = "[MODEL]",
    .summary = "speed beside the measured roofline",
    .run = run,
    .n_positional = 1,
};
