/* qat_blocks.c -- training on a grid a layer at a time (EfficientQAT's first stage). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/back/inside.h"
#include "train/qat_inside.h"

typedef struct blocks {
    rg_qat *q;
    rg_masters *m;
    const rg_qat_blocks *b;
    rg_back_lane lane;
    rg_passes *passes;
    rg_slab rows;
    rg_mat whole, target, grid,
        next; /* inputs of the layer of before, what it gives; on the grid; and what that gives */
    int n_layers;
    rg_checkpoint *at; /* that the run goes on from, at this layer and step; NULL: from the beginning */
    int at_layer, at_step;
    /* A step. */
    int first; /* position */
    double scale, loss;
} blocks;

/* Rows [row, row + n) of the texts. */
static rg_texts some_rows(const rg_texts *t, int row, int n)
{
    const size_t at = (size_t)row * (size_t)t->length;

    return (rg_texts){ .rows = n,
                       .length = t->length,
                       .ids = t->ids + at,
                       .document = t->document ? t->document + at : NULL,
                       .targets = t->targets ? t->targets + at : NULL };
}

static rg_mat positions(const rg_mat *m, int first, int n)
{
    return (rg_mat){ rg_mat_row(m, first), m->ld, n, m->cols };
}

static bool take_embedding(blocks *v, rg_error *err)
{
    const rg_texts *t = v->b->texts;
    const int all = t->rows * t->length, dim = rg_masters_model(v->m)->config.dim;
    rg_mat *const each[] = { &v->whole, &v->target, &v->grid, &v->next };
    int64_t first;
    int n;

    for (size_t i = 0; i < RG_LEN(each); i++) {
        *each[i] = rg_slab_mat(&v->rows, all, dim);
        if (!each[i]->at)
            return rg_fail_memory(err, (size_t)all * (size_t)dim * sizeof(float));
    }
    for (int at = 0; at < all; at += n) {
        if (!rg_passes_enter(v->passes, t, at, &first, &n, err))
            return false;
        for (int i = 0; i < n; i++) {
            const float *from = rg_mat_row(rg_passes_output(v->passes, -1), i);

            memcpy(rg_mat_row(&v->whole, at + i), from, (size_t)dim * sizeof(float));
            memcpy(rg_mat_row(&v->grid, at + i), from, (size_t)dim * sizeof(float));
        }
    }
    return true;
}

static bool lose(void *arg, rg_back_lane *lane, int layer, int64_t first, const rg_mat *out, rg_mat *grad,
                 rg_error *err)
{
    blocks *v = arg;

    (void)lane, (void)layer, (void)err;
    for (int r = 0; r < out->rows; r++) {
        const float *y = rg_mat_row(&v->target, v->first + (int)first + r), *x = rg_mat_row(out, r);
        float *d = rg_mat_row(grad, r);

        for (int c = 0; c < out->cols; c++) {
            const double apart = (double)x[c] - (double)y[c];

            v->loss += apart * apart * v->scale;
            d[c] = (float)(2 * apart * v->scale);
        }
    }
    return true;
}

/* One step on some rows; its loss before the update in v->loss. */
static bool train_step(blocks *v, int layer, int step, rg_adamw *a, rg_error *err)
{
    const rg_qat_blocks *b = v->b;
    const int n = b->rows < b->texts->rows ? b->rows : b->texts->rows, row = step % (b->texts->rows / n) * n;
    const rg_texts t = some_rows(b->texts, row, n);
    const rg_layer_loss loss = { lose, v };
    const double rate = b->rate * (b->floor + (1 - b->floor) * (1 + cos(3.14159265358979323846 * step / b->steps)) / 2);

    v->first = row * t.length;
    const rg_mat in = positions(&v->grid, v->first, n * t.length);
    v->scale = 1 / ((double)in.rows * in.cols);
    v->loss = 0;
    rg_masters_clear(v->m);
    if (!rg_passes_layer(v->passes, &(rg_layer_run){ .texts = &t, .layer = layer, .in = &in, .loss = &loss }, err) ||
        !rg_masters_pull(v->m, err))
        return false;
    rg_qat_pull_layer(v->q, layer, &v->lane);
    rg_adamw_update(a, &v->lane, b->settings, rate, rg_adamw_norm(a, &v->lane));
    rg_qat_apply_layer(v->q, layer, &v->lane);
    return rg_masters_push_layer(v->m, layer, err);
}

