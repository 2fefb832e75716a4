/* means.c -- see means.h. */
#include "shrink/means.h"

#include <string.h>

#include "base/mem.h"
#include "shrink/inputs.h"

/* The means of one weight, for all its matrices; values NULL: nothing was read. */
typedef struct mean {
    const rg_weight *w;
    float *values; /* [n_mats, cols] */
} mean;

static bool add_input(mean *all, const rg_weight_set *set, const rg_input *x, rg_error *err)
{
    for (int k = 0; k < x->n_w; k++) {
        mean *m = &all[x->w[k] - set->all];
        m->w = x->w[k];
        if (!m->values)
            m->values = rg_table_new(m->w->n_mats, x->cols, sizeof *m->values);
        if (!m->values)
            return rg_fail_memory(err, (size_t)x->cols * sizeof *m->values);
        for (int64_t c = 0; x->n_rows && c < x->cols; c++)
            m->values[x->mat * x->cols + c] = (float)(x->abs_sum[c] / (double)x->n_rows);
    }
    return true;
}

static bool measure(rg_stage *s, const rg_shrink_options *o, mean *all, rg_error *err)
{
    const rg_model *model = rg_stage_model(s);
    bool ok = true;

    for (int i = 0; ok && i < model->config.n_layers; i++) {
        rg_layer_work l = { .o = o, .layer = i, .stage = s, .pool = rg_stage_pool(s), .config = &model->config };
        ok = rg_stage_enter(s, i, err) && rg_inputs_collect(&l, RG_NEED_SPREAD, err);
        for (int k = 0; ok && k < l.n_inputs; k++)
            ok = add_input(all, &model->weights, &l.inputs[k], err);
        rg_inputs_free(&l);
        ok = ok && rg_stage_pass(s, &(rg_pass){ .advance = true }, err);
    }
    return ok;
}

/* The parts of one tensor have its name, and read the same: the first counts. */
static bool is_again(const mean *all, int i)
{
    for (int k = 0; k < i; k++)
        if (all[k].values && !strcmp(all[k].w->name, all[i].w->name))
            return true;
    return false;
}

static bool write_all(const mean *all, int n, const char *path, rg_error *err)
{
    rg_ckpt_writer *w = rg_safetensors_create(path, err);
    bool ok = w;

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; ok && i < n; i++) {
            if (!all[i].values || is_again(all, i))
                continue;
            const int64_t shape[2] = { all[i].w->n_mats, all[i].w->cols };
            const bool stacked = shape[0] > 1;
            ok = pass ? rg_ckpt_write(w, all[i].values, (size_t)(shape[0] * shape[1]) * sizeof(float), err)
                      : rg_ckpt_declare(w, all[i].w->name, RG_F32, stacked ? 2 : 1, stacked ? shape : shape + 1, err);
        }
    if (ok)
        return rg_ckpt_commit(w, err);
    rg_ckpt_abort(w);
    return false;
}

bool rg_means_write(rg_stage *s, int n_samples, int ctx, const char *path, rg_error *err)
{
    const rg_shrink_method method = { .name = "means" };
    const rg_shrink_options o = { .method = &method, .n_samples = n_samples, .ctx = ctx };
    const int n = rg_stage_model(s)->weights.n;
    mean *all = rg_array((size_t)n, sizeof *all);
    bool ok =
        all ? measure(s, &o, all, err) && write_all(all, n, path, err) : rg_fail_memory(err, (size_t)n * sizeof *all);

    for (int i = 0; all && i < n; i++)
        rg_free(all[i].values);
    rg_free(all);
    return ok;
}
