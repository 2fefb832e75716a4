/* train.c -- `ridge train`: a model from a config, or a checkpoint trained on, wholly or by LoRA. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/training.h"
#include "model/nulls.h"
#include "train/drafting.h"
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
    bool eagle, eagle3, mtp;
    const char *network;
    int32_t n_steps, n_ids, ffn_dim;
    float noise;
    const char *balance; /* the weight of the loss that balances experts, as it was given */
    rg_balanced balanced;
    rg_checkpoint *drafter;
    rg_drafting *drafting; /* likewise */
} job;

enum { COUNTED_STEPS = 200 };

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

    if (c->diffusion.mask_id >= 0 && !j->heads && !j->eagle && !j->eagle3 && !j->mtp)
        j->masked = rg_masked_new(c, j->t.s.seed, 1, err);
    return j->masked || err->code == RG_OK;
}

/* How often each id stands in the first batches, which the run then begins with. */
static bool count_ids(const job *j, int64_t *counts, rg_error *err)
{
    const rg_feed_place from = rg_feed_place_of(j->t.feed);
    const rg_texts *micro;
    bool ok = true;

    for (int s = 0; ok && s < COUNTED_STEPS && s < j->t.last; s++) {
        ok = rg_feed_next(j->t.feed, &micro, err);
        for (int m = 0; ok && m < j->t.s.micro; m++)
            for (int i = 0; i < micro[m].rows * micro[m].length; i++)
                counts[micro[m].ids[i]]++;
    }
    rg_feed_go_to(j->t.feed, from);
    return ok;
}

static bool create_network(const job *j, rg_error *err)
{
    const int vocab = rg_masters_model(j->t.masters)->config.vocab_size;
    int64_t *counts = rg_array((size_t)vocab, sizeof *counts);
    bool ok = counts || rg_fail_memory(err, (size_t)vocab * sizeof *counts);

    for (int i = 0; ok && i < vocab; i++)
        counts[i] = 0;
    ok = ok && count_ids(j, counts, err) &&
         rg_drafting_create(j->t.out, j->t.masters,
                            &(rg_drafting_shape){ .kind = j->eagle3 ? RG_DRAFTING_EAGLE3 : RG_DRAFTING_EAGLE,
                                                  .ffn_dim = j->ffn_dim,
                                                  .n_ids = j->eagle3 && j->n_ids && j->n_ids < vocab ? j->n_ids : vocab,
                                                  .counts = counts,
                                                  .seed = j->t.s.seed },
                            err);
    rg_free(counts);
    return ok;
}

/* The network that the run begins with: one that is given, that of the run that goes on, or a new one. */
static bool open_network(job *j, rg_error *err)
{
    char config[1200];
    const char *from = j->network ? j->network : j->t.out;

    if (j->mtp)
        return true;
    snprintf(config, sizeof config, "%s/config.json", j->t.out);
    if (!j->network && !(j->t.resume && rg_path_look(config) == RG_PATH_FILE) &&
        !(rg_dir_make(j->t.out, err) && create_network(j, err)))
        return false;
    j->drafter = rg_checkpoint_open(from, RG_CKPT_DEFAULT, err);
    return j->drafter;
}

static bool check_network(const job *j, rg_error *err)
{
    const char *name = j->eagle ? "--eagle" : j->eagle3 ? "--eagle3" : "--mtp";
    const char *other = j->t.from_scratch                   ? "a new model"
                        : j->lora                           ? "--lora"
                        : j->n_heads                        ? "--medusa"
                        : j->eagle + j->eagle3 + j->mtp > 1 ? "another network"
                                                            : NULL;

    if (!j->eagle && !j->eagle3 && !j->mtp)
        return true;
    return !other || rg_fail(err, RG_E_USAGE,
                             "train: %s trains one network for a model that stays as it is: not with %s", name, other);
}

static bool make_network(job *j, rg_error *err)
{
    const rg_drafting_kind kind = j->eagle ? RG_DRAFTING_EAGLE : j->eagle3 ? RG_DRAFTING_EAGLE3 : RG_DRAFTING_MODULE;

    if (!j->eagle && !j->eagle3 && !j->mtp)
        return true;
    if (!open_network(j, err))
        return false;
    j->drafting = rg_drafting_new(j->t.masters, j->mtp ? j->t.ckpt : j->drafter,
                                  &(rg_drafting_options){ .kind = kind,
                                                          .n_steps = j->n_steps,
                                                          .weight = (double)j->head_weight,
                                                          .noise = (double)j->noise,
                                                          .seed = j->t.s.seed,
                                                          .init_std = j->t.s.init_std },
                                  j->t.backend,
                                  &(rg_passes_options){ .n_threads = j->t.n_threads,
                                                        .pool = j->t.pool,
                                                        .bf16 = j->t.s.precision == RG_PRECISION_BF16 },
                                  err);
    j->t.trained = j->drafting ? rg_drafting_masters(j->drafting) : NULL;
    return j->drafting;
}

