/* sparsity.c -- see sparsity.h. */
#include "shrink/sparsity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_write.h"
#include "base/mem.h"
#include "shrink/inputs.h"

/* ---- thresholds -------------------------------------------------------------------------------------------------- */

static int rising(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return x < y ? -1 : x > y;
}

void rg_spread_of(rg_spread *to, float *x, size_t n)
{
    size_t at = 0;

    qsort(x, n, sizeof *x, rising);
    const double low = (double)x[(size_t)(0.01 * (double)n)], high = (double)x[(size_t)(0.99 * (double)n)];
    to->n = n;
    to->edge[0] = (double)x[0];
    to->edge[RG_SPREAD_BINS] = (double)x[n - 1];
    for (int i = 1; i < RG_SPREAD_BINS; i++)
        to->edge[i] = low + (high - low) * (i - 1) / (RG_SPREAD_BINS - 2);
    for (int i = 0; i < RG_SPREAD_BINS; i++) {
        while (at < n && ((double)x[at] < to->edge[i + 1] || i + 1 == RG_SPREAD_BINS))
            at++;
        to->upto[i] = at;
    }
}

float rg_spread_threshold(const rg_spread *s, double sparsity)
{
    const double want = (0.5 + sparsity / 2) * (double)s->n;
    int i = 0;

    while (i + 1 < RG_SPREAD_BINS && (double)s->upto[i] < want)
        i++;
    return (float)((s->edge[i] + s->edge[i + 1]) / 2);
}

/* ---- shares ------------------------------------------------------------------------------------------------------ */

bool rg_allocate_greedily(const rg_block_loss *b, double target, double step, double *share, rg_error *err)
{
    double all = 0, reached = 0;

    for (int i = 0; i < b->n; i++) {
        all += b->size[i];
        share[i] = 0;
    }
    while (target - reached > 1e-9) {
        const double rise = step < target - reached ? step : target - reached;
        double least = INFINITY, best = 0;
        int at = -1;

        for (int i = 0; i < b->n; i++) {
            const double before = share[i], more = rise * all / b->size[i];
            double loss;

            if (before >= 1)
                continue;
            share[i] = before + more < 1 ? before + more : 1;
            if (!b->loss(b->arg, share, &loss, err))
                return false;
            if (at < 0 || loss < least) {
                at = i;
                least = loss;
                best = share[i];
            }
            share[i] = before;
        }
        if (at < 0) /* all are at 1 */
            break;
        reached += (best - share[at]) * b->size[at] / all;
        share[at] = best;
    }
    return true;
}

/* ---- a layer ----------------------------------------------------------------------------------------------------- */

/* A matrix, and what it reads. */
typedef struct slot {
    const rg_weight *w;
    const rg_input *x;
    const rg_spread *spread;
    double share;
} slot;

typedef struct calibrating {
    const rg_sparsity_options *o;
    rg_stage *stage;
    rg_spread *spread; /* [inputs of the layer] */
    slot *slot;
    int n;
    rg_buf *thresholds, *shares; /* members of JSON objects */
    double zeros, all;           /* bytes that zeros meet, of all: in weights */
    /* Of the greedy way: */
    double *size;       /* [n] of each slot */
    float *want;        /* [samples, rows, cols]: the last quarter of what the layer gives */
    double *lost, loss; /* [cols]; sums */
    int64_t cols;
    bool failed; /* no memory */
} calibrating;

static void layer_fini(calibrating *c)
{
    rg_free(c->spread);
    rg_free(c->slot);
    rg_free(c->size);
    rg_free(c->want);
    rg_free(c->lost);
    c->spread = NULL;
    c->slot = NULL;
    c->size = c->lost = NULL;
    c->want = NULL;
    c->n = 0;
}

static bool make_spread(rg_spread *to, const rg_input *x, rg_error *err)
{
    const size_t n = (size_t)x->n_kept * (size_t)x->cols;
    float *values = rg_array(n, sizeof *values);

    if (!values)
        return rg_fail_memory(err, n * sizeof *values);
    memcpy(values, x->rows, n * sizeof *values);
    rg_spread_of(to, values, n);
    rg_free(values);
    return true;
}

