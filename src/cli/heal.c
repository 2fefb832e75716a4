/* heal.c -- see heal.h. */
#include "cli/heal.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"

bool cli_heal_settings(cli_heal *h, const cli_args *args, double rate, rg_error *err)
{
    h->s = rg_train_settings_default();
    h->s.steps = 200;
    h->s.warmup = 10;
    h->s.floor = 0.05;
    h->s.peak = rate;
    h->s.weight_decay = 0;
    h->s.rows = 8;
    return cli_train_settings_take(&h->flags, args, &h->s, err);
}

/* The type of most of a checkpoint's matrices, in which the repaired weights are written. */
static rg_type type_of(const rg_checkpoint *c)
{
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);

        if (t->n_dims >= 2)
            return t->type == RG_BF16 || t->type == RG_F16 ? t->type : RG_F32;
    }
    return RG_F32;
}

bool cli_repair_open(cli_repair *r, const char *path, rg_error *err)
{
    const cli_common *common = &r->args->common;
    rg_error why = { 0 };

    r->n_threads = common->threads ? common->threads : rg_cores();
    r->backend = rg_backend_find(common->isa, err);
    r->pool = r->backend ? rg_pool_new(r->n_threads, err) : NULL;
    r->ckpt = r->pool ? rg_checkpoint_open(path, RG_CKPT_DEFAULT, err) : NULL;
    if (r->ckpt && rg_checkpoint_kind(r->ckpt) != RG_CKPT_HF)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: only a Hugging Face folder is trained", path);
    r->masters = r->ckpt ? rg_masters_open(r->ckpt, r->backend, err) : NULL;
    if (!r->masters)
        return false;
    const rg_config *c = &rg_masters_model(r->masters)->config;
    const int most = c->n_positions ? c->n_positions : c->max_seq_len;
    r->s = r->h->s;
    if (most > 1 && r->s.length > most)
        r->s.length = most;
    r->tokens = rg_tokenizer_open_for(r->ckpt, c->vocab_size, &why);
    if (!r->tokens && why.code != RG_OK)
        *err = why;
    else if (!r->tokens)
        rg_fail(err, RG_E_UNSUPPORTED, "%s: it has no tokenizer, and so no text to be repaired on", path);
    if (!r->tokens)
        return false;
    const char *files[] = { r->h->text };
    r->feed = rg_feed_open(
        &(rg_feed_options){
            .files = files, .n_files = 1, .joined = true, .tokenizer = r->tokens, .vocab_size = c->vocab_size },
        &r->s, err);
    return r->feed;
}

bool cli_repair_teacher(cli_repair *r, const char *whole, rg_error *err)
{
    const rg_passes_options passes = { .n_threads = r->n_threads, .pool = r->pool };
    const rg_distill_options o = { .loss = { RG_FORWARD_KL, 1, 0 }, .outputs = r->h->outputs, .seed = r->s.seed };

    r->from = rg_checkpoint_open(whole, RG_CKPT_DEFAULT, err);
    r->teacher = r->from ? rg_teacher_open(r->from, r->backend, &passes, err) : NULL;
    r->distill = r->teacher ? rg_distill_new(r->teacher, r->masters, &o, err) : NULL;
    return r->distill;
}

static bool stop_here(const cli_repair *r, rg_error *err)
{
    return rg_training_save(r->run, r->saved, err) &&
           rg_fail(err, RG_E_IO, "%s: interrupted after %lld of %d steps; the same command with --resume goes on",
                   r->args->command->name, (long long)rg_training_done(r->run), r->s.steps);
}

static bool take_steps(cli_repair *r, const char *what, rg_error *err)
{
    const int save = r->h->save ? r->h->save : CLI_TRAINING_SAVE;
    rg_training_step s = { 0 };
    char text[160];
    bool ok = true;

    while (ok && rg_training_done(r->run) < r->s.steps) {
        if (cli_interrupted())
            return stop_here(r, err);
        ok = rg_training_next(r->run, &s, err);
        snprintf(text, sizeof text, "%s: step %lld of %d, loss %.4f", what, (long long)s.step, r->s.steps, s.loss);
        cli_progress(r->args->common.quiet ? r : NULL, text, (double)s.step / r->s.steps);
        if (ok && (s.step % save == 0 || s.step == r->s.steps))
            ok = rg_training_save(r->run, r->saved, err);
    }
    r->h->tokens = rg_training_done(r->run) * r->s.micro * r->s.rows * r->s.length;
    r->h->loss = s.loss;
    return ok;
}

