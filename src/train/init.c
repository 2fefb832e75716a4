/* init.c -- see init.h. */
#include "train/init.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

static double unit(uint64_t *x)
{
    return (double)(rg_splitmix64(x) >> 11) * 0x1p-53;
}

static void fill_normal(rg_master *m, double deviation, uint64_t seed)
{
    uint64_t radius = seed, angle = seed + m->n * 0x9e3779b97f4a7c15u; /* the stream n values on */

    for (size_t i = 0; i < m->n; i++) {
        const double r = sqrt(-2 * log(1 - unit(&radius)));
        m->w[i] = (float)(deviation * r * cos(6.283185307179586 * unit(&angle)));
    }
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);

    return n >= k && !strcmp(name + n - k, end);
}

static bool has_end(const char *name, const char *const *ends, size_t n)
{
    bool yes = false;

    for (size_t i = 0; i < n; i++)
        yes = yes || ends_with(name, ends[i]);
    return yes;
}

/* What a half of a layer ends with. */
static bool adds_to_stream(const char *name)
{
    static const char *const ends[] = { "o_proj.weight",          "down_proj.weight",
                                        "out_proj.weight",        "c_proj.weight",
                                        "dense_4h_to_h.weight",   "w2.weight",
                                        "attention.dense.weight", "fc2.weight" };

    return has_end(name, ends, RG_LEN(ends));
}

/* Parameters of recurrences: A = -(1 .. n) (S4D-real, as Mamba), D = 1, time steps from 0.001 to 0.1 evenly in their
 * logarithm (dt_bias being the inverse of softplus of them), imaginary parts pi n (S4D-Lin).  False: none of these. */
static bool fill_special(rg_master *m)
{
    const char *last = strrchr(m->name, '.');
    const size_t n = (size_t)m->shape[m->n_dims - 1];

    last = last ? last + 1 : m->name;
    for (size_t i = 0; i < m->n; i++) {
        const double share = m->n > 1 ? (double)i / (double)(m->n - 1) : 0, log_dt = log(1e-3) + share * log(100);

        if (!strcmp(last, "A_log"))
            m->w[i] = (float)log((double)(i % n + 1));
        else if (!strcmp(last, "D"))
            m->w[i] = 1;
        else if (!strcmp(last, "dt_bias") || ends_with(m->name, "dt_proj.bias"))
            m->w[i] = (float)(exp(log_dt) + log(-expm1(-exp(log_dt))));
        else if (!strcmp(last, "log_dt") || !strcmp(last, "inv_dt"))
            m->w[i] = (float)log_dt;
        else if (!strcmp(last, "log_A_real") || !strcmp(last, "A_real"))
            m->w[i] = (float)log(0.5);
        else if (!strcmp(last, "A_imag"))
            m->w[i] = (float)(3.141592653589793 * (double)(i % n));
        else
            return false;
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const rg_master *const *)a)->name, (*(const rg_master *const *)b)->name);
}

/* Norms that are stored as w where 1 + w is meant begin at 0: a weight of 1 shows which. */
static void fill_vector(rg_master *m)
{
    const float v = ends_with(m->name, "bias") || ends_with(m->name, "sinks") ? 0.0f : 1.0f;

    for (size_t i = 0; i < m->n; i++)
        m->w[i] = v;
}

bool rg_masters_init(rg_masters *m, double deviation, uint64_t seed, rg_error *err)
{
    const int n = rg_masters_count(m), n_layers = rg_masters_model(m)->config.n_layers;
    rg_master **sorted = rg_array((size_t)n, sizeof *sorted);

    if (!sorted)
        return rg_fail_memory(err, (size_t)n * sizeof *sorted);
    for (int i = 0; i < n; i++)
        sorted[i] = rg_masters_at(m, i);
    qsort(sorted, (size_t)n, sizeof *sorted, by_name);
    for (int i = 0; i < n; i++) {
        rg_master *t = sorted[i];

        if (fill_special(t))
            continue;
        if (t->n_dims > 1)
            fill_normal(t, adds_to_stream(t->name) ? deviation / sqrt(2.0 * n_layers) : deviation, seed + (uint64_t)i);
        else
            fill_vector(t);
    }
    rg_free(sorted);
    return rg_masters_center(m, err) && rg_masters_push(m, err);
}

bool rg_masters_init_from(rg_masters *m, const rg_checkpoint *from, rg_error *err)
{
    bool ok = true;

    for (int i = 0; ok && i < rg_masters_count(m); i++) {
        rg_master *to = rg_masters_at(m, i);
        const rg_tensor *t = rg_checkpoint_find(from, to->name);
        uint8_t *raw;

        if (!t || (size_t)rg_tensor_count(t) != to->n)
            return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is missing or of another shape", rg_checkpoint_path(from),
                           to->name);
        raw = rg_alloc(t->bytes);
        ok = (raw || rg_fail_memory(err, t->bytes)) && rg_tensor_read(from, t, 0, raw, t->bytes, err);
        if (ok)
            rg_tensor_decode(t, raw, rg_tensor_rows(t), to->w);
        rg_free(raw);
    }
    return ok && rg_masters_push(m, err);
}