/* The layer's matrices whose products obey thresholds (experts' do not), as far as anything reaches them. */
static bool make_slots(calibrating *c, const rg_layer_work *l, rg_error *err)
{
    const size_t n = (size_t)l->n_inputs;

    c->spread = rg_array(n, sizeof *c->spread);
    c->slot = rg_array(n, 3 * sizeof *c->slot);
    c->size = rg_array(n, 3 * sizeof *c->size);
    if (!c->spread || !c->slot || !c->size)
        return rg_fail_memory(err, n * sizeof *c->spread);
    for (int i = 0; i < l->n_inputs; i++) {
        const rg_input *x = &l->inputs[i];

        for (int k = 0; k < x->n_w; k++)
            c->all += (double)x->w[k]->rows * (double)x->cols;
        if (!x->n_kept || !x->takes_zeros)
            continue;
        if (!make_spread(&c->spread[i], x, err))
            return false;
        for (int k = 0; k < x->n_w; k++) {
            c->size[c->n] = (double)x->w[k]->rows * (double)x->cols;
            c->slot[c->n++] = (slot){ x->w[k], x, &c->spread[i], c->o->sparsity };
        }
    }
    return true;
}

static float threshold_of(const slot *s)
{
    const float t = s->share > 0 ? rg_spread_threshold(s->spread, s->share) : 0;

    return t > 0 ? t : 0;
}

/* ---- what a layer loses ------------------------------------------------------------------------------------------ */

static const float *last_quarter(const float *rows, int64_t *n, int64_t cols)
{
    const int64_t from = *n * 3 / 4;

    *n -= from;
    return rows + from * cols;
}

static void keep_output(void *arg, int sample, const float *before, const float *after, int64_t n, int64_t cols)
{
    calibrating *c = arg;

    (void)before;
    after = last_quarter(after, &n, cols);
    if (!c->want) {
        c->cols = cols;
        c->want = rg_table_new(RG_SPARSITY_SAMPLES * n, cols, sizeof *c->want);
        c->lost = rg_array((size_t)cols, sizeof *c->lost);
        c->failed = !c->want || !c->lost;
    }
    if (!c->failed)
        memcpy(c->want + (int64_t)sample * n * cols, after, (size_t)(n * cols) * sizeof *after);
}

static void compare_output(void *arg, int sample, const float *before, const float *after, int64_t n, int64_t cols)
{
    calibrating *c = arg;

    (void)before;
    after = last_quarter(after, &n, cols);
    const float *want = c->want + (int64_t)sample * n * cols;
    memset(c->lost, 0, (size_t)cols * sizeof *c->lost);
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < cols; k++) {
            const double d = (double)after[r * cols + k] - (double)want[r * cols + k];
            c->lost[k] += d * d;
        }
    for (int64_t k = 0; k < cols; k++)
        c->loss += sqrt(c->lost[k]);
}

static bool layer_loss(void *arg, const double *share, double *loss, rg_error *err)
{
    calibrating *c = arg;
    const rg_pass p = { .arg = c, .n_samples = RG_SPARSITY_SAMPLES, .through = compare_output };

    for (int i = 0; i < c->n; i++) {
        slot s = c->slot[i];
        s.share = share[i];
        rg_stage_set_threshold(c->stage, s.w, threshold_of(&s));
    }
    c->loss = 0;
    bool ok = rg_stage_pass(c->stage, &p, err);
    *loss = c->loss;
    return ok;
}

static bool share_out(calibrating *c, rg_error *err)
{
    const rg_pass p = { .arg = c, .n_samples = RG_SPARSITY_SAMPLES, .through = keep_output };
    const rg_block_loss b = { .n = c->n, .size = c->size, .loss = layer_loss, .arg = c };
    double *share = rg_array((size_t)c->n, sizeof *share);
    bool ok = share || rg_fail_memory(err, (size_t)c->n * sizeof *share);

    ok = ok && rg_stage_pass(c->stage, &p, err) && (!c->failed || rg_fail_memory(err, 0)) &&
         rg_allocate_greedily(&b, c->o->sparsity, RG_SPARSITY_STEP, share, err);
    for (int i = 0; i < c->n; i++) {
        if (ok)
            c->slot[i].share = share[i];
        rg_stage_set_threshold(c->stage, c->slot[i].w, 0);
    }
    rg_free(share);
    return ok;
}

