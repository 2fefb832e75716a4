/* shrink.c -- `ridge shrink`: a smaller checkpoint, by methods that look at what the model computes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/pool.h"
#include "cli/calibration.h"
#include "cli/qat.h"
#include "cli/perplexity.h"
#include "shrink/latent.h"
#include "shrink/means.h"
#include "shrink/prune.h"
#include "shrink/recast.h"
#include "shrink/shrink.h"
#include "shrink/sparsity.h"
#include "text/export.h"

extern const cli_command cli_shrink;

typedef struct shrink_job {
    cli_args args;
    int32_t bits, group;
    bool group_given, act_order, static_groups, sym, greedy;
    float alpha, sparsity;
    int32_t kv_heads, share, window, full_every; /* of gqa, cla, window */
    int32_t rank, rope_heads;                    /* of mla */
    double kv_before, kv_after;                  /* bytes of a position, of methods that change them */
    int32_t keep_layers, keep_channels, keep_neurons, keep_heads;
    const char *codes, *to, *type;
    calibration text;
    cli_heal heal;
    cli_qat qat;
    double damaged, control; /* perplexities: before the repair; of the whole model trained on */
    char path[1024];         /* of SRC */
    rg_shrink_options o;
    rg_shrink_report report;
    uint64_t bytes;
    double before, after, seconds, realized; /* realized: share of zeros that is met */
} shrink_job;

static bool print_json(const shrink_job *j, rg_error *err)
{
    const rg_shrink_report *r = &j->report;
    cli_json *out = cli_json_new();

    cli_json_open(out, NULL, '{');
    cli_json_text(out, "method", j->o.method->name);
    cli_json_open(out, "layers", '[');
    for (int i = 0; i < r->n; i++) {
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "name", r->matrix[i].name);
        cli_json_int(out, "layer", r->matrix[i].layer);
        cli_json_float(out, "error", r->matrix[i].error);
        cli_json_u64(out, "rows", r->matrix[i].n_rows);
        cli_json_close(out);
    }
    cli_json_close(out);
    cli_json_float(out, "ppl_before", j->before);
    cli_json_float(out, "ppl_after", j->after);
    cli_json_u64(out, "bytes_before", r->bytes_before);
    cli_json_u64(out, "bytes", r->bytes);
    cli_json_int(out, "samples", j->o.method->needs ? j->o.n_samples : 0);
    cli_json_int(out, "kept", r->n_kept);
    cli_json_text(out, "kept_why", r->n_kept ? r->kept : NULL);
    cli_json_int(out, "resumed", r->n_resumed);
    cli_json_text(out, "note", r->note[0] ? r->note : NULL);
    cli_json_text(out, "warning", r->warning[0] ? r->warning : NULL);
    cli_json_float(out, "seconds", j->seconds);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "shrink: standard output cannot be written");
}

/* The mean of a layer's errors. */
static double error_of_layer(const rg_shrink_report *r, int layer)
{
    double sum = 0;
    int n = 0;

    for (int i = 0; i < r->n; i++)
        if (r->matrix[i].layer == layer && isfinite(r->matrix[i].error)) {
            sum += r->matrix[i].error;
            n++;
        }
    return n ? sum / n : NAN;
}

static void print_text(const shrink_job *j)
{
    const rg_shrink_report *r = &j->report;

    if (r->warning[0])
        fprintf(stderr, "ridge: warning: %s\n", r->warning);
    if (j->args.common.quiet)
        return;
    printf("layer  share of the %s power that is lost\n", j->o.method->needs ? "outputs'" : "weights'");
    for (int i = 0; i < r->n; i++)
        if (!i || r->matrix[i].layer != r->matrix[i - 1].layer)
            printf("%5d  %.6f\n", r->matrix[i].layer, error_of_layer(r, r->matrix[i].layer));
    if (r->n_kept)
        printf("%d matrices stay as they were: %s\n", r->n_kept, r->kept);
    if (r->note[0])
        printf("%s\n", r->note);
    if (r->n_resumed)
        printf("%d layers were there from an earlier run\n", r->n_resumed);
    if (isfinite(j->after))
        printf("perplexity %.4f before, %.4f after (%zu ids)\n", j->before, j->after, j->text.n_rest);
    printf("%s: %.2f MB of tensors, %.2f before; %.1f s\n", j->args.positional[2], (double)r->bytes / 1e6,
           (double)r->bytes_before / 1e6, j->seconds);
}

