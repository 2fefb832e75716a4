/* train.c -- `ridge train`: a model from a config, or a checkpoint trained on, wholly or by LoRA. */
#include <stdio.h>

#include "cli/training.h"
#include "train/lora.h"
#include "train/masked.h"
#include "train/medusa.h"

extern const cli_command cli_train;

typedef struct job {
    cli_args args;
    cli_training t;
    int32_t lora;
    float lora_alpha;
    rg_lora *deltas;
    int32_t n_heads;
    float head_weight;
    rg_medusa *heads;  /* trained in place of the model */
    rg_masked *masked; /* what a diffusion model learns */
} job;

static bool make_deltas(job *j, rg_error *err)
{
    if (!j->lora)
        return true;
    if (j->t.from_scratch)
        return rg_fail(err, RG_E_USAGE, "train: --lora changes a trained model, and %s has no weights", j->t.path);
    j->deltas =
        rg_lora_new(j->t.masters, j->lora, j->lora_alpha > 0 ? (double)j->lora_alpha : 2.0 * j->lora, j->t.s.seed, err);
    return j->deltas;
}

static bool report(const job *j, rg_error *err)
{
    if (!j->args.common.json) {
        printf("%lld steps, loss %.6g, written to %s\n", (long long)rg_training_done(j->t.run),
               cli_training_loss(&j->t), j->t.out);
        return true;
    }
    cli_json *out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_training_json(&j->t, out);
    cli_json_text(out, "output", j->t.out);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "train: standard output cannot be written");
}

static bool make_heads(job *j, rg_error *err)
{
    if (!j->n_heads)
        return true;
    if (j->lora || j->t.from_scratch)
        return rg_fail(err, RG_E_USAGE, "train: --medusa trains heads of a model that stays as it is: not with %s",
                       j->lora ? "--lora" : "a new model");
    j->heads = rg_medusa_new(j->t.masters, j->n_heads, (double)j->head_weight, err);
    return j->heads;
}

static bool make_masks(job *j, rg_error *err)
{
    const rg_config *c = &rg_masters_model(j->t.masters)->config;

    if (c->diffusion.mask_id >= 0 && !j->heads)
        j->masked = rg_masked_new(c, j->t.s.seed, 1, err);
    return j->masked || err->code == RG_OK;
}

static bool write_out(const job *j, rg_error *err)
{
    if (j->deltas)
        return rg_lora_write(j->deltas, j->t.out, j->t.path, err);
    if (j->heads)
        return rg_medusa_write(j->heads, j->t.out, j->t.path, j->t.as, err);
    return cli_training_write(&j->t, err);
}

static bool work(job *j, rg_error *err)
{
    rg_stand_in deltas;
    rg_objective other;

    if (!cli_training_open(&j->t, err) || !make_deltas(j, err) || !make_heads(j, err) || !make_masks(j, err) ||
        !cli_training_feed(&j->t, err))
        return false;
    if (j->deltas)
        deltas = rg_lora_stand_in(j->deltas);
    if (j->heads)
        other = rg_medusa_objective(j->heads);
    else if (j->masked)
        other = rg_masked_objective(j->masked);
    return cli_training_begin(&j->t, j->deltas ? &deltas : NULL, j->heads || j->masked ? &other : NULL, err) &&
           cli_training_run(&j->t, err) && write_out(j, err) && cli_training_picture(&j->t, err) && report(j, err);
}

static int run(int argc, char **argv)
{
    static job j = { .t = { .save = CLI_TRAINING_SAVE }, .head_weight = 0.8f };
    const cli_option options[] = {
        CLI_TRAINING_OPTIONS(j.t),
        { "--lora", CLI_INT, &j.lora, "RANK", "train low-rank deltas; DIR becomes a PEFT folder", 1, 1024 },
        { "--lora-alpha", CLI_FLOAT, &j.lora_alpha, "X", "their scale times the rank (default: twice the rank)", 0,
          1e6 },
        { "--medusa", CLI_INT, &j.n_heads, "N", "train N Medusa heads of the model, for --draft medusa:DIR", 1, 16 },
        { "--head-weight", CLI_FLOAT, &j.head_weight, "X", "medusa: how much each head counts beside the one before",
          0.01, 10 },
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_train, options, argc, argv);
    if (status >= 0)
        return status;
    if (!j.args.n_positional)
        return cli_usage("train: MODEL or CONFIG is needed; see `ridge train --help`");
    cli_catch_interrupt();
    j.t.args = &j.args;
    bool ok = work(&j, &err);
    rg_lora_free(j.deltas);
    rg_medusa_free(j.heads);
    rg_masked_free(j.masked);
    cli_training_close(&j.t);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_train = {
    .name = "train",
    .arguments = "MODEL|CONFIG --data FILE -o DIR",
    .summary = "a model from a config, or a checkpoint trained on",
    .notes =
        "CONFIG is a config.json: a new model.  MODEL is a Hugging Face folder, which is trained on wholly or, with\n"
        "--lora, by low-rank deltas.  Diffusion models learn to fill in masks.  A run that was stopped goes on from "
        "its last checkpoint with --resume.",
    .run = run,
    .n_positional = 1,
    .recipe = "exact",
};