/* ---- all layers -------------------------------------------------------------------------------------------------- */

static void put_slot(calibrating *c, const slot *s)
{
    const size_t n = (size_t)s->x->n_kept * (size_t)s->x->cols;
    const float t = threshold_of(s);
    size_t below = 0;

    for (size_t i = 0; i < n; i++)
        below += fabsf(s->x->rows[i]) <= t;
    c->zeros += (double)below / (double)n * (double)s->w->rows * (double)s->x->cols;
    rg_out_real(c->thresholds, s->w->name, (double)t);
    rg_out_real(c->shares, s->w->name, s->share);
}

static bool do_layer(calibrating *c, int layer, rg_error *err)
{
    const rg_shrink_method method = { .name = "sparsity" };
    const rg_shrink_options o = { .method = &method, .n_samples = c->o->n_samples, .ctx = c->o->ctx };
    rg_layer_work l = { .o = &o, .layer = layer, .stage = c->stage, .pool = rg_stage_pool(c->stage),
                        .config = &rg_stage_model(c->stage)->config };
    bool ok = rg_stage_enter(c->stage, layer, err) && rg_inputs_collect(&l, RG_NEED_ROWS, err) &&
              make_slots(c, &l, err) && (!c->o->greedy || !c->n || share_out(c, err));

    for (int i = 0; ok && i < c->n; i++)
        put_slot(c, &c->slot[i]);
    rg_inputs_free(&l);
    layer_fini(c);
    return ok && rg_stage_pass(c->stage, &(rg_pass){ .advance = true }, err);
}

static void tell(const calibrating *c, uint64_t began, int layer, int n)
{
    char what[80];

    if (!c->o->progress)
        return;
    snprintf(what, sizeof what, "layer %d of %d, %.0f s left", layer + 1, n,
             layer ? rg_seconds(began, rg_now_ns()) / layer * (n - layer) : 0.0);
    if (!layer || layer == n)
        snprintf(what, sizeof what, "%d layers", n);
    c->o->progress(c->o->progress_arg, what, (double)layer / n);
}

static bool all_layers(calibrating *c, rg_error *err)
{
    const int n = rg_stage_model(c->stage)->config.n_layers;
    const uint64_t began = rg_now_ns();

    for (int i = 0; i < n; i++) {
        tell(c, began, i, n);
        if (c->o->stop && c->o->stop())
            return rg_fail(err, RG_E_IO, "stopped before layer %d of %d; nothing was written", i + 1, n);
        if (!do_layer(c, i, err))
            return false;
    }
    tell(c, began, n, n);
    return true;
}

bool rg_sparsity_calibrate(rg_stage *s, const rg_sparsity_options *o, rg_buf *json, double *realized, rg_error *err)
{
    rg_buf shares;
    calibrating c = { .o = o, .stage = s, .thresholds = json, .shares = &shares };

    rg_buf_init(&shares, 1 << 24);
    rg_out_open(json, NULL, '{');
    rg_out_real(json, "sparsity", o->sparsity);
    rg_out_open(json, "thresholds", '{');
    rg_out_open(&shares, NULL, '{');
    bool ok = all_layers(&c, err);
    rg_out_close(json, '}');
    rg_out_close(&shares, '}');
    *realized = c.all > 0 ? c.zeros / c.all : 0;
    rg_out_real(json, "realized", *realized);
    rg_out_raw(json, "shares", shares.data, shares.n);
    rg_out_close(json, '}');
    ok = ok && ((!json->failed && !shares.failed) || rg_fail_memory(err, json->n));
    rg_buf_fini(&shares);
    return ok;
}
