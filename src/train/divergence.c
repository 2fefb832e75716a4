/* divergence.c -- see divergence.h.
 *
 * A divergence of two models that are nearly alike is a small difference of large numbers.  Its terms are therefore
 * p ln(p / q) - p + q, which are never negative and whose sum is the same: what is lost in a sum of exponentials then
 * matters in second order alone. */
#include "train/divergence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "ops/back/inside.h"

static const char *const names[RG_DIVERGENCES] = { "forward", "reverse", "topk", "sampled" };

bool rg_divergence_by_name(const char *name, rg_divergence_kind *out)
{
    for (int i = 0; i < RG_DIVERGENCES; i++)
        if (!strcmp(name, names[i])) {
            *out = (rg_divergence_kind)i;
            return true;
        }
    return false;
}

typedef struct diverging {
    const rg_divergence *d;
    const rg_divergence_rows *r;
    const rg_draws *draws;
    const rg_backend *backend;
    float *room; /* [n_threads, cols] */
    int cols;
} diverging;

/* z becomes exp(z / T - its largest); returned: the logarithm of the sum of exp(z / T). */
static double exponentials(const rg_backend *backend, float *z, int n, double temperature, double *sum)
{
    const float by = (float)(1 / temperature);
    float most = -INFINITY;

    for (int i = 0; i < n; i++)
        z[i] *= by;
    for (int i = 0; i < n; i++)
        most = z[i] > most ? z[i] : most;
    for (int i = 0; i < n; i++)
        z[i] -= most;
    backend->host_activate(backend, RG_EXP, z, z, (size_t)n);
    *sum = 0;
    for (int i = 0; i < n; i++)
        *sum += (double)z[i];
    return (double)most + log(*sum);
}

/* a (ln a - ln b) - a + b, where l = ln a - ln b. */
static double term(double a, double b, double l)
{
    if (!(a > 0))
        return b;
    if (fabs(l) < 0.25) /* a (l - 1 + exp(-l)) */
        return a * l * l *
               (1.0 / 2 -
                l * (1.0 / 6 - l * (1.0 / 24 - l * (1.0 / 120 - l * (1.0 / 720 - l * (1.0 / 5040 - l / 40320))))));
    return a * l - a + b;
}

/* p and q of one row: exponentials, their sums, and the logarithms of what these are of. */
typedef struct pair {
    float *p, *q, *apart; /* [n]; apart: the teacher's logit less the student's, by T */
    int n;
    double sum_p, sum_q, log_p, log_q;
} pair;

static double log_ratio(const pair *v, int i)
{
    return (double)v->apart[i] - v->log_p + v->log_q;
}

static double forward(const pair *v, double by)
{
    const double a = 1 / v->sum_p, b = 1 / v->sum_q;
    double loss = 0;

    for (int i = 0; i < v->n; i++) {
        const double p = (double)v->p[i] * a, q = (double)v->q[i] * b;

        loss += term(p, q, log_ratio(v, i));
        v->q[i] = (float)((q - p) * by);
    }
    return loss;
}

static double reverse(const pair *v, double by)
{
    const double a = 1 / v->sum_p, b = 1 / v->sum_q;
    double loss = 0;

    for (int i = 0; i < v->n; i++)
        loss += term((double)v->q[i] * b, (double)v->p[i] * a, -log_ratio(v, i));
    for (int i = 0; i < v->n; i++) {
        const double q = (double)v->q[i] * b;

        v->q[i] = q > 0 ? (float)(q * (-log_ratio(v, i) - loss) * by) : 0.0f;
    }
    return loss;
}

/* The k-th largest of p, and how many of those equal to it are among the k: the ones of the lowest ids. */
static float threshold_of(const float *p, int n, int k, float *scratch, int *equal)
{
    int lo = 0, hi = n - 1, above = 0;

    memcpy(scratch, p, (size_t)n * sizeof *p);
    while (lo < hi) { /* Hoare's selection, falling */
        const float pivot = scratch[lo + (hi - lo) / 2];
        int i = lo, j = hi;

        while (i <= j) {
            while (scratch[i] > pivot)
                i++;
            while (scratch[j] < pivot)
                j--;
            if (i <= j) {
                const float swap = scratch[i];

                scratch[i++] = scratch[j];
                scratch[j--] = swap;
            }
        }
        if (k - 1 <= j)
            hi = j;
        else if (k - 1 >= i)
            lo = i;
        else
            break;
    }
    const float least = scratch[k - 1];
    for (int i = 0; i < n; i++)
        above += p[i] > least;
    *equal = k - above;
    return least;
}

static double top_k(const pair *v, int k, double by, float *scratch)
{
    const double a = 1 / v->sum_p, b = 1 / v->sum_q;
    double loss = 0, rest_p = 0, rest_q = 0;
    int equal;
    const float least = threshold_of(v->p, v->n, k < v->n ? k : v->n, scratch, &equal);

    for (int i = 0; i < v->n; i++) {
        const double p = (double)v->p[i] * a, q = (double)v->q[i] * b;
        const bool in = v->p[i] > least || (v->p[i] == least && equal-- > 0);

        scratch[i] = in;
        if (in)
            loss += term(p, q, log_ratio(v, i));
        rest_p += in ? 0 : p;
        rest_q += in ? 0 : q;
    }
    loss += rest_q > 0 ? term(rest_p, rest_q, rest_p > 0 ? log(rest_p / rest_q) : 0) : 0;
    for (int i = 0; i < v->n; i++) {
        const double p = (double)v->p[i] * a, q = (double)v->q[i] * b;

        v->q[i] = (float)((scratch[i] != 0.0f ? q - p : q - q * (rest_p / rest_q)) * by);
    }
    return loss;
}