static bool go_on(cli_repair *r, rg_error *err)
{
    const int got = r->h->resume ? rg_training_resume(r->run, r->saved, err) : 0;

    if (r->h->resume && !got && !r->args->common.quiet)
        fprintf(stderr, "ridge: %s: there is no %s: these steps begin anew\n", r->args->command->name, r->saved);
    return got >= 0;
}

bool cli_repair_train(cli_repair *r, const rg_stand_in *stand_in, const char *what, const char *beside, rg_error *err)
{
    const rg_objective o = r->distill ? rg_distill_objective(r->distill) : rg_next_ids;
    bool ok;

    if (snprintf(r->saved, sizeof r->saved, "%s.safetensors", beside) >= (int)sizeof r->saved)
        return rg_fail(err, RG_E_USAGE, "%s: the path is too long", beside);
    r->run = rg_training_new(&(rg_training_options){ .masters = r->masters,
                                                     .stand_in = stand_in,
                                                     .feed = r->feed,
                                                     .objective = &o,
                                                     .settings = &r->s,
                                                     .backend = r->backend,
                                                     .pool = r->pool,
                                                     .n_threads = r->n_threads },
                             err);
    ok = r->run && go_on(r, err) && take_steps(r, what, err);
    rg_training_free(r->run);
    r->run = NULL;
    return ok;
}

static const char *const checkpoints[] = { "repair", "control", "training", "training.layers" };

bool cli_heal_is_begun(const char *dst)
{
    char path[1300];
    bool yes = false;

    for (size_t i = 0; i < RG_LEN(checkpoints); i++)
        yes = yes || (snprintf(path, sizeof path, "%s.%s.safetensors", dst, checkpoints[i]) < (int)sizeof path &&
                      rg_path_look(path) == RG_PATH_FILE);
    return yes;
}

void cli_heal_forget(const char *dst)
{
    char path[1300];

    for (size_t i = 0; i < RG_LEN(checkpoints); i++)
        if (snprintf(path, sizeof path, "%s.%s.safetensors", dst, checkpoints[i]) < (int)sizeof path)
            rg_path_remove(path);
}

bool cli_repair_write(const cli_repair *r, const char *dir, rg_error *err)
{
    return rg_masters_write(r->masters, dir, type_of(r->ckpt), err);
}

void cli_repair_close(cli_repair *r)
{
    rg_distill_free(r->distill);
    rg_teacher_close(r->teacher);
    rg_checkpoint_close(r->from);
    rg_feed_close(r->feed);
    rg_tokenizer_close(r->tokens);
    rg_masters_close(r->masters);
    rg_checkpoint_close(r->ckpt);
    rg_pool_free(r->pool);
}

bool cli_heal_run(cli_heal *h, const cli_args *args, const char *dir, const char *whole, rg_error *err)
{
    cli_repair r = { .args = args, .h = h };
    const uint64_t began = rg_now_ns();
    char beside[1100];
    const bool fits = snprintf(beside, sizeof beside, "%s.repair", dir) < (int)sizeof beside ||
                      rg_fail(err, RG_E_USAGE, "%s: the path is too long", dir);
    const bool ok = fits && cli_repair_open(&r, dir, err) && cli_repair_teacher(&r, whole, err) &&
                    cli_repair_train(&r, NULL, "repair", beside, err) && cli_repair_write(&r, dir, err);

    cli_repair_close(&r);
    h->seconds = rg_seconds(began, rg_now_ns());
    return ok;
}

bool cli_heal_control(cli_heal *h, const cli_args *args, const char *dir, const char *whole, rg_error *err)
{
    cli_repair r = { .args = args, .h = h };
    const bool ok = cli_repair_open(&r, whole, err) && cli_repair_train(&r, NULL, "the whole model", dir, err) &&
                    cli_repair_write(&r, dir, err);

    cli_repair_close(&r);
    return ok;
}

double cli_heal_share(double whole, double before, double after)
{
    return before > whole ? log(before / after) / log(before / whole) : NAN;
}

static bool remove_one(void *arg, const char *name)
{
    char path[1300];

    if (rg_path_join(path, sizeof path, arg, name))
        rg_path_remove(path);
    return true;
}

void cli_heal_remove(const char *dir)
{
    if (rg_dir_list(dir, remove_one, (void *)(uintptr_t)dir, &(rg_error){ 0 }))
        rg_path_remove(dir);
}