/* The text in ids of the model. */
static bool read_text(shrink_job *j, const rg_checkpoint *ckpt, rg_error *err)
{
    const bool needed = j->o.method->needs != 0;
    rg_config *c = rg_zalloc(sizeof *c);
    rg_error why = { 0 };

    if (!c)
        return rg_fail_memory(err, sizeof *c);
    rg_tokenizer *t = rg_config_read(c, ckpt, err) ? rg_tokenizer_open_for(ckpt, c->vocab_size, &why) : NULL;
    const int most = c->n_positions ? c->n_positions : c->max_seq_len;
    if (most > 1 && j->text.ctx > most)
        j->text.ctx = most;
    const bool encoder = c->arch && !rg_config_has_logits(c);
    rg_free(c);
    if (!t && why.code != RG_OK)
        return *err = why, false;
    if (!t)
        return !needed || rg_fail(err, RG_E_UNSUPPORTED,
                                  "%s: the checkpoint has no tokenizer, and so no calibration text", j->path);
    bool ok = (encoder && !needed) || calibration_read(&j->text, t, err);
    rg_tokenizer_close(t);
    j->o.ids = j->text.ids;
    j->o.n_samples = j->text.n_samples;
    j->o.ctx = j->text.ctx;
    return ok;
}

static bool score(shrink_job *j, const char *path, double *ppl, rg_error *err)
{
    cli_common common = j->args.common;
    perplexity s = {
        .text = j->text.rest, .n_text = j->text.n_rest, .file = j->text.path, .ctx = j->text.ctx, .quiet = common.quiet
    };

    *ppl = NAN;
    common.quiet = true;
    return !j->text.rest || perplexity_of(path, &common, &s, ppl, err);
}

static bool work(shrink_job *j, rg_error *err)
{
    const char *to = j->args.positional[2];
    uint64_t began = rg_now_ns();

    if (!cli_find_model(j->args.positional[1], j->path, sizeof j->path, err))
        return false;
    rg_checkpoint *ckpt = rg_checkpoint_open(j->path, RG_CKPT_DEFAULT, err);
    bool ok = ckpt && read_text(j, ckpt, err) && rg_shrink(&j->report, ckpt, to, &j->o, err);
    rg_checkpoint_close(ckpt);
    j->seconds = rg_seconds(began, rg_now_ns());
    return ok && score(j, j->path, &j->before, err) && score(j, to, &j->after, err) &&
           (j->args.common.json ? print_json(j, err) : (print_text(j), true));
}

/* ---- methods that look at the whole model ------------------------------------------------------------------------ */

static rg_stage *open_stage(const shrink_job *j, const rg_checkpoint *ckpt, rg_error *err)
{
    return rg_stage_open(ckpt,
                         &(rg_stage_options){ .backend = j->o.backend,
                                              .thresholds = j->greedy,
                                              .n_threads = j->o.n_threads,
                                              .ids = j->o.ids,
                                              .n_samples = j->o.n_samples,
                                              .ctx = j->o.ctx },
                         err);
}

/* ---- repair ------------------------------------------------------------------------------------------------------ */

/* A folder beside DST that is made and removed again; nothing may be there, since all of it is removed, but for what a
 * run left that was stopped and is resumed. */
static bool beside(const shrink_job *j, const char *end, char path[1100], rg_error *err)
{
    if (snprintf(path, 1100, "%s.%s", j->args.positional[2], end) >= 1100)
        return rg_fail(err, RG_E_USAGE, "%s: the path is too long", j->args.positional[2]);
    if (j->heal.resume && cli_heal_is_begun(j->args.positional[2]))
        cli_heal_remove(path);
    if (rg_path_look(path) != RG_PATH_NONE)
        return rg_fail(err, RG_E_USAGE, "%s: it is there already, and this run would make and remove it: move it away",
                       path);
    return true;
}

/* SRC itself, trained on with as many ids. */
static bool control(shrink_job *j, rg_error *err)
{
    char path[1100];
    bool ok;

    if (!beside(j, "control", path, err))
        return false;
    ok = cli_heal_control(&j->heal, &j->args, path, j->path, err) && score(j, path, &j->control, err);
    cli_heal_remove(path);
    return ok;
}

