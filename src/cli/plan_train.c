/* plan_train.c -- `ridge plan --train`: what training steps take, as text or JSON. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan.h"
#include "plan/training.h"

bool plan_check_train(const plan_job *j, rg_error *err)
{
    if (!j->train && (j->precision || j->run_tokens))
        return rg_fail(err, RG_E_USAGE, "plan: --precision and --tokens go with --train");
    if (j->precision && strcmp(j->precision, "f32") != 0 && strcmp(j->precision, "bf16") != 0)
        return rg_fail(err, RG_E_USAGE, "plan: --precision '%.20s' is not one of f32, bf16", j->precision);
    if (j->train && (j->params || j->wanted || j->measure || j->what_if || j->show_ops || j->csv || j->svg))
        return rg_fail(err, RG_E_USAGE,
                       "plan: --train goes with CONFIG, --machine, --chips, --batch, --seq, --precision, --tokens and "
                       "--json alone");
    return true;
}

static bool read_tokens(const plan_job *j, double *out, rg_error *err)
{
    char *end = NULL;

    errno = 0;
    *out = j->run_tokens ? strtod(j->run_tokens, &end) : 0;
    if (j->run_tokens && (end == j->run_tokens || *end || errno || !isfinite(*out) || !(*out >= 1)))
        return rg_fail(err, RG_E_USAGE, "plan: --tokens '%.40s' is not a number of ids (as in 1e9)", j->run_tokens);
    return true;
}

static void put_text(const plan_job *j, const rg_plan_machine *m, const rg_plan_training *t, const rg_plan_trained *r)
{
    const struct { const char *name; double bytes; } parts[] = {
        { "weights, and their copy for products", r->weights }, { "gradients and moments", r->optimizer },
        { r->recompute ? "tape of one layer (each runs twice)" : "tapes of all layers", r->tapes },
        { "K/V and their gradients", r->kv }, { "what enters the layers", r->rows },
        { "logits of a block", r->logits }, { "gradients of a layer's values, and the program", r->scratch } };

    printf("%s: training in %s on %s, steps of %lld x %lld ids\n", j->title, t->bf16 ? "bf16 products" : "f32",
           m->title, (long long)t->rows, (long long)t->length);
    printf("a step: %.4g operations (6 N D: %.4g), %.3f s: products %.3f, memory %.3f, update %.3f, waiting "
           "%.3f\n",
           r->ops, r->lecture_ops, r->step_s, r->products_s, r->moved_s, r->update_s, r->waits_s);
    printf("%.0f tokens/s, %.2f of the peak counted as 6 N D; %.4g tokens take %.4g s\n", r->tokens_s, r->peak_share,
           r->run_tokens, r->run_s);
    printf("memory: %.1f MB%s\n", r->total / 1e6,
           r->of > 0 && r->total > r->of ? ", which the machine does not have" : "");
    for (size_t i = 0; i < RG_LEN(parts); i++)
        printf("%10.1f  %s\n", parts[i].bytes / 1e6, parts[i].name);
}

static void put_json(cli_json *out, const rg_plan_machine *m, const rg_plan_training *t, const rg_plan_trained *r)
{
    cli_json_open(out, NULL, '{');
    cli_json_text(out, "machine", m->name);
    cli_json_text(out, "precision", t->bf16 ? "bf16" : "f32");
    cli_json_int(out, "batch", t->rows);
    cli_json_int(out, "seq", t->length);
    cli_json_float(out, "params", r->params);
    cli_json_float(out, "ops", r->ops);
    cli_json_float(out, "lecture_ops", r->lecture_ops);
    cli_json_float(out, "step_s", r->step_s);
    cli_json_float(out, "products_s", r->products_s);
    cli_json_float(out, "memory_s", r->moved_s);
    cli_json_float(out, "update_s", r->update_s);
    cli_json_float(out, "waits_s", r->waits_s);
    cli_json_float(out, "tokens_s", r->tokens_s);
    cli_json_float(out, "peak_share", r->peak_share);
    cli_json_float(out, "tokens", r->run_tokens);
    cli_json_float(out, "run_s", r->run_s);
    cli_json_float(out, "memory_bytes", r->total);
    cli_json_float(out, "weights_bytes", r->weights);
    cli_json_float(out, "optimizer_bytes", r->optimizer);
    cli_json_float(out, "tape_bytes", r->tapes);
    cli_json_bool(out, "recompute", r->recompute);
    cli_json_bool(out, "fits", !(r->of > 0 && r->total > r->of));
    cli_json_close(out);
}

bool plan_train(plan_job *j, rg_error *err)
{
    rg_plan_training t = { .rows = j->batch.given ? j->batch.item[0] : 16,
                           .length = j->seq.given ? j->seq.item[0] : 256,
                           .micro = 1,
                           .bf16 = j->precision && !strcmp(j->precision, "bf16") };
    rg_plan_trained all[PLAN_MACHINES];
    cli_json *out;

    if (!read_tokens(j, &t.run_tokens, err))
        return false;
    for (int i = 0; i < j->n_machines; i++)
        if (!rg_plan_train(j->model, &j->machine[i], &t, &all[i], err))
            return false;
    for (int i = 0; i < j->n_machines && !j->args.common.json; i++)
        put_text(j, &j->machine[i], &t, &all[i]);
    if (!j->args.common.json)
        return true;
    out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_json_open(out, "train", '[');
    for (int i = 0; i < j->n_machines; i++)
        put_json(out, &j->machine[i], &t, &all[i]);
    cli_json_close(out);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "plan: standard output cannot be written");
}
