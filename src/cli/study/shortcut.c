/* shortcut.c -- see shortcut.h. */
#include "cli/study/shortcut.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/convert.h"
#include "shrink/prune.h"
#include "shrink/sparsity.h"
#include "text/export.h"

static const shortcut all[] = {
    { "3/4 of the layers, healed", SHORTCUT_PRUNED, "pruned", 0.75, true, false },
    { "weights q8_0", SHORTCUT_WEIGHTS, "q8_0", 0, true, false },
    { "weights q6_k", SHORTCUT_WEIGHTS, "q6_k", 0, false, false },
    { "weights q4_0", SHORTCUT_WEIGHTS, "q4_0", 0, true, true },
    { "weights q4_k", SHORTCUT_WEIGHTS, "q4_k", 0, false, false },
    { "weights q3_k", SHORTCUT_WEIGHTS, "q3_k", 0, false, false },
    { "weights q2_k", SHORTCUT_WEIGHTS, "q2_k", 0, false, false },
    { "K/V q8", SHORTCUT_KV, "q8", 0, true, true },
    { "K/V q4", SHORTCUT_KV, "q4", 0, true, false },
    { "25 % of inputs", SHORTCUT_INPUTS, "25", 0.25, true, false },
    { "40 % of inputs", SHORTCUT_INPUTS, "40", 0.4, false, false },
    { "50 % of inputs", SHORTCUT_INPUTS, "50", 0.5, false, false },
    { "attention 1e-4", SHORTCUT_ATTENTION, NULL, 1e-4, false, false },
    { "attention 1e-3", SHORTCUT_ATTENTION, NULL, 1e-3, true, true },
    { "attention 1e-2", SHORTCUT_ATTENTION, NULL, 1e-2, true, false },
    { "window 128", SHORTCUT_SELF, "window:128", 0, true, true },
    { "window 256", SHORTCUT_SELF, "window:256", 0, false, false },
    { "a layer skipped", SHORTCUT_SELF, "layers:1", 0, true, false },
    { "half of the middle skipped", SHORTCUT_SELF, "layers", 0, false, false },
    { "draft suffix", SHORTCUT_DRAFT, "suffix", 0, true, true },
    { "draft auto", SHORTCUT_DRAFT, "auto", 0, true, false },
    { "draft self:q4", SHORTCUT_DRAFT, "self:q4", 0, false, false },
};

const shortcut *shortcuts_nth(size_t i)
{
    return i < RG_LEN(all) ? &all[i] : NULL;
}

/* Thresholds are of matrices that are stored as floats; a model's self is no engine's, which drafts for it. */
bool shortcuts_go(const shortcut *a, const shortcut *b)
{
    static const struct {
        shortcut_kind a, b;
    } apart[] = { { SHORTCUT_WEIGHTS, SHORTCUT_INPUTS }, { SHORTCUT_SELF, SHORTCUT_DRAFT },
                  { SHORTCUT_SELF, SHORTCUT_INPUTS } };

    for (size_t i = 0; i < RG_LEN(apart); i++)
        if ((a->kind == apart[i].a && b->kind == apart[i].b) || (a->kind == apart[i].b && b->kind == apart[i].a))
            return false;
    return a->kind != b->kind;
}

void shortcuts_name(const shortcut_set *s, char *name, size_t room)
{
    size_t n = 0;

    snprintf(name, room, "as it is");
    for (int k = 0; k < SHORTCUT_KINDS; k++)
        if (s->of[k] && n < room)
            n += (size_t)snprintf(name + n, room - n, "%s%s", n ? " + " : "", s->of[k]->name);
}

/* ---- models that are made ---------------------------------------------------------------------------------------- */

static int n_threads(const shortcut_shop *shop)
{
    return shop->args->common.threads ? shop->args->common.threads : rg_cores();
}

static rg_stage *open_stage(const shortcut_shop *shop, const rg_checkpoint *ckpt, rg_error *err)
{
    const rg_stage_options o = { .backend = rg_backend_find(shop->args->common.isa, err),
                                 .n_threads = n_threads(shop),
                                 .ids = shop->ids,
                                 .n_samples = shop->n_samples,
                                 .ctx = shop->ctx };

    return o.backend ? rg_stage_open(ckpt, &o, err) : NULL;
}

/* Fewer layers, which learn from the whole model. */
static bool make_pruned(const shortcut_shop *shop, const shortcut *s, const char *from, const char *to, rg_error *err)
{
    cli_heal heal = { .text = shop->heal_text, .outputs = true, .alone = true };
    rg_checkpoint *ckpt = rg_checkpoint_open(from, RG_CKPT_DEFAULT, err);
    rg_stage *stage = ckpt ? open_stage(shop, ckpt, err) : NULL;
    rg_importance i = { 0 };
    uint64_t bytes;
    bool ok = stage && rg_importance_measure(&i, stage, err);

    if (ok) {
        const rg_config *c = &rg_stage_model(stage)->config;
        const int keep = (int)(s->number * c->n_layers);

        ok = rg_prune(ckpt, c, &i, &(rg_prune_options){ .n_layers = keep > 0 ? keep : 1 }, to, &bytes, err);
    }
    rg_importance_fini(&i);
    rg_stage_close(stage);
    rg_checkpoint_close(ckpt);
    if (!ok || !cli_heal_settings(&heal, shop->args, 1e-3, err))
        return false;
    heal.s.steps = shop->heal_steps;
    heal.s.warmup = shop->heal_steps / 20;
    return cli_heal_run(&heal, shop->args, to, from, err);
}