/* DST learns from SRC. */
static bool repair(shrink_job *j, rg_error *err)
{
    const char *to = j->args.positional[2];
    char path[1100];

    if (!j->heal.text)
        return true;
    if (!j->heal.alone && !beside(j, "control", path, err))
        return false;
    j->damaged = j->after;
    return cli_heal_run(&j->heal, &j->args, to, j->path, err) && score(j, to, &j->after, err) &&
           (j->heal.alone || control(j, err));
}

static void print_repair(const shrink_job *j)
{
    printf("repaired with %lld ids in %.1f s: perplexity %.4f before, %.4f after: %.1f %% of the loss won back\n",
           (long long)j->heal.tokens, j->heal.seconds, j->damaged, j->after,
           100 * cli_heal_share(j->before, j->damaged, j->after));
    if (isfinite(j->control))
        printf("the whole model, trained on with the same ids: perplexity %.4f; against that, %.1f %%\n", j->control,
               100 * cli_heal_share(j->control, j->damaged, j->after));
}

static void put_repair(const shrink_job *j, cli_json *out)
{
    cli_json_open(out, "heal", '{');
    cli_json_int(out, "tokens", j->heal.tokens);
    cli_json_float(out, "seconds", j->heal.seconds);
    cli_json_float(out, "ppl_damaged", j->damaged);
    cli_json_float(out, "won_back", cli_heal_share(j->before, j->damaged, j->after));
    cli_json_float(out, "ppl_control", j->control);
    cli_json_float(out, "won_back_of_control", cli_heal_share(j->control, j->damaged, j->after));
    cli_json_close(out);
}

static bool report_whole(const shrink_job *j, uint64_t bytes, double realized, rg_error *err)
{
    const char *to = j->args.positional[2], *warning = j->report.warning;

    if (warning[0])
        fprintf(stderr, "ridge: warning: %s\n", warning);
    if (!j->args.common.json) {
        if (!j->args.common.quiet && isfinite(realized))
            printf("%s: thresholds; zeros meet %.1f %% of the matrices; %.1f s\n", to, 100 * realized, j->seconds);
        else if (!j->args.common.quiet)
            printf("%s: %.2f MB of tensors; perplexity %.4f before, %.4f after; %.1f s\n", to, (double)bytes / 1e6,
                   j->before, j->after, j->seconds);
        if (!j->args.common.quiet && isfinite(j->kv_before - j->kv_after) && j->kv_before != j->kv_after)
            printf("K/V of a position: %.0f bytes in bf16, %.0f before\n", j->kv_after, j->kv_before);
        if (!j->args.common.quiet && j->heal.text)
            print_repair(j);
        return true;
    }
    cli_json *out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_json_text(out, "method", j->args.positional[0]);
    cli_json_open(out, "layers", '[');
    cli_json_close(out);
    cli_json_float(out, "ppl_before", j->before);
    cli_json_float(out, "ppl_after", j->after);
    if (j->heal.text)
        put_repair(j, out);
    cli_json_u64(out, "bytes", bytes);
    cli_json_float(out, "kv_bytes_before", j->kv_before);
    cli_json_float(out, "kv_bytes", j->kv_after);
    cli_json_float(out, "sparsity", realized);
    cli_json_text(out, "warning", warning[0] ? warning : NULL);
    cli_json_float(out, "seconds", j->seconds);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "shrink: standard output cannot be written");
}

static bool prune(shrink_job *j, const rg_checkpoint *ckpt, uint64_t *bytes, rg_error *err)
{
    const rg_prune_options o = { j->keep_layers, j->keep_channels, j->keep_neurons, j->keep_heads };
    rg_importance i = { 0 };
    rg_stage *s = open_stage(j, ckpt, err);
    bool ok = s && rg_importance_measure(&i, s, err) &&
              rg_prune(ckpt, &rg_stage_model(s)->config, &i, &o, j->args.positional[2], bytes, err);

    rg_importance_fini(&i);
    rg_stage_close(s);
    j->heal.outputs = j->keep_layers > 0;
    return ok && score(j, j->path, &j->before, err) && score(j, j->args.positional[2], &j->after, err) &&
           repair(j, err);
}

