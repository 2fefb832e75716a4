/* training.c -- see training.h. */
#include "train/training.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"

enum { NAME = 640, SETTINGS_CAP = 1 << 16, N_PLACE = 5 };

struct rg_training {
    rg_training_options o;
    rg_objective objective;
    rg_stand_in stand_in;
    rg_passes *passes;
    rg_adamw adamw;
    rg_back_lane lane;
};

rg_training *rg_training_new(const rg_training_options *o, rg_error *err)
{
    rg_training *t = rg_zalloc(sizeof *t);

    if (!t)
        return rg_fail_memory(err, sizeof *t), NULL;
    t->o = *o;
    if (o->stand_in)
        t->stand_in = *o->stand_in;
    t->objective = o->objective ? *o->objective : rg_next_ids;
    rg_back_lane_open(&t->lane, o->backend, o->pool, o->n_threads);
    t->passes = rg_passes_new(o->masters, o->backend,
                              &(rg_passes_options){ .n_threads = o->n_threads,
                                                    .pool = o->pool,
                                                    .bf16 = o->settings->precision == RG_PRECISION_BF16 },
                              err);
    if (t->passes && (!t->objective.add_to || t->objective.add_to(t->objective.arg, &t->adamw, err)) &&
        (o->stand_in ? t->stand_in.add_to(t->stand_in.arg, &t->adamw, err)
                     : rg_adamw_add_masters(&t->adamw, o->masters, err)))
        return t;
    rg_training_free(t);
    return NULL;
}

void rg_training_free(rg_training *t)
{
    if (!t)
        return;
    rg_passes_free(t->passes);
    rg_adamw_close(&t->adamw);
    rg_back_lane_close(&t->lane);
    rg_free(t);
}

int64_t rg_training_done(const rg_training *t)
{
    return t->adamw.step;
}

/* Gradients of all micro-batches, each by the number of positions that count in the whole step. */
static bool compute(rg_training *t, const rg_texts *micro, rg_training_step *out, rg_error *err)
{
    const int n = t->o.settings->micro;
    const rg_objective *o = &t->objective;
    double loss;

    for (int i = 0; i < n; i++) {
        out->n_targets += o->count(o->arg, &micro[i]);
        out->n_tokens += (int64_t)micro[i].rows * micro[i].length;
    }
    if (!out->n_targets)
        return rg_fail(err, RG_E_INPUT, "step %lld has no target: nothing is predicted in it", (long long)out->step);
    rg_masters_clear(t->o.masters);
    if (o->begin && !o->begin(o->arg, t->passes, micro, n, 1 / (double)out->n_targets, err))
        return false;
    for (int i = 0; i < n; i++) {
        if (!o->compute(o->arg, t->passes, &micro[i], 1 / (double)out->n_targets, false, &loss, err))
            return false;
        out->loss += loss;
    }
    if (!rg_masters_pull(t->o.masters, err))
        return false;
    if (t->o.stand_in)
        t->stand_in.pull(t->stand_in.arg, &t->lane);
    return !t->lane.failed || rg_fail_memory(err, 0);
}

/* What was trained goes to the model. */
static bool push(rg_training *t, rg_error *err)
{
    if (t->o.stand_in)
        t->stand_in.apply(t->stand_in.arg, &t->lane);
    return (!t->lane.failed || rg_fail_memory(err, 0)) && rg_masters_push(t->o.masters, err);
}

bool rg_training_next(rg_training *t, rg_training_step *out, rg_error *err)
{
    const uint64_t from = rg_now_ns();
    const rg_texts *micro;

    *out = (rg_training_step){ .step = t->adamw.step + 1, .lr = rg_train_rate(t->o.settings, t->adamw.step) };
    if (!rg_feed_next(t->o.feed, &micro, err) || !compute(t, micro, out, err))
        return false;
    out->grad_norm = rg_adamw_norm(&t->adamw, &t->lane);
    if (!(out->grad_norm < 1e30))
        return rg_fail(err, RG_E_INPUT, "step %lld: the gradient is not finite: lower the learning rate",
                       (long long)out->step);
    rg_adamw_update(&t->adamw, &t->lane, t->o.settings, out->lr, out->grad_norm);
    const bool ok = push(t, err);
    out->seconds = rg_seconds(from, rg_now_ns());
    return ok;
}

