/* verify.c -- see verify.h. */
#include "engine/verify.h"

#include <math.h> /* fmin, fmax: exact */
#include <stddef.h>
#include <string.h>

#include "engine/numeric.h"

static const char *const names[RG_VERIFY_COUNT] = { "coupled", "rejection", "typical" };

bool rg_verify_find(const char *name, rg_verify *out)
{
    for (int i = 0; i < RG_VERIFY_COUNT; i++)
        if (!strcmp(names[i], name)) {
            *out = (rg_verify)i;
            return true;
        }
    return false;
}

/* ---- rejection --------------------------------------------------------------------------------------------------- */

double rg_verify_chance(const double *t, int32_t id, const double *d)
{
    if (!d)
        return t[id];
    return d[id] > 0 ? fmin(1, t[id] / d[id]) : t[id] > 0;
}

/* x [n] scaled to 1; false: it is 0 everywhere. */
static bool normalise(double *x, int32_t n, double sum)
{
    if (!(sum > 0))
        return false;
    for (int32_t i = 0; i < n; i++)
        x[i] /= sum;
    return true;
}

bool rg_verify_reject(double *t, int32_t n, int32_t id, const double *d)
{
    double sum = 0;

    if (!d)
        return rg_verify_without(t, n, id);
    for (int32_t i = 0; i < n; i++)
        sum += fmax(0, t[i] - d[i]);
    if (!(sum > 0))
        return false;
    for (int32_t i = 0; i < n; i++)
        t[i] = fmax(0, t[i] - d[i]);
    return normalise(t, n, sum);
}

bool rg_verify_without(double *d, int32_t n, int32_t id)
{
    double sum = 0, own = d[id];

    d[id] = 0;
    for (int32_t i = 0; i < n; i++)
        sum += d[i];
    if (normalise(d, n, sum))
        return true;
    d[id] = own;
    return false;
}

/* ---- typical ----------------------------------------------------------------------------------------------------- */

rg_typical rg_typical_default(void)
{
    return (rg_typical){ .epsilon = 0.09, .delta = 0.3 };
}

double rg_typical_entropy(const double *p, int32_t n)
{
    const double least = 1e-5; /* as the authors' code: a probability of 0 has a logarithm */
    double sum = 0;

    for (int32_t i = 0; i < n; i++)
        if (p[i] > 0)
            sum -= p[i] * rg_ln(p[i] + least);
    return sum;
}

double rg_typical_threshold(const rg_typical *t, double entropy)
{
    return fmin(t->epsilon, t->delta * rg_exp_negative(-fmax(entropy, 0)));
}

/* The length of the path to a node, and its likelihood; 0: some node of it does not stand. */
static int32_t standing(const int32_t *parent, const bool *stands, const double *log_p, int32_t node,
                        double *likelihood)
{
    int32_t length = 0;

    *likelihood = 0;
    for (int32_t i = node; i >= 0; i = parent[i]) {
        if (!stands[i])
            return 0;
        *likelihood += log_p[i];
        length++;
    }
    return length;
}

int32_t rg_typical_path(const int32_t *parent, const bool *stands, const double *log_p, int32_t n, int32_t *path)
{
    int32_t best = -1, best_length = 0;
    double best_likelihood = 0;

    for (int32_t i = 0; i < n; i++) {
        double likelihood;
        int32_t length = standing(parent, stands, log_p, i, &likelihood);

        if (length < 1 || length < best_length || (length == best_length && likelihood <= best_likelihood))
            continue;
        best = i;
        best_length = length;
        best_likelihood = likelihood;
    }
    for (int32_t i = best, k = best_length; i >= 0; i = parent[i])
        path[--k] = i;
    return best_length;
}