static void diverge_row(const diverging *v, int r, float *room)
{
    const rg_divergence_rows *rows = v->r;
    float *q = rg_mat_row(rows->student, r);
    const double t = v->d->temperature, by = rows->scale * t;
    pair two = { .p = rg_mat_row(rows->teacher, r), .q = q, .apart = room, .n = v->cols };

    rows->loss[r] = 0;
    memset(q + v->cols, 0, (size_t)(rows->student->cols - v->cols) * sizeof *q);
    if (rows->used && !rows->used[r]) {
        memset(q, 0, (size_t)v->cols * sizeof *q);
        return;
    }
    for (int i = 0; i < v->cols; i++)
        room[i] = (float)(((double)two.p[i] - (double)q[i]) / t);
    two.log_p = exponentials(v->backend, two.p, v->cols, t, &two.sum_p);
    two.log_q = exponentials(v->backend, q, v->cols, t, &two.sum_q);
    rows->loss[r] = t * t *
                    (v->d->kind == RG_FORWARD_KL   ? forward(&two, by)
                     : v->d->kind == RG_REVERSE_KL ? reverse(&two, by)
                                                   : top_k(&two, v->d->k, by, room + v->cols));
}

static void diverge_rows(void *arg, int first, int n, int block, int thread)
{
    const diverging *v = arg;

    (void)block;
    for (int r = first; r < first + n; r++)
        diverge_row(v, r, v->room + (size_t)thread * 2 * (size_t)v->cols);
}

void rg_divergence_of(const rg_divergence *d, rg_back_lane *lane, const rg_divergence_rows *r)
{
    const rg_back_mark mark = rg_back_marked(lane);
    diverging v = { .d = d, .r = r, .backend = lane->backend, .cols = rg_back_min(r->student->cols, r->teacher->cols) };

    v.room = rg_back_room(lane, (size_t)lane->n_threads * 2 * (size_t)v.cols);
    if (v.room)
        rg_back_each_rows(lane, r->student->rows, diverge_rows, &v);
    rg_back_give(lane, mark);
}

/* ---- drawn ids --------------------------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

enum { MOST_DRAWS = 1024 };

int rg_draw_ids(const rg_backend *backend, float *logits, int cols, int n, uint64_t seed, uint64_t number, int32_t *id,
                int32_t *count)
{
    double u[MOST_DRAWS], sum, below = 0;
    uint64_t x = rg_splitmix64_example(seed, number);
    int distinct = 0, at = 0, last = 0;

    RG_ASSERT(n <= MOST_DRAWS);
    for (int i = 0; i < n; i++)
        u[i] = (double)(rg_splitmix64(&x) >> 11) * 0x1p-53;
    qsort(u, (size_t)n, sizeof *u, by_number);
    exponentials(backend, logits, cols, 1, &sum);
    for (int i = 0; i < cols; i++)
        last = logits[i] > 0 ? i : last;
    for (int i = 0; i < cols && at < n; i++) {
        int times = 0;

        below += (double)logits[i] / sum;
        for (; at < n && (below > u[at] || i == last); at++)
            times++;
        if (times) {
            id[distinct] = i;
            count[distinct++] = times;
        }
    }
    return distinct;
}

/* -sum of count / n ln q, and (q - count / n) * scale. */
static void sample_row(const diverging *v, int r)
{
    const rg_divergence_rows *rows = v->r;
    const rg_draws *d = &v->draws[r];
    float *q = rg_mat_row(rows->student, r);
    double sum, log_q, n = 0, dot = 0;

    rows->loss[r] = 0;
    if (rows->used && !rows->used[r]) {
        memset(q, 0, (size_t)rows->student->cols * sizeof *q);
        return;
    }
    for (int i = 0; i < d->n; i++) {
        n += d->count[i];
        dot += d->count[i] * (double)q[d->id[i]];
    }
    log_q = exponentials(v->backend, q, rows->student->cols, 1, &sum);
    rows->loss[r] = log_q - dot / n;
    for (int i = 0; i < rows->student->cols; i++)
        q[i] = (float)((double)q[i] / sum * rows->scale);
    for (int i = 0; i < d->n; i++)
        q[d->id[i]] -= (float)(d->count[i] / n * rows->scale);
}

static void sample_rows(void *arg, int first, int n, int block, int thread)
{
    (void)block, (void)thread;
    for (int r = first; r < first + n; r++)
        sample_row(arg, r);
}

void rg_sampled_of(rg_back_lane *lane, const rg_draws *draws, const rg_divergence_rows *r)
{
    rg_back_each_rows(lane, r->student->rows, sample_rows,
                      &(diverging){ .r = r, .draws = draws, .backend = lane->backend });
}
