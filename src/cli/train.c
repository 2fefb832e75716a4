/* train.c -- `ridge train`: a model from a config, or a checkpoint trained on, wholly or by LoRA. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/curve.h"
#include "train/init.h"
#include "train/training.h"

extern const cli_command cli_train;

enum { SETTINGS_CAP = 1 << 20, UNKNOWN_CAP = 4096, SAVE_STEPS = 100 };

static const char *const tokenizer_files[] = { "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                               "generation_config.json", "chat_template.jinja" };

typedef struct job {
    cli_args args;
    cli_strings data;
    const char *batches, *settings_file, *init, *out, *tokenizer, *log, *svg, *schedule, *type, *pack;
    bool resume, beta_given;
    float beta1, beta2;
    int32_t lora, save, last; /* last: the step at which the run ends */
    float lora_alpha;
    cli_strings beta;
    rg_train_settings s;
    /* Flags over settings: */
    int32_t steps, accumulate, batch, length, warmup;
    float lr, floor, decay, clip, eps, init_std;
    uint64_t seed;
    bool g_steps, g_accumulate, g_batch, g_length, g_warmup, g_lr, g_floor, g_decay, g_clip, g_eps, g_init, g_seed;
    rg_type as;
    char path[1024], saved[1200];
    const rg_backend *backend;
    int n_threads;
    rg_checkpoint *ckpt;
    bool from_scratch;
    rg_tokenizer *tokens;
    rg_masters *masters;
    rg_pool *pool;
    rg_feed *feed;
    rg_lora *deltas;
    rg_training *run;
    cli_curve curve;
} job;

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static bool read_settings(job *j, rg_error *err)
{
    rg_buf unknown;
    size_t n;
    char *text = rg_file_slurp(j->settings_file, SETTINGS_CAP, &n, err);
    bool ok;

    rg_buf_init(&unknown, UNKNOWN_CAP);
    ok = text && rg_train_settings_read(&j->s, text, n, &unknown, err);
    if (ok && unknown.n && !j->args.common.quiet)
        fprintf(stderr, "ridge: train: %s: these are no settings of training, and change nothing: %s\n",
                j->settings_file, unknown.data);
    rg_buf_fini(&unknown);
    rg_free(text);
    return ok;
}

/* "0.9,0.95" */
static bool take_betas(job *j, rg_error *err)
{
    double a, b;
    char rest;

    for (int i = 0; i < j->beta.n; i++) {
        const int got = sscanf(j->beta.item[i], "%lf,%lf%c", &a, &b, &rest);

        if (got == 2) {
            j->s.beta1 = a;
            j->s.beta2 = b;
        } else if (got == 1 && i < 2 && sscanf(j->beta.item[i], "%lf%c", &a, &rest) == 1) {
            *(i ? &j->s.beta2 : &j->s.beta1) = a;
        } else {
            return rg_fail(err, RG_E_USAGE, "train: --beta '%.40s' is no pair of numbers, as in 0.9,0.95",
                           j->beta.item[i]);
        }
    }
    return true;
}

/* The number that a flag's f32 was read from: 0.002, not 0.00200000009. */
static double as_written(float x)
{
    char text[32];
    double v = (double)x;

    snprintf(text, sizeof text, "%.7g", v);
    return sscanf(text, "%lf", &v) == 1 ? v : (double)x;
}