/* ---- training on a grid ------------------------------------------------------------------------------------------ */

/* What training made, as DST; scored. */
static bool write_qat(void *arg, const rg_given_codes *codes, const char *model, rg_error *err)
{
    shrink_job *j = arg;
    rg_checkpoint *from = rg_checkpoint_open(model, RG_CKPT_DEFAULT, err);
    rg_shrink_report report = { 0 };
    bool ok;

    j->damaged = j->after;
    j->o.given = codes;
    j->o.coding = j->qat.coding;
    ok = from && rg_shrink(&report, from, j->args.positional[2], &j->o, err);
    j->bytes = report.bytes;
    rg_shrink_report_fini(&report);
    rg_checkpoint_close(from);
    return ok && score(j, j->args.positional[2], &j->after, err);
}

static bool train_on_grid(shrink_job *j, const rg_checkpoint *ckpt, uint64_t *bytes, rg_error *err)
{
    char work[1100];

    (void)ckpt;
    if (!beside(j, "training", work, err))
        return false;
    j->o.method = rg_shrink_method_find("qat", err);
    if (!j->heal.text)
        j->heal.text = j->text.path;
    const cli_qat_run run = { .args = &j->args,
                              .h = &j->heal,
                              .path = j->path,
                              .work = work,
                              .ids = j->o.ids,
                              .n_samples = j->o.n_samples,
                              .ctx = j->o.ctx,
                              .write = write_qat,
                              .arg = j };
    if (!score(j, j->path, &j->before, err) || !cli_qat_train(&j->qat, &run, err))
        return false;
    *bytes = j->bytes;
    return j->heal.alone || control(j, err);
}

static bool sparsify(shrink_job *j, const rg_checkpoint *ckpt, uint64_t *bytes, rg_error *err)
{
    const rg_sparsity_options o = { .sparsity = (double)j->sparsity,
                                    .greedy = j->greedy,
                                    .n_samples = j->o.n_samples,
                                    .ctx = j->o.ctx,
                                    .progress = j->o.progress,
                                    .progress_arg = j->o.progress_arg,
                                    .stop = j->o.stop };
    rg_stage *s = open_stage(j, ckpt, err);
    rg_buf json;

    *bytes = 0;
    rg_buf_init(&json, 1 << 24);
    bool ok = s && rg_sparsity_calibrate(s, &o, &json, &j->realized, err);
    if (ok && rg_stage_model(s)->config.routing.n_experts > 0)
        snprintf(j->report.warning, sizeof j->report.warning,
                 "experts get no thresholds: their columns are not skipped");
    rg_stage_close(s);
    if (ok)
        return cli_write_file(j->args.positional[2], &json, err);
    rg_buf_fini(&json);
    return false;
}

/* A GGUF type, errors weighing by what its matrices read. */
static bool encode_type(shrink_job *j, const rg_checkpoint *ckpt, uint64_t *bytes, rg_error *err)
{
    const char *to = j->args.positional[2];
    rg_convert_options o = { .n_threads = j->o.n_threads,
                             .vocabulary = j->o.vocabulary,
                             .progress = j->o.progress,
                             .progress_arg = j->o.progress_arg,
                             .stop = j->o.stop };
    rg_convert_report r = { 0 };
    rg_checkpoint *means = NULL;
    char path[1100];

    if (!rg_type_by_name(j->type, &o.type))
        return rg_fail(err, RG_E_USAGE, "shrink: --type '%.40s' is no format", j->type);
    if (snprintf(path, sizeof path, "%s.importance.safetensors", to) >= (int)sizeof path)
        return rg_fail(err, RG_E_USAGE, "%s: the path is too long", to);
    rg_stage *s = open_stage(j, ckpt, err);
    bool ok = s && rg_means_write(s, j->o.n_samples, j->o.ctx, path, err) &&
              (means = rg_checkpoint_open(path, RG_CKPT_DEFAULT, err)) != NULL;
    rg_stage_close(s);
    o.importance = means;
    ok = ok && rg_convert(&r, ckpt, to, &o, err);
    *bytes = r.bytes;
    rg_convert_report_fini(&r);
    rg_checkpoint_close(means);
    rg_path_remove(path);
    return ok && score(j, j->path, &j->before, err) && score(j, to, &j->after, err);
}