static bool make_weights(const shortcut_shop *shop, const shortcut *s, const char *from, const char *to, rg_error *err)
{
    rg_convert_options o = { .n_threads = n_threads(shop), .vocabulary = rg_tokenizer_export, .stop = cli_interrupted };
    rg_convert_report report = { 0 };
    rg_checkpoint *ckpt = rg_checkpoint_open(from, RG_CKPT_DEFAULT, err);
    bool ok = ckpt && (rg_type_by_name(s->value, &o.type) || rg_fail(err, RG_E_USAGE, "%s is no type", s->value)) &&
              rg_convert(&report, ckpt, to, &o, err);

    rg_convert_report_fini(&report);
    rg_checkpoint_close(ckpt);
    return ok;
}

static bool make_thresholds(const shortcut_shop *shop, const shortcut *s, const char *from, const char *to,
                            rg_error *err)
{
    const rg_sparsity_options o = { .sparsity = s->number, .n_samples = shop->n_samples, .ctx = shop->ctx,
                                    .stop = cli_interrupted };
    rg_checkpoint *ckpt = rg_checkpoint_open(from, RG_CKPT_DEFAULT, err);
    rg_stage *stage = ckpt ? open_stage(shop, ckpt, err) : NULL;
    double realized;
    rg_buf json;

    rg_buf_init(&json, 1 << 24);
    bool ok = stage && rg_sparsity_calibrate(stage, &o, &json, &realized, err);
    rg_stage_close(stage);
    rg_checkpoint_close(ckpt);
    if (ok)
        return cli_write_file(to, &json, err);
    rg_buf_fini(&json);
    return false;
}

/* What is made of a model, where, if it is not there. */
static bool make_one(const shortcut_shop *shop, const shortcut *s, const char *from, char to[SHORTCUT_PATH],
                     rg_error *err)
{
    static bool (*const make[SHORTCUT_KINDS])(const shortcut_shop *, const shortcut *, const char *, const char *,
                                              rg_error *) = { [SHORTCUT_PRUNED] = make_pruned,
                                                              [SHORTCUT_WEIGHTS] = make_weights,
                                                              [SHORTCUT_INPUTS] = make_thresholds };
    static const char *const endings[SHORTCUT_KINDS] = { [SHORTCUT_PRUNED] = "", [SHORTCUT_WEIGHTS] = ".gguf",
                                                         [SHORTCUT_INPUTS] = ".json" };
    const char *of = !strcmp(from, shop->path) ? "" : "pruned-";
    const int n = snprintf(to, SHORTCUT_PATH, "%s/%s%s%s", shop->dir, of, s->value, endings[s->kind]);

    if (n >= SHORTCUT_PATH)
        return rg_fail(err, RG_E_USAGE, "%s: the path is too long", shop->dir);
    return rg_path_look(to) != RG_PATH_NONE || make[s->kind](shop, s, from, to, err);
}

bool shortcuts_make(const shortcut_shop *shop, const shortcut_set *s, char path[SHORTCUT_PATH],
                    char thresholds[SHORTCUT_PATH], rg_error *err)
{
    char from[SHORTCUT_PATH];

    thresholds[0] = 0;
    if (snprintf(path, SHORTCUT_PATH, "%s", shop->path) >= SHORTCUT_PATH)
        return rg_fail(err, RG_E_USAGE, "%s: the path is too long", shop->path);
    for (int k = SHORTCUT_PRUNED; k <= SHORTCUT_WEIGHTS; k++) {
        memcpy(from, path, sizeof from);
        if (s->of[k] && !make_one(shop, s->of[k], from, path, err))
            return false;
    }
    return !s->of[SHORTCUT_INPUTS] || make_one(shop, s->of[SHORTCUT_INPUTS], path, thresholds, err);
}

static bool remove_one(void *arg, const char *name)
{
    char path[SHORTCUT_PATH];

    if (!rg_path_join(path, sizeof path, arg, name))
        return true;
    if (rg_path_look(path) == RG_PATH_DIR)
        cli_heal_remove(path);
    else
        rg_path_remove(path);
    return true;
}

void shortcuts_remove(const char *dir)
{
    if (rg_dir_list(dir, remove_one, (void *)(uintptr_t)dir, &(rg_error){ 0 }))
        rg_path_remove(dir);
}
