/* training.c -- see training.h. */
#include "cli/training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "train/init.h"

enum { SETTINGS_CAP = 1 << 20, UNKNOWN_CAP = 4096 };

static const char *const tokenizer_files[] = { "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                               "generation_config.json", "chat_template.jinja" };

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static bool read_settings(const cli_train_settings *v, const cli_args *args, rg_train_settings *s, rg_error *err)
{
    rg_buf unknown;
    size_t n;
    char *text = rg_file_slurp(v->file, SETTINGS_CAP, &n, err);
    bool ok;

    rg_buf_init(&unknown, UNKNOWN_CAP);
    ok = text && rg_train_settings_read(s, text, n, &unknown, err);
    if (ok && unknown.n && !args->common.quiet)
        fprintf(stderr, "ridge: %s: %s: these are no settings of training, and change nothing: %s\n",
                args->command->name, v->file, unknown.data);
    rg_buf_fini(&unknown);
    rg_free(text);
    return ok;
}

/* "0.9,0.95" */
static bool take_betas(const cli_train_settings *v, const cli_args *args, rg_train_settings *s, rg_error *err)
{
    double a, b;
    char rest;

    for (int i = 0; i < v->beta.n; i++) {
        const int got = sscanf(v->beta.item[i], "%lf,%lf%c", &a, &b, &rest);

        if (got == 2) {
            s->beta1 = a;
            s->beta2 = b;
        } else if (got == 1 && i < 2 && sscanf(v->beta.item[i], "%lf%c", &a, &rest) == 1) {
            *(i ? &s->beta2 : &s->beta1) = a;
        } else {
            return rg_fail(err, RG_E_USAGE, "%s: --beta '%.40s' is no pair of numbers, as in 0.9,0.95",
                           args->command->name, v->beta.item[i]);
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

bool cli_train_settings_take(const cli_train_settings *v, const cli_args *args, rg_train_settings *s, rg_error *err)
{
    if (v->file && !read_settings(v, args, s, err))
        return false;
    s->steps = v->g_steps ? v->steps : s->steps;
    s->micro = v->g_accumulate ? v->accumulate : s->micro;
    s->rows = v->g_batch ? v->batch : s->rows;
    s->length = v->g_length ? v->length : s->length;
    s->peak = v->g_lr ? as_written(v->lr) : s->peak;
    s->floor = v->g_floor ? as_written(v->floor) : s->floor;
    s->weight_decay = v->g_decay ? as_written(v->decay) : s->weight_decay;
    s->clip = v->g_clip ? as_written(v->clip) : s->clip;
    s->eps = v->g_eps ? as_written(v->eps) : s->eps;
    s->init_std = v->g_init ? as_written(v->init_std) : s->init_std;
    s->seed = v->g_seed ? v->seed : s->seed;
    if (v->g_warmup)
        s->warmup = v->warmup;
    else if (s->warmup > s->steps / 2 && !v->file)
        s->warmup = s->steps / 20;
    if (v->schedule && !rg_rate_shape_by_name(v->schedule, &s->schedule))
        return rg_fail(err, RG_E_USAGE, "%s: --schedule '%.20s' is not one of cosine, linear, constant, wsd",
                       args->command->name, v->schedule);
    if (v->precision && !rg_precision_by_name(v->precision, &s->precision))
        return rg_fail(err, RG_E_USAGE, "%s: --precision '%.20s' is not one of f32, bf16", args->command->name,
                       v->precision);
    return take_betas(v, args, s, err) && rg_train_settings_check(s, err);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool check_flags(cli_training *t, rg_error *err)
{
    const char *name = t->args->command->name;

    if (!t->out)
        return rg_fail(err, RG_E_USAGE, "%s: -o DIR is needed: where the model is written", name);
    if (!t->batches == !t->data.n)
        return rg_fail(err, RG_E_USAGE, "%s: one of --data and --batches is needed", name);
    t->as = RG_F32;
    if (t->type && (!rg_type_by_name(t->type, &t->as) || (t->as != RG_F32 && t->as != RG_BF16 && t->as != RG_F16)))
        return rg_fail(err, RG_E_USAGE, "%s: --type '%.20s' is not one of f32, bf16, f16", name, t->type);
    if (t->pack && strcmp(t->pack, "apart") && strcmp(t->pack, "joined"))
        return rg_fail(err, RG_E_USAGE, "%s: --pack '%.20s' is not one of apart, joined", name, t->pack);
    return true;
}

/* A config.json, or a name under the models folder, or a checkpoint. */
static bool open_model(cli_training *t, rg_error *err)
{
    const char *given = t->args->positional[0];
    const rg_config *c;

    if (rg_path_look(given) != RG_PATH_NONE)
        snprintf(t->path, sizeof t->path, "%s", given);
    else if (!cli_find_model(given, t->path, sizeof t->path, err))
        return false;
    t->ckpt = rg_checkpoint_open(t->path, RG_CKPT_NO_WEIGHTS, err);
    if (!t->ckpt)
        return false;
    if (rg_checkpoint_kind(t->ckpt) != RG_CKPT_HF)
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "%s: a GGUF file is not trained: convert it to a Hugging Face folder by `ridge quantize` first",
                       t->path);
    t->from_scratch = rg_checkpoint_n_tensors(t->ckpt) == 0;
    t->masters = rg_masters_open(t->ckpt, t->backend, err);
    if (!t->masters)
        return false;
    c = &rg_masters_model(t->masters)->config;
    if (!rg_config_has_logits(c))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: an encoder, or a model without a head, predicts no ids", t->path);
    return true;
}

static bool make_weights(cli_training *t, rg_error *err)
{
    rg_checkpoint *from;
    bool ok;

    if (!t->init)
        return !t->from_scratch || rg_masters_init(t->masters, t->s.init_std, t->s.seed, err);
    from = rg_path_look(t->init) == RG_PATH_DIR ? rg_checkpoint_open(t->init, RG_CKPT_DEFAULT, err)
                                                : rg_checkpoint_open_tensors(t->init, err);
    ok = from && rg_masters_init_from(t->masters, from, err);
    rg_checkpoint_close(from);
    return ok;
}

bool cli_training_open(cli_training *t, rg_error *err)
{
    const cli_common *common = &t->args->common;

    t->n_threads = common->threads ? common->threads : rg_cores();
    t->backend = rg_backend_find(common->isa, err);
    t->s = rg_train_settings_default();
    if (!t->backend || !cli_train_settings_take(&t->flags, t->args, &t->s, err) || !check_flags(t, err) ||
        !open_model(t, err) || !make_weights(t, err))
        return false;
    t->pool = rg_pool_new(t->n_threads, err);
    return t->pool;
}

static bool open_tokenizer(cli_training *t, rg_error *err)
{
    rg_error why = { 0 };

    if (t->batches)
        return true;
    t->tokens = t->tokenizer ? rg_tokenizer_open_path(t->tokenizer, &why)
                             : rg_tokenizer_open_for(t->ckpt, rg_masters_model(t->masters)->config.vocab_size, &why);
    if (!t->tokens && (why.code != RG_OK || t->tokenizer)) {
        *err = why;
        return false;
    }
    if (t->tokens && rg_tokenizer_size(t->tokens) > rg_masters_model(t->masters)->config.vocab_size)
        return rg_fail(err, RG_E_INPUT, "the tokenizer has %d ids, and the config a vocab_size of %d",
                       rg_tokenizer_size(t->tokens), rg_masters_model(t->masters)->config.vocab_size);
    return true;
}

bool cli_training_feed(cli_training *t, rg_error *err)
{
    const bool settled = t->flags.g_steps || t->flags.file;

    if (!open_tokenizer(t, err))
        return false;
    t->feed = rg_feed_open(&(rg_feed_options){ .batches = t->batches,
                                               .files = t->data.item,
                                               .n_files = t->data.n,
                                               .joined = t->pack && !strcmp(t->pack, "joined"),
                                               .tokenizer = t->tokens,
                                               .vocab_size = rg_masters_model(t->masters)->config.vocab_size },
                           &t->s, err);
    if (!t->feed)
        return false;
    if (rg_feed_steps(t->feed) < t->s.steps && !settled) {
        t->s.steps = (int32_t)rg_feed_steps(t->feed);
        t->s.warmup = t->flags.g_warmup || t->s.warmup <= t->s.steps / 2 ? t->s.warmup : t->s.steps / 20;
    }
    t->last = t->s.steps;
    if (rg_feed_steps(t->feed) < t->last) { /* the rate is that of the whole run */
        t->last = (int32_t)rg_feed_steps(t->feed);
        if (!t->args->common.quiet)
            fprintf(stderr, "ridge: %s: %s has batches for the first %d of %d steps\n", t->args->command->name,
                    t->batches, t->last, t->s.steps);
    }
    return true;
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

bool cli_training_begin(cli_training *t, const rg_stand_in *stand_in, const rg_objective *objective, rg_error *err)
{
    int got = 0;

    t->run = rg_training_new(&(rg_training_options){ .masters = t->trained ? t->trained : t->masters,
                                                     .stand_in = stand_in,
                                                     .feed = t->feed,
                                                     .objective = objective,
                                                     .settings = &t->s,
                                                     .backend = t->backend,
                                                     .pool = t->pool,
                                                     .n_threads = t->n_threads },
                             err);
    if (!t->run || !rg_dir_make(t->out, err))
        return false;
    snprintf(t->saved, sizeof t->saved, "%s/checkpoint.safetensors", t->out);
    if (t->resume)
        got = rg_training_resume(t->run, t->saved, err);
    if (got < 0)
        return false;
    if (t->resume && !got && !t->args->common.quiet)
        fprintf(stderr, "ridge: %s: there is no checkpoint in %s: the run begins anew\n", t->args->command->name,
                t->out);
    return cli_curve_open(&t->curve, t->log, rg_training_done(t->run), err);
}

static void tell(const cli_training *t, const rg_training_step *s)
{
    char text[160];

    snprintf(text, sizeof text, "step %lld of %d, loss %.4f, %.0f tokens/s", (long long)s->step, t->s.steps, s->loss,
             (double)s->n_tokens / s->seconds);
    cli_progress(t->args->common.quiet ? t->args : NULL, text, (double)s->step / t->s.steps);
}

bool cli_training_run(cli_training *t, rg_error *err)
{
    rg_training_step s = { 0 };
    bool ok = true;

    while (ok && rg_training_done(t->run) < t->last) {
        if (cli_interrupted()) {
            ok = rg_training_save(t->run, t->saved, err);
            return ok && rg_fail(err, RG_E_IO, "%s: interrupted after %lld of %d steps; --resume goes on from there",
                                 t->args->command->name, (long long)rg_training_done(t->run), t->s.steps);
        }
        ok = rg_training_next(t->run, &s, err);
        ok = ok && cli_curve_add(&t->curve, &s, err);
        if (ok)
            tell(t, &s);
        if (ok && (s.step % t->save == 0 || s.step == t->last))
            ok = rg_training_save(t->run, t->saved, err);
    }
    return ok;
}

/* ---- what comes out ---------------------------------------------------------------------------------------------- */

bool cli_tokenizer_copy(const char *tokenizer, const char *dir, rg_error *err)
{
    char from[4096];
    bool ok = true;

    for (size_t i = 0; ok && i < RG_LEN(tokenizer_files); i++) {
        const bool is_dir = rg_path_look(tokenizer) == RG_PATH_DIR;
        size_t n;

        if (is_dir ? !rg_path_join(from, sizeof from, tokenizer, tokenizer_files[i])
                   : snprintf(from, sizeof from, "%s", tokenizer) >= (int)sizeof from)
            return rg_fail(err, RG_E_INPUT, "%s: the path is too long", tokenizer);
        if ((!is_dir && i) || rg_path_look(from) != RG_PATH_FILE)
            continue;
        char *text = rg_file_slurp(from, (size_t)1 << 28, &n, err);
        ok = text && rg_file_put_in(dir, tokenizer_files[i], text, n, err);
        rg_free(text);
    }
    return ok;
}

bool cli_training_write(const cli_training *t, rg_error *err)
{
    return rg_masters_write(t->trained ? t->trained : t->masters, t->out, t->as, err) &&
           (!t->tokenizer || cli_tokenizer_copy(t->tokenizer, t->out, err));
}

bool cli_training_picture(const cli_training *t, rg_error *err)
{
    return !t->svg || cli_curve_svg(&t->curve, t->svg, err);
}

double cli_training_loss(const cli_training *t)
{
    return t->curve.n ? t->curve.at[t->curve.n - 1].loss : NAN;
}

void cli_training_json(const cli_training *t, cli_json *out)
{
    const cli_curve *c = &t->curve;

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
}

void cli_training_close(cli_training *t)
{
    cli_curve_close(&t->curve);
    rg_training_free(t->run);
    rg_feed_close(t->feed);
    rg_pool_free(t->pool);
    rg_tokenizer_close(t->tokens);
    rg_masters_close(t->masters);
    rg_checkpoint_close(t->ckpt);
}