static bool make_settings(job *j, rg_error *err)
{
    rg_train_settings *s = &j->s;

    *s = rg_train_settings_default();
    if (j->settings_file && !read_settings(j, err))
        return false;
    s->steps = j->g_steps ? j->steps : s->steps;
    s->micro = j->g_accumulate ? j->accumulate : s->micro;
    s->rows = j->g_batch ? j->batch : s->rows;
    s->length = j->g_length ? j->length : s->length;
    s->peak = j->g_lr ? as_written(j->lr) : s->peak;
    s->floor = j->g_floor ? as_written(j->floor) : s->floor;
    s->weight_decay = j->g_decay ? as_written(j->decay) : s->weight_decay;
    s->clip = j->g_clip ? as_written(j->clip) : s->clip;
    s->eps = j->g_eps ? as_written(j->eps) : s->eps;
    s->init_std = j->g_init ? as_written(j->init_std) : s->init_std;
    s->seed = j->g_seed ? j->seed : s->seed;
    if (j->g_warmup)
        s->warmup = j->warmup;
    else if (s->warmup > s->steps / 2 && !j->settings_file)
        s->warmup = s->steps / 20;
    if (j->schedule && !rg_rate_shape_by_name(j->schedule, &s->schedule))
        return rg_fail(err, RG_E_USAGE, "train: --schedule '%.20s' is not one of cosine, linear, constant",
                       j->schedule);
    return take_betas(j, err) && rg_train_settings_check(s, err);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool check_flags(job *j, rg_error *err)
{
    if (!j->out)
        return rg_fail(err, RG_E_USAGE, "train: -o DIR is needed: where the model is written");
    if (!j->batches == !j->data.n)
        return rg_fail(err, RG_E_USAGE, "train: one of --data and --batches is needed");
    if (j->type && !rg_type_by_name(j->type, &j->as))
        return rg_fail(err, RG_E_USAGE, "train: --type '%.20s' is not one of f32, bf16, f16", j->type);
    j->as = j->type ? j->as : RG_F32;
    if (j->as != RG_F32 && j->as != RG_BF16 && j->as != RG_F16)
        return rg_fail(err, RG_E_USAGE, "train: --type '%.20s' is not one of f32, bf16, f16", j->type);
    if (j->pack && strcmp(j->pack, "apart") && strcmp(j->pack, "joined"))
        return rg_fail(err, RG_E_USAGE, "train: --pack '%.20s' is not one of apart, joined", j->pack);
    return true;
}

/* A config.json, or a name under the models folder, or a checkpoint. */
static bool open_model(job *j, rg_error *err)
{
    const rg_config *c;

    if (rg_path_look(j->args.positional[0]) != RG_PATH_NONE)
        snprintf(j->path, sizeof j->path, "%s", j->args.positional[0]);
    else if (!cli_find_model(j->args.positional[0], j->path, sizeof j->path, err))
        return false;
    j->ckpt = rg_checkpoint_open(j->path, RG_CKPT_NO_WEIGHTS, err);
    if (!j->ckpt)
        return false;
    if (rg_checkpoint_kind(j->ckpt) != RG_CKPT_HF)
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "%s: a GGUF file is not trained: convert it to a Hugging Face folder by `ridge quantize` first",
                       j->path);
    j->from_scratch = rg_checkpoint_n_tensors(j->ckpt) == 0;
    if (j->from_scratch && j->lora)
        return rg_fail(err, RG_E_USAGE, "train: --lora changes a trained model, and %s has no weights", j->path);
    j->masters = rg_masters_open(j->ckpt, j->backend, err);
    if (!j->masters)
        return false;
    c = &rg_masters_model(j->masters)->config;
    if (!rg_config_has_logits(c))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: an encoder, or a model without a head, predicts no ids", j->path);
    return true;
}

static bool make_weights(job *j, rg_error *err)
{
    rg_checkpoint *from;
    bool ok = true;

    if (j->init) {
        from = rg_path_look(j->init) == RG_PATH_DIR ? rg_checkpoint_open(j->init, RG_CKPT_DEFAULT, err)
                                                    : rg_checkpoint_open_tensors(j->init, err);
        ok = from && rg_masters_init_from(j->masters, from, err);
        rg_checkpoint_close(from);
    } else if (j->from_scratch) {
        ok = rg_masters_init(j->masters, j->s.init_std, j->s.seed, err);
    }
    if (ok && j->lora) {
        j->deltas =
            rg_lora_new(j->masters, j->lora, j->lora_alpha > 0 ? (double)j->lora_alpha : 2.0 * j->lora, j->s.seed, err);
        ok = j->deltas;
    }
    return ok;
}