/* Fewer K/V heads, K/V that layers share, windows: and the repair. */
static bool recast(shrink_job *j, const rg_checkpoint *ckpt, uint64_t *bytes, rg_error *err)
{
    const char *method = j->args.positional[0];
    const bool heads = !strcmp(method, "gqa"), share = !strcmp(method, "cla");
    const rg_recast_options o = { .n_kv_heads = heads ? j->kv_heads : 0,
                                  .share = share ? j->share : 0,
                                  .window = heads || share ? 0 : j->window,
                                  .full_every = j->full_every };
    rg_config *c = rg_zalloc(sizeof *c);
    bool ok = c || rg_fail_memory(err, sizeof *c);

    if (ok && !(heads ? o.n_kv_heads : share ? o.share : o.window))
        ok = rg_fail(err, RG_E_USAGE, "shrink: %s needs %s", method,
                     heads   ? "--kv-heads N: those that stay"
                     : share ? "--share N: layers side by side that have the same K/V"
                             : "--window N: positions that rows see");
    ok = ok && rg_config_read(c, ckpt, err) && rg_recast(ckpt, c, &o, j->args.positional[2], bytes, err);
    rg_free(c);
    return ok && score(j, j->path, &j->before, err) && score(j, j->args.positional[2], &j->after, err) &&
           repair(j, err);
}

/* K and V as latents, and the repair. */
static bool latents(shrink_job *j, const rg_checkpoint *ckpt, uint64_t *bytes, rg_error *err)
{
    const rg_latent_options o = { .rank = j->rank, .rope_heads = j->rope_heads };
    const char *to = j->args.positional[2];
    rg_stage *s;
    bool ok;

    if (!j->rank)
        return rg_fail(err, RG_E_USAGE, "shrink: mla needs --rank N: numbers of the latent of each position and layer");
    s = open_stage(j, ckpt, err);
    ok = s && rg_latent(ckpt, s, j->o.n_samples, j->o.ctx, &o, to, bytes, err);
    rg_stage_close(s);
    return ok && score(j, j->path, &j->before, err) && score(j, to, &j->after, err) && repair(j, err);
}

/* Bytes of K/V of a position, in bf16, of the model at a path; NAN: they do not grow with a text. */
static double kv_bytes(const char *path)
{
    rg_error ignored = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, &ignored);
    rg_model *m = c ? rg_model_open(c, &(rg_model_options){ .declare_only = true, .kv_type = "bf16" }, &ignored) : NULL;
    const double bytes = m ? (double)rg_state_bytes_per_position(&m->state) : 0;

    rg_model_close(m);
    rg_checkpoint_close(c);
    return bytes > 0 ? bytes : NAN;
}

/* Methods that do not go through a model layer by layer. */
typedef struct whole_method {
    const char *name;
    bool (*run)(shrink_job *j, const rg_checkpoint *ckpt, uint64_t *bytes, rg_error *err);
    bool heals; /* --heal goes with it */
} whole_method;

static const whole_method *whole_method_of(const shrink_job *j)
{
    static const whole_method methods[] = {
        { "prune", prune, true }, { "qat", train_on_grid, true }, { "gqa", recast, true },
        { "mla", latents, true }, { "cla", recast, true },        { "window", recast, true },
        { "sparsity", sparsify, false },
    };
    static const whole_method typed = { "rtn", encode_type, false };
    const char *name = j->args.positional[0];

    for (size_t i = 0; i < RG_LEN(methods); i++)
        if (!strcmp(name, methods[i].name))
            return &methods[i];
    return j->type && !strcmp(name, typed.name) ? &typed : NULL;
}