bool rg_training_loss(rg_training *t, const rg_objective *o, const rg_texts *texts, double *loss, rg_error *err)
{
    const int64_t n = o->count(o->arg, texts);

    return o->compute(o->arg, t->passes, texts, n ? 1 / (double)n : 0, true, loss, err);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* Settings, and what the run makes small, as text. */
static void describe(const rg_training *t, rg_buf *to)
{
    rg_train_settings_write(t->o.settings, to);
    if (t->objective.tag)
        rg_buf_printf(to, " %s", t->objective.tag);
}

static const char *const moments[] = { "w.", "m.", "v." };

/* Call each for weights and moments of every trained tensor, in one order. */
typedef bool tensor_fn(void *arg, const char *name, const rg_adamw_tensor *t, float *values, rg_error *err);

static bool each_tensor(const rg_training *t, tensor_fn *each, void *arg, rg_error *err)
{
    char name[NAME];
    bool ok = true;

    for (size_t k = 0; k < RG_LEN(moments); k++)
        for (int i = 0; ok && i < t->adamw.n; i++) {
            const rg_adamw_tensor *a = &t->adamw.tensors[i];

            snprintf(name, sizeof name, "%s%s", moments[k], a->name);
            ok = each(arg, name, a, k == 0 ? a->w : k == 1 ? a->m : a->v, err);
        }
    return ok;
}

static bool declare(void *arg, const char *name, const rg_adamw_tensor *t, float *values, rg_error *err)
{
    (void)values;
    return rg_ckpt_declare(arg, name, RG_F32, t->n_dims, t->shape, err);
}

static bool write_values(void *arg, const char *name, const rg_adamw_tensor *t, float *values, rg_error *err)
{
    (void)name;
    return rg_ckpt_write(arg, values, t->n * sizeof *values, err);
}

bool rg_training_save(const rg_training *t, const char *path, rg_error *err)
{
    const rg_feed_place at = rg_feed_place_of(t->o.feed);
    const int64_t place[N_PLACE] = { t->adamw.step, at.step, at.epoch, at.next, at.at };
    const int64_t n_place = N_PLACE;
    rg_buf settings;
    rg_ckpt_writer *w = rg_safetensors_create(path, err);

    rg_buf_init(&settings, SETTINGS_CAP);
    describe(t, &settings);
    const int64_t n = (int64_t)settings.n;
    bool ok = w && (!settings.failed || rg_fail_memory(err, settings.n)) &&
              rg_ckpt_declare(w, "place", RG_I64, 1, &n_place, err) &&
              rg_ckpt_declare(w, "settings", RG_U8, 1, &n, err) && each_tensor(t, declare, w, err) &&
              rg_ckpt_write(w, place, sizeof place, err) && rg_ckpt_write(w, settings.data, settings.n, err) &&
              each_tensor(t, write_values, w, err);
    rg_buf_fini(&settings);
    if (ok)
        return rg_ckpt_commit(w, err);
    rg_ckpt_abort(w);
    return false;
}

static bool read_values(void *arg, const char *name, const rg_adamw_tensor *t, float *values, rg_error *err)
{
    const rg_checkpoint *c = arg;
    const rg_tensor *tensor = rg_checkpoint_find(c, name);

    if (!tensor || tensor->type != RG_F32 || (size_t)rg_tensor_count(tensor) != t->n)
        return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is missing or of another shape: it is another model's",
                       rg_checkpoint_path(c), name);
    return rg_tensor_read(c, tensor, 0, values, t->n * sizeof *values, err);
}

/* Other settings that the same updates so far came of: they differ in the number of steps, on which the rate did not
 * depend yet. */
static bool is_longer(const rg_training *t, const char *text, size_t n, int64_t done)
{
    const rg_train_settings *now = t->o.settings;
    rg_train_settings was = rg_train_settings_default();
    const char *end = memchr(text, '}', n);
    rg_error ignored = { 0 };
    rg_buf a, b;

    if (!end || !rg_train_settings_read(&was, text, (size_t)(end + 1 - text), NULL, &ignored) || done > now->steps)
        return false;
    for (int64_t s = 0; s < done; s++)
        if (rg_train_rate(&was, s) != rg_train_rate(now, s))
            return false;
    was.steps = now->steps;
    rg_buf_init(&a, SETTINGS_CAP);
    rg_buf_init(&b, SETTINGS_CAP);
    rg_train_settings_write(&was, &a);
    rg_buf_add(&a, end + 1, n - (size_t)(end + 1 - text));
    describe(t, &b);
    const bool same = !a.failed && !b.failed && a.n == b.n && !memcmp(a.data, b.data, a.n);
    rg_buf_fini(&a);
    rg_buf_fini(&b);
    return same;
}

/* A run goes on only as it began; more steps are no change while the rate does not depend on them. */
static bool check_settings(const rg_training *t, const rg_checkpoint *c, int64_t done, rg_error *err)
{
    const rg_tensor *tensor = rg_checkpoint_find(c, "settings");
    char *text = tensor && tensor->bytes < SETTINGS_CAP ? rg_alloc(tensor->bytes) : NULL;
    rg_buf now;
    bool ok = text && rg_tensor_read(c, tensor, 0, text, tensor->bytes, err);

    rg_buf_init(&now, SETTINGS_CAP);
    describe(t, &now);
    ok = ok && (!now.failed || rg_fail_memory(err, now.n));
    if (ok && (now.n != tensor->bytes || memcmp(now.data, text, now.n)) && !is_longer(t, text, tensor->bytes, done))
        ok = rg_fail(err, RG_E_INPUT, "%s: it was trained with other settings: %.*s", rg_checkpoint_path(c),
                     (int)tensor->bytes, text);
    else if (tensor && tensor->bytes < SETTINGS_CAP && !text)
        ok = rg_fail_memory(err, tensor->bytes);
    else if (!text)
        ok = rg_fail(err, RG_E_INPUT, "%s: it has no settings: it is no checkpoint of a training run",
                     rg_checkpoint_path(c));
    rg_buf_fini(&now);
    rg_free(text);
    return ok;
}

static bool take_up(rg_training *t, const rg_checkpoint *c, rg_error *err)
{
    const rg_tensor *tensor = rg_checkpoint_find(c, "place");
    int64_t place[N_PLACE];

    if (!tensor || tensor->bytes != sizeof place)
        return rg_fail(err, RG_E_INPUT, "%s: it has no place in the data", rg_checkpoint_path(c));
    if (!rg_tensor_read(c, tensor, 0, place, sizeof place, err) || !check_settings(t, c, place[0], err) ||
        !each_tensor(t, read_values, (void *)(uintptr_t)c, err))
        return false;
    t->adamw.step = place[0];
    rg_feed_go_to(t->o.feed, (rg_feed_place){ place[1], place[2], place[3], place[4] });
    return push(t, err);
}

int rg_training_resume(rg_training *t, const char *path, rg_error *err)
{
    rg_checkpoint *c;
    bool ok;

    if (rg_path_look(path) == RG_PATH_NONE)
        return 0;
    c = rg_checkpoint_open_tensors(path, err);
    ok = c && take_up(t, c, err);
    rg_checkpoint_close(c);
    return ok ? 1 : -1;
}
