/* dense.c -- see dense.h. */
#include "model/dense.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* A tensor of n values in f32.  NULL: *err. */
static float *read_values(const rg_checkpoint *ckpt, const char *name, int64_t rows, int64_t cols, rg_error *err)
{
    const rg_tensor *t = rg_checkpoint_find(ckpt, name);
    const bool fits = t && rg_tensor_count(t) == rows * cols && rg_tensor_cols(t) == cols &&
                      rg_format_of(t->type)->layout != RG_LAYOUT_NONE;

    if (!fits)
        return rg_fail(err, RG_E_INPUT, "tensor '%s' is missing or of another shape", name), NULL;
    const int64_t n = rg_tensor_count(t);
    void *raw = rg_alloc(t->bytes);
    float *values = rg_array((size_t)n, sizeof *values);
    bool ok = (raw && values) || rg_fail_memory(err, t->bytes);

    ok = ok && rg_tensor_read(ckpt, t, 0, raw, t->bytes, err);
    if (ok)
        rg_tensor_decode(t, raw, rg_tensor_rows(t), values);
    rg_free(raw);
    if (!ok)
        rg_free(values);
    return ok ? values : NULL;
}

static bool open_step(rg_dense *d, const rg_embedding *e, int i, const rg_checkpoint *ckpt, rg_error *err)
{
    const rg_embed_step *s = &e->steps[i];
    char path[4096];

    if (!rg_checkpoint_side_path(ckpt, s->folder, path, sizeof path))
        return rg_fail(err, RG_E_INPUT, "the path is too long");
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, err);

    if (c)
        d->w[i] = read_values(c, "linear.weight", s->out, s->in, err);
    if (d->w[i] && s->bias)
        d->b[i] = read_values(c, "linear.bias", 1, s->out, err);
    rg_checkpoint_close(c);
    return d->w[i] && (d->b[i] || !s->bias);
}

bool rg_dense_open(rg_dense *d, rg_embedding *e, const rg_checkpoint *ckpt, rg_error *err)
{
    rg_error why = { RG_OK, "" };

    for (int i = 0; i < e->n_steps; i++) {
        if (!e->steps[i].is_dense || open_step(d, e, i, ckpt, &why))
            continue;
        if (why.code == RG_E_MEMORY)
            return rg_fail(err, RG_E_MEMORY, "%s", why.text);
        return rg_embedding_refuse(e, "the weights of the checkpoint's module '%.60s' cannot be read",
                                   e->steps[i].folder);
    }
    return true;
}

void rg_dense_close(rg_dense *d)
{
    for (int i = 0; i < RG_MAX_EMBED_STEPS; i++) {
        rg_free(d->w[i]);
        rg_free(d->b[i]);
    }
    memset(d, 0, sizeof *d);
}

/* Numbers of the longest of what the steps make. */
static size_t longest(const rg_embedding *e)
{
    size_t most = (size_t)e->dim;

    for (int i = 0; i < e->n_steps; i++) {
        const rg_embed_step *s = &e->steps[i];
        const size_t side = s->is_dense ? (size_t)(s->in > s->out ? s->in : s->out) : 0;
        most = side > most ? side : most;
    }
    return most;
}

size_t rg_dense_room(const rg_embedding *e)
{
    return e->n_steps ? 2 * longest(e) : 0;
}

static float activate(rg_activation act, double x)
{
    switch (act) {
    case RG_TANH:
        return (float)tanh(x);
    case RG_RELU:
        return (float)(x > 0 ? x : 0);
    case RG_GELU:
        return (float)(0.5 * x * (1 + erf(x / sqrt(2.0))));
    case RG_SILU:
        return (float)(x / (1 + exp(-x)));
    case RG_SIGMOID:
        return (float)(1 / (1 + exp(-x)));
    default:
        return (float)x;
    }
}

static void multiply(const rg_embed_step *s, const float *w, const float *b, const float *x, float *y)
{
    for (int r = 0; r < s->out; r++) {
        double sum = 0;

        for (int k = 0; k < s->in; k++)
            sum += (double)w[(size_t)r * (size_t)s->in + (size_t)k] * (double)x[k];
        y[r] = activate(s->act, sum + (b ? (double)b[r] : 0));
    }
}

static void normalize(const float *x, int n, float *y)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < n; i++)
        y[i] = (float)((double)x[i] / (sum > 0 ? sqrt(sum) : 1));
}

const float *rg_dense_apply(const rg_dense *d, const rg_embedding *e, const float *pooled, float *scratch)
{
    const size_t room = longest(e);
    const float *x = pooled;
    int dim = e->dim;

    for (int i = e->n_steps; i-- > 0;) /* of what the first step gets */
        dim = e->steps[i].is_dense ? e->steps[i].in : dim;
    for (int i = 0; i < e->n_steps; i++) {
        float *y = scratch + (i % 2 ? room : 0);

        if (e->steps[i].is_dense)
            multiply(&e->steps[i], d->w[i], d->b[i], x, y);
        else
            normalize(x, dim, y);
        dim = e->steps[i].is_dense ? e->steps[i].out : dim;
        x = y;
    }
    return x;
}
