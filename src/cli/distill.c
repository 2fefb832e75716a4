/* distill.c -- `ridge distill`: a model learns from another one's distributions. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/training.h"
#include "train/distill.h"

extern const cli_command cli_distill;

typedef struct job {
    cli_args args;
    cli_training t;
    const char *teacher, *loss, *positions, *store;
    float temperature;
    int32_t top_k, draws;
    bool hidden;
    char path[1024]; /* of the teacher */
    rg_distill_options o;
    rg_checkpoint *from;
    rg_teacher *model;
    rg_samples *samples;
    rg_distill *distill, *judge; /* judge: forward KL at T = 1 */
    double before, after;
} job;

static bool check_flags(job *j, rg_error *err)
{
    rg_divergence *d = &j->o.loss;

    *d = (rg_divergence){ .kind = RG_FORWARD_KL, .temperature = (double)j->temperature, .k = j->top_k };
    if (!j->teacher)
        return rg_fail(err, RG_E_USAGE, "distill: --teacher MODEL is needed: the model that is learnt from");
    if (j->loss && !rg_divergence_by_name(j->loss, &d->kind))
        return rg_fail(err, RG_E_USAGE, "distill: --loss '%.20s' is not one of forward, reverse, topk, sampled",
                       j->loss);
    if (j->positions && strcmp(j->positions, "all") && strcmp(j->positions, "targets"))
        return rg_fail(err, RG_E_USAGE, "distill: --positions '%.20s' is not one of all, targets", j->positions);
    if (d->kind == RG_SAMPLED_KL && d->temperature != 1)
        return rg_fail(err, RG_E_USAGE,
                       "distill: ids are drawn at temperature 1: --temperature does not go with "
                       "--loss sampled");
    if (j->store && d->kind != RG_SAMPLED_KL)
        return rg_fail(err, RG_E_USAGE, "distill: --store keeps drawn ids: it goes with --loss sampled alone");
    j->o.targets_alone = j->positions && !strcmp(j->positions, "targets");
    j->o.outputs = j->hidden;
    j->o.draws = j->draws;
    j->o.seed = j->t.s.seed;
    return true;
}

static bool open_teacher(job *j, rg_error *err)
{
    if (!cli_find_model(j->teacher, j->path, sizeof j->path, err))
        return false;
    j->from = rg_checkpoint_open(j->path, RG_CKPT_DEFAULT, err);
    j->model = j->from ? rg_teacher_open(j->from, j->t.backend,
                                         &(rg_passes_options){ .n_threads = j->t.n_threads, .pool = j->t.pool }, err)
                       : NULL;
    if (j->model && j->store) {
        j->samples = rg_samples_open(j->store,
                                     &(rg_samples_kind){ .draws = j->draws,
                                                         .vocab_size = rg_teacher_config(j->model)->vocab_size,
                                                         .seed = j->o.seed,
                                                         .teacher = rg_teacher_number(j->model) },
                                     err);
        j->o.store = j->samples;
    }
    return j->model && (!j->store || j->samples);
}

static bool make_distill(job *j, rg_error *err)
{
    const rg_distill_options plain = { .loss = { RG_FORWARD_KL, 1, 0 }, .targets_alone = j->o.targets_alone };

    j->distill = rg_distill_new(j->model, j->t.masters, &j->o, err);
    j->judge = j->distill ? rg_distill_new(j->model, j->t.masters, &plain, err) : NULL;
    return j->judge;
}

/* Forward KL on a batch that the run comes to last, or never. */
static bool judge(job *j, double *kl, rg_error *err)
{
    const rg_objective o = rg_distill_objective(j->judge);
    const rg_texts *texts;

    return rg_feed_held(j->t.feed, j->t.last, &texts, err) && rg_training_loss(j->t.run, &o, texts, kl, err);
}

static bool train(job *j, rg_error *err)
{
    const rg_objective o = rg_distill_objective(j->distill);

    return cli_training_begin(&j->t, NULL, &o, err) && judge(j, &j->before, err) && cli_training_run(&j->t, err) &&
           judge(j, &j->after, err);
}

static bool report(const job *j, rg_error *err)
{
    const int64_t positions = j->samples ? rg_samples_positions(j->samples) : 0;
    const double each = positions ? (double)rg_samples_bytes(j->samples) / (double)positions : NAN;

    if (!j->args.common.json) {
        printf("%lld steps, loss %.6g; KL to the teacher %.6g before, %.6g after; written to %s\n",
               (long long)rg_training_done(j->t.run), cli_training_loss(&j->t), j->before, j->after, j->t.out);
        if (positions)
            printf("%s: drawn ids of %lld positions, %.1f bytes each\n", j->store, (long long)positions, each);
        return true;
    }
    cli_json *out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_training_json(&j->t, out);
    cli_json_float(out, "kl_before", j->before);
    cli_json_float(out, "kl_after", j->after);
    if (j->samples) {
        cli_json_int(out, "stored_positions", positions);
        cli_json_float(out, "stored_bytes_per_position", each);
    }
    cli_json_text(out, "output", j->t.out);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "distill: standard output cannot be written");
}

static bool work(job *j, rg_error *err)
{
    return cli_training_open(&j->t, err) && check_flags(j, err) && open_teacher(j, err) && make_distill(j, err) &&
           cli_training_feed(&j->t, err) && train(j, err) && cli_training_write(&j->t, err) &&
           cli_training_picture(&j->t, err) && report(j, err);
}

static int run(int argc, char **argv)
{
    static job j = { .t = { .save = CLI_TRAINING_SAVE }, .temperature = 1, .top_k = 50, .draws = 50 };
    const cli_option options[] = {
        { "--teacher", CLI_STRING, &j.teacher, "MODEL", "the model that is learnt from" },
        { "--loss", CLI_STRING, &j.loss, "NAME", "forward KL (the default), reverse KL, topk with a rest, sampled" },
        { "--temperature", CLI_FLOAT, &j.temperature, "T", "of both models' distributions (default: 1)", 0.01, 100 },
        { "--top-k", CLI_INT, &j.top_k, "K", "topk: the teacher's best ids (default: 50)", 1, 1 << 20 },
        { "--draws", CLI_INT, &j.draws, "N", "sampled: ids drawn for a position (default: 50)", 1, RG_MOST_DRAWS },
        { "--store", CLI_STRING, &j.store, "FILE", "sampled: drawn ids are kept here, and found again by another run" },
        { "--hidden-loss", CLI_FLAG, &j.hidden, NULL, "what layers give counts too, as much as the logits" },
        { "--positions", CLI_STRING, &j.positions, "WHICH", "all that count (the default), or those with targets" },
        CLI_TRAINING_OPTIONS(j.t),
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_distill, options, argc, argv);
    if (status >= 0)
        return status;
    if (!j.args.n_positional)
        return cli_usage("distill: STUDENT is needed; see `ridge distill --help`");
    cli_catch_interrupt();
    j.t.args = &j.args;
    bool ok = work(&j, &err);
    rg_distill_free(j.judge);
    rg_distill_free(j.distill);
    rg_samples_close(j.samples);
    rg_teacher_close(j.model);
    cli_training_close(&j.t);
    rg_checkpoint_close(j.from);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_distill = {
    .name = "distill",
    .arguments = "STUDENT --teacher MODEL --data FILE -o DIR",
    .summary = "a model learns from another one's distributions",
    .notes =
        "STUDENT is a Hugging Face folder, or a config.json: a new model.  The teacher is any model; it runs in this\n"
        "process.  A run that was stopped goes on from its last checkpoint with --resume.",
    .run = run,
    .n_positional = 1,
    .recipe = "exact",
};