static bool whole(shrink_job *j, rg_error *err)
{
    static const rg_shrink_method reads = { .name = "prune", .needs = RG_NEED_ROWS };
    uint64_t began = rg_now_ns(), bytes = 0;

    j->before = j->after = j->damaged = j->control = j->realized = j->kv_before = j->kv_after = NAN;
    j->o.method = &reads;
    if (!cli_find_model(j->args.positional[1], j->path, sizeof j->path, err))
        return false;
    rg_checkpoint *ckpt = rg_checkpoint_open(j->path, RG_CKPT_DEFAULT, err);
    bool ok = ckpt && read_text(j, ckpt, err) && whole_method_of(j)->run(j, ckpt, &bytes, err);
    if (ok)
        cli_heal_forget(j->args.positional[2]);
    rg_checkpoint_close(ckpt);
    j->seconds = rg_seconds(began, rg_now_ns());
    if (ok && rg_path_look(j->args.positional[2]) == RG_PATH_DIR) {
        j->kv_before = kv_bytes(j->path);
        j->kv_after = kv_bytes(j->args.positional[2]);
    }
    return ok && report_whole(j, bytes, j->realized, err);
}

static bool set_options(shrink_job *j, rg_error *err)
{
    const cli_common *common = &j->args.common;

    const whole_method *one = whole_method_of(j);
    const bool on_grid = one && one->run == train_on_grid;

    j->o = (rg_shrink_options){ .method = one ? NULL : rg_shrink_method_find(j->args.positional[0], err),
                                .coding = { .bits = j->bits, .sym = j->sym, .group = j->group },
                                .act_order = j->act_order,
                                .static_groups = j->static_groups,
                                .alpha = j->alpha,
                                .n_threads = common->threads ? common->threads : rg_cores(),
                                .vocabulary = rg_tokenizer_export,
                                .progress = cli_progress,
                                .progress_arg = common->quiet ? j : NULL,
                                .stop = cli_interrupted };
    if (!one && !j->o.method)
        return false;
    if ((j->heal.resume || j->heal.save) && !on_grid && !j->heal.text)
        return rg_fail(err, RG_E_USAGE, "shrink: --resume and --save go with --heal and with qat");
    if (j->heal.text && !(one && one->heals))
        return rg_fail(err, RG_E_USAGE, "shrink: --heal goes with prune, qat, gqa, mla, cla and window, not %.20s",
                       j->args.positional[0]);
    if (on_grid) {
        j->qat.g_group = j->group_given;
        j->qat.group = j->group;
        if (!cli_qat_settle(&j->qat, err))
            return false;
        j->to = j->to ? j->to : j->qat.gguf ? "gguf" : "hf";
    }
    j->to = j->to ? j->to : "hf";
    j->o.to_gguf = !strcmp(j->to, "gguf");
    if (!cli_heal_settings(&j->heal, &j->args, on_grid ? j->qat.rate : 1e-3, err))
        return false;
    if (!rg_code_kind_by_name(j->codes, &j->o.coding.kind))
        return rg_fail(err, RG_E_USAGE, "shrink: --codes takes int, float or quantile, not '%.20s'", j->codes);
    if (!j->o.to_gguf && strcmp(j->to, "hf"))
        return rg_fail(err, RG_E_USAGE, "shrink: --to takes hf or gguf, not '%.20s'", j->to);
    j->o.backend = rg_backend_find(common->isa, err);
    return j->o.backend;
}