static bool forward(blocks *v, int layer, const rg_mat *in, const rg_mat *out, rg_error *err)
{
    return rg_masters_push_layer(v->m, layer, err) &&
           rg_passes_layer(v->passes, &(rg_layer_run){ .texts = v->b->texts, .layer = layer, .in = in, .out = out },
                           err);
}

/* Steps of a layer from number `from` on, and checkpoints on the way. */
static bool take_steps(blocks *v, int layer, int from, rg_adamw *a, rg_error *err)
{
    const rg_qat_blocks *b = v->b;
    bool ok = true;

    for (int s = from; ok && s < b->steps; s++) {
        ok = train_step(v, layer, s, a, err);
        if (ok && b->told)
            b->told(b->told_arg, layer, s, v->loss);
        const bool stop = ok && b->stop && b->stop(), last = s + 1 == b->steps;
        if (ok && !last && (stop || (b->save && (s + 1) % b->save == 0)))
            ok = rg_qat_blocks_save(v->q, b, layer, s + 1, a, err);
        if (ok && stop && !last)
            ok = rg_fail(err, RG_E_IO, "interrupted in layer %d%s", layer,
                         b->saved ? "; the same command with --resume goes on" : "");
    }
    return ok;
}

/* Train the layer, from where the checkpoint left it if it is that one, and fix its codes. */
static bool learn_layer(blocks *v, int layer, rg_error *err)
{
    const int from = v->at && layer == v->at_layer ? v->at_step : 0;
    rg_adamw a = { 0 };
    bool ok = rg_qat_add_layer(v->q, layer, &a, err);

    if (ok && from) {
        ok = rg_qat_blocks_take_trained(&a, v->at, err);
        a.step = from;
    }
    rg_qat_apply_layer(v->q, layer, &v->lane);
    ok = ok && rg_masters_push_layer(v->m, layer, err) && take_steps(v, layer, from, &a, err);
    rg_adamw_close(&a);
    return ok && rg_qat_fix_layer(v->q, layer, err) && rg_qat_blocks_save(v->q, v->b, layer + 1, 0, NULL, err);
}

/* A layer that an earlier run has done. */
static bool take_layer(blocks *v, int layer, rg_error *err)
{
    const bool ok = rg_qat_fix_layer(v->q, layer, err) && rg_qat_blocks_take_fixed(v->q, layer, v->at, err);

    rg_qat_apply_layer(v->q, layer, &v->lane);
    return ok;
}

static bool train_layer(blocks *v, int layer, rg_error *err)
{
    bool ok;

    rg_qat_lift_layer(v->q, layer);
    ok = forward(v, layer, &v->whole, &v->target, err) &&
         (v->at && layer < v->at_layer ? take_layer(v, layer, err) : learn_layer(v, layer, err)) &&
         forward(v, layer, &v->grid, &v->next, err);
    const rg_mat whole = v->whole, grid = v->grid;
    v->whole = v->target;
    v->target = whole;
    v->grid = v->next;
    v->next = grid;
    return ok;
}

bool rg_qat_train_blocks(rg_qat *q, rg_masters *m, const rg_qat_blocks *b, rg_error *err)
{
    blocks v = { .q = q, .m = m, .b = b, .n_layers = rg_masters_model(m)->config.n_layers };
    bool ok;

    rg_back_lane_open(&v.lane, b->backend, b->pool, b->n_threads);
    v.passes = rg_passes_new(m, b->backend, &(rg_passes_options){ .n_threads = b->n_threads, .pool = b->pool }, err);
    ok = v.passes && rg_qat_blocks_open(q, b, &v.at, &v.at_layer, &v.at_step, err) && take_embedding(&v, err);
    for (int i = 0; ok && i < v.n_layers; i++)
        ok = train_layer(&v, i, err);
    rg_checkpoint_close(v.at);
    rg_passes_free(v.passes);
    rg_back_lane_close(&v.lane);
    rg_slab_fini(&v.rows);
    return ok;
}
