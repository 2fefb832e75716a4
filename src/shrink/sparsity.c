/* sparsity.c -- see sparsity.h. */
#include "shrink/sparsity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json_write.h"
#include "base/mem.h"
#include "shrink/inputs.h"

enum { BINS = 10000 };

static int rising(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return x < y ? -1 : x > y;
}

/* Edge i of the bins: the least value, evenly spaced ones, the greatest. */
static double edge(const float *x, size_t n, double low, double high, int i)
{
    if (i == 0)
        return (double)x[0];
    if (i == BINS)
        return (double)x[n - 1];
    return low + (high - low) * (i - 1) / (BINS - 2);
}

float rg_sparsity_threshold(float *x, size_t n, double sparsity)
{
    const double want = (0.5 + sparsity / 2) * (double)n;
    size_t at = 0;

    qsort(x, n, sizeof *x, rising);
    const double low = (double)x[(size_t)(0.01 * (double)n)], high = (double)x[(size_t)(0.99 * (double)n)];
    for (int i = 0; i < BINS; i++) {
        const double to = edge(x, n, low, high, i + 1);
        while (at < n && ((double)x[at] < to || i + 1 == BINS))
            at++;
        if ((double)at >= want)
            return (float)((edge(x, n, low, high, i) + to) / 2);
    }
    return x[n - 1];
}

/* A threshold for the matrices that read an input; adds to *below and *all how many of its values it makes zero. */
static bool put_input(const rg_input *x, double sparsity, rg_buf *json, double *below, double *all, rg_error *err)
{
    const size_t n = (size_t)x->n_kept * (size_t)x->cols;
    float *values = rg_array(n, sizeof *values);

    if (!values)
        return rg_fail_memory(err, n * sizeof *values);
    for (size_t i = 0; i < n; i++)
        values[i] = x->rows[i];
    const float t = rg_sparsity_threshold(values, n, sparsity);
    for (size_t i = 0; i < n; i++)
        *below += fabsf(values[i]) <= t;
    *all += (double)n;
    for (int i = 0; i < x->n_w; i++) {
        char name[160];
        if (x->w[i]->n_mats > 1)
            snprintf(name, sizeof name, "%.120s[%d]", x->w[i]->name, (int)x->mat);
        else
            snprintf(name, sizeof name, "%.140s", x->w[i]->name);
        rg_out_real(json, name, t > 0 ? (double)t : 0);
    }
    rg_free(values);
    return true;
}

static bool put_layer(rg_layer_work *l, double sparsity, rg_buf *json, double *below, double *all, rg_error *err)
{
    bool ok = rg_stage_enter(l->stage, l->layer, err) && rg_inputs_collect(l, RG_NEED_ROWS, err);

    for (int i = 0; ok && i < l->n_inputs; i++)
        ok = !l->inputs[i].n_kept || put_input(&l->inputs[i], sparsity, json, below, all, err);
    rg_inputs_free(l);
    return ok && rg_stage_pass(l->stage, &(rg_pass){ .advance = true }, err);
}

bool rg_sparsity_calibrate(rg_stage *s, int n_samples, int ctx, double sparsity, rg_buf *json, double *realized,
                           rg_error *err)
{
    const rg_shrink_method method = { .name = "sparsity" };
    const rg_shrink_options o = { .method = &method, .n_samples = n_samples, .ctx = ctx };
    double below = 0, all = 0;

    rg_out_open(json, NULL, '{');
    rg_out_real(json, "sparsity", sparsity);
    rg_out_open(json, "thresholds", '{');
    for (int i = 0; i < rg_stage_model(s)->config.n_layers; i++) {
        rg_layer_work l = {
            .o = &o, .layer = i, .stage = s, .pool = rg_stage_pool(s), .config = &rg_stage_model(s)->config
        };
        if (!put_layer(&l, sparsity, json, &below, &all, err))
            return false;
    }
    rg_out_close(json, '}');
    *realized = all > 0 ? below / all : 0;
    rg_out_real(json, "realized", *realized);
    rg_out_close(json, '}');
    return !json->failed || rg_fail_memory(err, json->n);
}