static int run(int argc, char **argv)
{
    static shrink_job j = { .bits = 4,
                            .group = 128,
                            .alpha = 0.5f,
                            .sparsity = 0.4f,
                            .codes = "int",
                            .qat = { .block_steps = 100 },
                            .rope_heads = 1,
                            .text = { .ctx = 512 } };
    const cli_option options[] = {
        { "--bits", CLI_INT, &j.bits, "N", "of a code (default 4)", 2, 8 },
        { "--group", CLI_INT, &j.group, "N", "columns under a scale (default 128; 0: a whole row)", 0, 1 << 20,
          &j.group_given },
        { "--sym", CLI_FLAG, &j.sym, NULL, "ranges as wide on both sides of zero, without zero points" },
        { "--codes", CLI_STRING, &j.codes, "KIND", "of rtn: int (default), float or quantile" },
        { "--type", CLI_STRING, &j.type, "NAME",
          "rtn: a GGUF type (iq2_s, q3_k, ...), errors weighing by what matrices read on the calibration text" },
        { "--act-order", CLI_FLAG, &j.act_order, NULL, "gptq: columns in falling order of their second derivative" },
        { "--static-groups", CLI_FLAG, &j.static_groups, NULL, "gptq: all scales before the first column is coded" },
        { "--alpha", CLI_FLOAT, &j.alpha, "X", "smoothquant: how much goes from activations to weights (default 0.5)",
          0, 1 },
        { "--layers", CLI_INT, &j.keep_layers, "N", "prune: layers that stay (default: all)", 1, 1024 },
        { "--channels", CLI_INT, &j.keep_channels, "N", "prune: columns of the embedding that stay", 1, 1 << 24 },
        { "--neurons", CLI_INT, &j.keep_neurons, "N", "prune: columns of each MLP that stay", 1, 1 << 24 },
        { "--heads", CLI_INT, &j.keep_heads, "N", "prune: query heads of each layer that stay", 1, 1 << 16 },
        { "--sparsity", CLI_FLOAT, &j.sparsity, "X", "sparsity: share of activations to count as zero (default 0.4)", 0,
          0.98 },
        { "--greedy", CLI_FLAG, &j.greedy, NULL,
          "sparsity: in each layer, most where the layer's output loses least (default: all matrices alike)" },
        { "--calibration", CLI_STRING, &j.text.file, "FILE", "text to watch the model on (default: the shipped one)" },
        { "--samples", CLI_INT, &j.text.n_samples, "N", "of that text (default: what there is, up to 64)", 1, 1 << 20 },
        { "--ctx", CLI_INT, &j.text.ctx, "N", "ids of a sample (default 512, or what the model takes)", 2, 1 << 20 },
        { "--perplexity", CLI_STRING, &j.text.score, "FILE",
          "text to score before and after (default: the last eighth of the calibration text; none: no scores)" },
        { "--kv-heads", CLI_INT, &j.kv_heads, "N", "gqa: K/V heads that stay, each the mean of a group", 1, 1 << 16 },
        { "--rank", CLI_INT, &j.rank, "N", "mla: numbers of the latent that K and V become", 1, 1 << 20 },
        { "--rope-heads", CLI_INT, &j.rope_heads, "N", "mla: K heads that stay rotated (default 1)", 1, 1 << 16 },
        { "--share", CLI_INT, &j.share, "N", "cla: layers side by side that read the K/V of the first of them", 2,
          1024 },
        { "--window", CLI_INT, &j.window, "N", "window: positions that rows see, their own among them", 1, 1 << 24 },
        { "--full-every", CLI_INT, &j.full_every, "N", "window: the last of every N layers still sees all", 2, 1024 },
        CLI_QAT_OPTIONS(j.qat),
        CLI_HEAL_OPTIONS(j.heal),
        { "--to", CLI_STRING, &j.to, "KIND",
          "hf: a directory in a form that other programs read (default, but of qat q4_0 and q8_0); or gguf" },
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_shrink, options, argc, argv);
    if (status >= 0)
        return status;
    if (j.args.n_positional < 3)
        return cli_usage("shrink: METHOD, SRC and DST are needed; see `ridge shrink --help`");
    cli_catch_interrupt();
    bool ok = set_options(&j, &err) && (whole_method_of(&j) ? whole(&j, &err) : work(&j, &err));
    rg_shrink_report_fini(&j.report);
    calibration_fini(&j.text);
    return ok ? EXIT_DONE : cli_fail(&err);
}

static const char *const methods[] = { "rtn",   "gptq",     "awq", "smoothquant", "int8", "fp8",    "outliers",
                                       "prune", "sparsity", "qat", "gqa",         "mla",  "cla",    "window", NULL };

const cli_command cli_shrink = {
    .name = "shrink",
    .arguments = "METHOD SRC DST",
    .summary = "write a smaller model",
    .run = run,
    .n_positional = 3,
    .recipe = "exact",
    .words = methods,
    .notes =
        "METHOD: rtn, gptq, awq, smoothquant, int8, fp8; outliers (not smaller: a copy with outliers, to judge\n"
        "methods on); prune (the least important layers, channels, neurons and heads are left out); sparsity (DST is\n"
        "a file of thresholds, for --sparsity of other commands); qat (trained on the grid of --scheme);\n"
        "gqa, mla, cla, window (less K/V is kept, to be repaired by --heal).  What was "
        "made of each layer is kept in\n"
        "DST.work until DST is written: the same command goes on from there.",
};