/* The weight of the loss that balances experts: as asked for, or, where config.json has its training read routers
 * (output_router_logits), the one that it says. */
static bool find_balance(const job *j, double *weight, rg_error *err)
{
    double from_config = 0.001;
    bool on = false;
    char rest;

    if (rg_config_float(j->t.ckpt, "router_aux_loss_coef", &from_config, err) < 0 ||
        rg_config_flag(j->t.ckpt, "output_router_logits", &on, err) < 0)
        return false;
    if (!j->balance || !strcmp(j->balance, "config"))
        *weight = j->balance || (on && rg_masters_model(j->t.masters)->config.routing.n_experts) ? from_config : 0;
    else if (sscanf(j->balance, "%lf%c", weight, &rest) != 1 || !(*weight >= 0 && *weight <= 1000))
        return rg_fail(err, RG_E_USAGE, "train: --balance '%.40s' is neither a weight from 0 to 1000 nor `config`",
                       j->balance);
    return true;
}

/* What is made small; *own is false where that is cross-entropy alone. */
static bool choose_objective(job *j, rg_objective *to, bool *own, rg_error *err)
{
    double weight;

    *own = true;
    if (!find_balance(j, &weight, err))
        return false;
    if (j->heads)
        *to = rg_medusa_objective(j->heads);
    else if (j->drafting)
        *to = rg_drafting_objective(j->drafting);
    else if (j->masked)
        *to = rg_masked_objective(j->masked);
    else if (weight > 0)
        *to = rg_balanced_next_ids(&j->balanced, weight);
    else
        *own = false;
    return !(j->balance && weight > 0 && (j->heads || j->drafting || j->masked)) ||
           rg_fail(err, RG_E_USAGE, "train: --balance is a part of the loss of models that continue texts: not with %s",
                   j->heads || j->drafting ? "networks that draft" : "a diffusion model");
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
    bool has_own;

    if (!cli_training_open(&j->t, err) || !check_network(j, err) || !make_deltas(j, err) || !make_heads(j, err) ||
        !make_masks(j, err) || !cli_training_feed(&j->t, err) || !make_network(j, err) ||
        !choose_objective(j, &other, &has_own, err))
        return false;
    if (j->deltas)
        deltas = rg_lora_stand_in(j->deltas);
    return cli_training_begin(&j->t, j->deltas ? &deltas : NULL, has_own ? &other : NULL, err) &&
           cli_training_run(&j->t, err) && write_out(j, err) && cli_training_picture(&j->t, err) && report(j, err);
}

static int run(int argc, char **argv)
{
    static job j = { .t = { .save = CLI_TRAINING_SAVE }, .head_weight = 0.8f, .n_steps = 3, .noise = 0.2f };
    const cli_option options[] = {
        CLI_TRAINING_OPTIONS(j.t),
        { "--lora", CLI_INT, &j.lora, "RANK", "train low-rank deltas; DIR becomes a PEFT folder", 1, 1024 },
        { "--lora-alpha", CLI_FLOAT, &j.lora_alpha, "X", "their scale times the rank (default: twice the rank)", 0,
          1e6 },
        { "--balance", CLI_STRING, &j.balance, "X",
          "weight of the loss by which experts are used alike, or `config`: router_aux_loss_coef (default: 0)" },
        { "--medusa", CLI_INT, &j.n_heads, "N", "train N Medusa heads of the model, for --draft medusa:DIR", 1, 16 },
        { "--eagle", CLI_FLAG, &j.eagle, NULL, "train an EAGLE network of the model, for --draft eagle:DIR" },
        { "--eagle3", CLI_FLAG, &j.eagle3, NULL, "likewise an EAGLE-3 network" },
        { "--mtp", CLI_FLAG, &j.mtp, NULL,
          "train the module for further tokens that MODEL brings, or a new one; DIR is MODEL with it" },
        { "--network", CLI_STRING, &j.network, "PATH", "eagle, eagle3: begin with this network (default: a new one)" },
        { "--draft-steps", CLI_INT, &j.n_steps, "N", "eagle3: ids by which rows are continued in training (default: 3)",
          1, RG_DRAFTING_STEPS },
        { "--draft-vocab", CLI_INT, &j.n_ids, "N", "eagle3: guess the N commonest ids alone (default: all)", 1, 1e9 },
        { "--draft-ffn", CLI_INT, &j.ffn_dim, "N", "eagle, eagle3: width of its MLP (default: the model's)", 1, 1e6 },
        { "--noise", CLI_FLOAT, &j.noise, "X", "eagle: features get even noise of this width (default: 0.2)", 0, 100 },
        { "--head-weight", CLI_FLOAT, &j.head_weight, "X",
          "medusa, eagle3: how much each head or step counts beside the one before (default: 0.8)", 0.01, 10 },
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
    rg_training_free(j.t.run); /* it borrows what follows */
    j.t.run = NULL;
    rg_lora_free(j.deltas);
    rg_medusa_free(j.heads);
    rg_masked_free(j.masked);
    rg_drafting_free(j.drafting);
    rg_checkpoint_close(j.drafter);
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