static bool open_tokenizer(job *j, rg_error *err)
{
    rg_error why = { 0 };

    if (j->batches)
        return true;
    j->tokens = j->tokenizer ? rg_tokenizer_open_path(j->tokenizer, &why)
                             : rg_tokenizer_open_for(j->ckpt, rg_masters_model(j->masters)->config.vocab_size, &why);
    if (!j->tokens && (why.code != RG_OK || j->tokenizer)) {
        *err = why;
        return false;
    }
    if (j->tokens && rg_tokenizer_size(j->tokens) > rg_masters_model(j->masters)->config.vocab_size)
        return rg_fail(err, RG_E_INPUT, "the tokenizer has %d ids, and the config a vocab_size of %d",
                       rg_tokenizer_size(j->tokens), rg_masters_model(j->masters)->config.vocab_size);
    return true;
}

static bool open_run(job *j, rg_error *err)
{
    j->feed = rg_feed_open(&(rg_feed_options){ .batches = j->batches,
                                               .files = j->data.item,
                                               .n_files = j->data.n,
                                               .joined = j->pack && !strcmp(j->pack, "joined"),
                                               .tokenizer = j->tokens,
                                               .vocab_size = rg_masters_model(j->masters)->config.vocab_size },
                           &j->s, err);
    if (j->feed && rg_feed_steps(j->feed) < j->s.steps && !j->g_steps && !j->settings_file) {
        j->s.steps = (int32_t)rg_feed_steps(j->feed);
        j->s.warmup = j->g_warmup || j->s.warmup <= j->s.steps / 2 ? j->s.warmup : j->s.steps / 20;
    }
    j->last = j->s.steps;
    if (j->feed && rg_feed_steps(j->feed) < j->last) { /* the rate is that of the whole run */
        j->last = (int32_t)rg_feed_steps(j->feed);
        if (!j->args.common.quiet)
            fprintf(stderr, "ridge: train: %s has batches for the first %d of %d steps\n", j->batches, j->last,
                    j->s.steps);
    }
    j->pool = j->feed ? rg_pool_new(j->n_threads, err) : NULL;
    if (!j->pool)
        return false;
    j->run = rg_training_new(&(rg_training_options){ .masters = j->masters,
                                                     .lora = j->deltas,
                                                     .feed = j->feed,
                                                     .settings = &j->s,
                                                     .backend = j->backend,
                                                     .pool = j->pool,
                                                     .n_threads = j->n_threads },
                             err);
    if (!j->run || !rg_dir_make(j->out, err))
        return false;
    snprintf(j->saved, sizeof j->saved, "%s/checkpoint.safetensors", j->out);
    if (j->resume) {
        const int got = rg_training_resume(j->run, j->saved, err);

        if (got < 0)
            return false;
        if (!got && !j->args.common.quiet)
            fprintf(stderr, "ridge: train: there is no checkpoint in %s: the run begins anew\n", j->out);
    }
    return cli_curve_open(&j->curve, j->log, rg_training_done(j->run), err);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static void tell(const job *j, const rg_training_step *s)
{
    char text[160];

    snprintf(text, sizeof text, "step %lld of %d, loss %.4f, %.0f tokens/s", (long long)s->step, j->s.steps, s->loss,
             (double)s->n_tokens / s->seconds);
    cli_progress(j->args.common.quiet ? (void *)(uintptr_t)j : NULL, text, (double)s->step / j->s.steps);
}

static bool train(job *j, rg_error *err)
{
    rg_training_step s = { 0 };
    bool ok = true;

    while (ok && rg_training_done(j->run) < j->last) {
        if (cli_interrupted()) {
            ok = rg_training_save(j->run, j->saved, err);
            return ok && rg_fail(err, RG_E_IO, "train: interrupted after %lld of %d steps; --resume goes on from there",
                                 (long long)rg_training_done(j->run), j->s.steps);
        }
        ok = rg_training_next(j->run, &s, err);
        ok = ok && cli_curve_add(&j->curve, &s, err);
        if (ok)
            tell(j, &s);
        if (ok && (s.step % j->save == 0 || s.step == j->last))
            ok = rg_training_save(j->run, j->saved, err);
    }
    return ok;
}

/* The files of a tokenizer that lies elsewhere than the model. */
static bool copy_tokenizer(const job *j, rg_error *err)
{
    char from[4096], to[4096];
    bool ok = true;

    for (size_t i = 0; ok && j->tokenizer && i < RG_LEN(tokenizer_files); i++) {
        const bool is_dir = rg_path_look(j->tokenizer) == RG_PATH_DIR;
        size_t n;

        if (is_dir ? !rg_path_join(from, sizeof from, j->tokenizer, tokenizer_files[i])
                   : snprintf(from, sizeof from, "%s", j->tokenizer) >= (int)sizeof from)
            return rg_fail(err, RG_E_INPUT, "%s: the path is too long", j->tokenizer);
        if ((!is_dir && i) || rg_path_look(from) != RG_PATH_FILE)
            continue;
        char *text = rg_file_slurp(from, (size_t)1 << 28, &n, err);
        rg_writer *w = text && rg_path_join(to, sizeof to, j->out, tokenizer_files[i]) ? rg_writer_open(to, err) : NULL;
        ok = w && rg_writer_write(w, text, n, err);
        if (ok)
            ok = rg_writer_commit(w, err);
        else
            rg_writer_abort(w);
        rg_free(text);
    }
    return ok;
}

static bool write_out(const job *j, rg_error *err)
{
    if (j->deltas)
        return rg_lora_write(j->deltas, j->out, j->path, err);
    return rg_masters_write(j->masters, j->out, j->as, err) && copy_tokenizer(j, err);
}

static bool report(const job *j, rg_error *err)
{
    const cli_curve *c = &j->curve;

    if (!j->args.common.json) {
        printf("%lld steps, loss %.6g, written to %s\n", (long long)rg_training_done(j->run),
               c->n ? c->at[c->n - 1].loss : NAN, j->out);
        return true;
    }
    cli_json *out = cli_json_new();
    cli_json_open(out, NULL, '{');
    cli_json_open(out, "steps", '[');
    for (size_t i = 0; i < c->n; i++) {
        cli_json_open(out, NULL, '{');
        cli_json_int(out, "step", c->at[i].step);
        cli_json_float(out, "loss", c->at[i].loss);
        cli_json_float(out, "grad_norm", c->at[i].grad_norm);
        cli_json_float(out, "lr", c->at[i].lr);
        cli_json_float(out, "tokens_s", c->at[i].tokens_s);
        cli_json_close(out);
    }
    cli_json_close(out);
    cli_json_text(out, "output", j->out);
    cli_json_close(out);
    return cli_json_print(out) || rg_fail(err, RG_E_IO, "train: standard output cannot be written");
}

static bool work(job *j, rg_error *err)
{
    j->n_threads = j->args.common.threads ? j->args.common.threads : rg_cores();
    j->backend = rg_backend_find(j->args.common.isa, err);
    return j->backend && make_settings(j, err) && check_flags(j, err) && open_model(j, err) && make_weights(j, err) &&
           open_tokenizer(j, err) && open_run(j, err) && train(j, err) && write_out(j, err) &&
           (!j->svg || cli_curve_svg(&j->curve, j->svg, err)) && report(j, err);
}

static int run(int argc, char **argv)
{
    static job j = { .save = SAVE_STEPS };
    const cli_option options[] = {
        { "--data", CLI_STRINGS, &j.data, "FILE", "documents: .txt, .jsonl or ids in .safetensors; repeatable" },
        { "--batches", CLI_STRING, &j.batches, "FILE", "exact batches: ids [step, micro, rows, n], targets, document" },
        { "-o", CLI_STRING, &j.out, "DIR", "where the model, or the adapter, and checkpoints of the run are written" },
        { "--settings", CLI_STRING, &j.settings_file, "FILE", "settings as JSON; flags change them" },
        { "--steps", CLI_INT, &j.steps, "N", "updates (default: 1000)", 1, 1e9, &j.g_steps },
        { "--batch", CLI_INT, &j.batch, "N", "rows of a micro-batch (default: 16)", 1, 1 << 20, &j.g_batch },
        { "--accumulate", CLI_INT, &j.accumulate, "N", "micro-batches of a step (default: 1)", 1, 1 << 20,
          &j.g_accumulate },
        { "--length", CLI_INT, &j.length, "N", "ids of a row (default: 256)", 2, 1 << 24, &j.g_length },
        { "--lr", CLI_FLOAT, &j.lr, "RATE", "the highest learning rate (default: 0.001)", 0, 100, &j.g_lr },
        { "--warmup", CLI_INT, &j.warmup, "N", "steps in which it rises (default: 50)", 0, 1e9, &j.g_warmup },
        { "--floor", CLI_FLOAT, &j.floor, "SHARE", "of it that is left at the end (default: 0.1)", 0, 1, &j.g_floor },
        { "--schedule", CLI_STRING, &j.schedule, "NAME", "how it falls: cosine (the default), linear, constant" },
        { "--weight-decay", CLI_FLOAT, &j.decay, "X", "of matrices (default: 0.1)", 0, 100, &j.g_decay },
        { "--beta", CLI_STRINGS, &j.beta, "A,B", "of AdamW's moments (default: 0.9,0.95)" },
        { "--eps", CLI_FLOAT, &j.eps, "X", "of AdamW (default: 1e-8)", 0, 1, &j.g_eps },
        { "--clip", CLI_FLOAT, &j.clip, "NORM", "of all gradients; 0: none (default: 1)", 0, 1e9, &j.g_clip },
        { "--seed", CLI_U64, &j.seed, "N", "of new weights and of the order of documents (default: 0)", 0, 0,
          &j.g_seed },
        { "--init", CLI_STRING, &j.init, "FILE", "weights to begin with: a safetensors file or a folder" },
        { "--init-std", CLI_FLOAT, &j.init_std, "X", "deviation of new weights (default: 0.02)", 0, 10, &j.g_init },
        { "--tokenizer", CLI_STRING, &j.tokenizer, "PATH", "tokenizer.json or a folder (default: the model's)" },
        { "--pack", CLI_STRING, &j.pack, "HOW", "documents of a row: apart (the default), or joined to one text" },
        { "--lora", CLI_INT, &j.lora, "RANK", "train low-rank deltas; DIR becomes a PEFT folder", 1, 1024 },
        { "--lora-alpha", CLI_FLOAT, &j.lora_alpha, "X", "their scale times the rank (default: twice the rank)", 0,
          1e6 },
        { "--resume", CLI_FLAG, &j.resume, NULL, "go on from the last checkpoint in DIR" },
        { "--save", CLI_INT, &j.save, "N", "steps from one checkpoint to the next (default: 100)", 1, 1e9 },
        { "--type", CLI_STRING, &j.type, "TYPE", "of the written weights: f32 (the default), bf16, f16" },
        { "--log", CLI_STRING, &j.log, "FILE", "step,loss,grad_norm,lr,tokens_s of every step, as CSV" },
        { "--svg", CLI_STRING, &j.svg, "FILE", "the loss as a picture" },
        { NULL },
    };
    rg_error err = { 0 };

    int status = cli_parse(&j.args, &cli_train, options, argc, argv);
    if (status >= 0)
        return status;
    if (!j.args.n_positional)
        return cli_usage("train: MODEL or CONFIG is needed; see `ridge train --help`");
    cli_catch_interrupt();
    bool ok = work(&j, &err);
    cli_curve_close(&j.curve);
    rg_training_free(j.run);
    rg_lora_free(j.deltas);
    rg_feed_close(j.feed);
    rg_pool_free(j.pool);
    rg_tokenizer_close(j.tokens);
    rg_masters_close(j.masters);
    rg_checkpoint_close(j.ckpt);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_train = {
    .name = "train",
    .arguments = "MODEL|CONFIG --data FILE -o DIR",
    .summary = "a model from a config, or a checkpoint trained on",
    .notes =
        "CONFIG is a config.json: a new model.  MODEL is a Hugging Face folder, which is trained on wholly or, with\n"
        "--lora, by low-rank deltas.  A run that was stopped goes on from its last checkpoint with --resume.",
    .run = run,
    .n_positional = 1,
    .recipe = "exact",
};
