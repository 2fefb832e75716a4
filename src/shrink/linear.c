/* linear.c -- see linear.h. */
#include "shrink/linear.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "shrink/kbit.h"

enum { TILE = 16, DEPTH = 64, SIDE = 8, LINE = 4096 /* of sums on a thread's stack */ };

typedef struct gram {
    double *to;
    const float *x;
    int64_t n, cols;
    rg_pool *pool;
} gram;

/* sum[j - from] += the products of column k and columns [from, to) of n <= 8 rows. */
static void add_products(float *sum, const float *x, int64_t n, int64_t cols, int64_t k, int64_t from, int64_t to)
{
    if (n == 8) {
        const float *a = x, *b = a + cols, *c = b + cols, *d = c + cols, *e = d + cols, *f = e + cols, *g = f + cols,
                    *h = g + cols;
        const float ak = a[k], bk = b[k], ck = c[k], dk = d[k], ek = e[k], fk = f[k], gk = g[k], hk = h[k];
        for (int64_t j = from; j < to; j++)
            sum[j - from] += ((ak * a[j] + bk * b[j]) + (ck * c[j] + dk * d[j])) +
                             ((ek * e[j] + fk * f[j]) + (gk * g[j] + hk * h[j]));
        return;
    }
    for (int64_t r = 0; r < n; r++) {
        const float *row = x + r * cols, by = row[k];
        for (int64_t j = from; j < to; j++)
            sum[j - from] += by * row[j];
    }
}

/* Rows [i, i + TILE) of the triangle.  DEPTH products are added in f32, whose sum is then added in double. */
static void gram_tile(const gram *g, int64_t i)
{
    const int64_t cols = g->cols, end = i + TILE < cols ? i + TILE : cols;
    float sum[LINE];

    for (int64_t from = 0; from < g->n; from += DEPTH) {
        const int64_t to = from + DEPTH < g->n ? from + DEPTH : g->n;
        for (int64_t k = i; k < end; k++)
            for (int64_t j = k, past; j < cols; j = past) {
                past = j + LINE < cols ? j + LINE : cols;
                memset(sum, 0, (size_t)(past - j) * sizeof *sum);
                for (int64_t r = from; r < to; r += 8)
                    add_products(sum, g->x + r * cols, to - r < 8 ? to - r : 8, cols, k, j, past);
                for (int64_t c = j; c < past; c++)
                    g->to[k * cols + c] += (double)sum[c - j];
            }
    }
}

static void gram_some(void *arg, int thread)
{
    const gram *g = arg;
    uint32_t phase = 0;

    (void)thread;
    for (int i; (i = rg_phase_take(g->pool, phase, rg_ceil_div(g->cols, TILE))) >= 0;)
        gram_tile(g, (int64_t)TILE * i);
    rg_phase_end(g->pool, &phase);
}

void rg_gram_add(double *to, const float *x, int64_t n, int64_t cols, rg_pool *pool)
{
    gram g = { to, x, n, cols, pool };

    if (n > 0)
        rg_pool_run(pool, rg_pool_threads(pool), gram_some, &g);
}

void rg_gram_mirror(double *a, int64_t cols)
{
    for (int64_t i = 0; i < cols; i++)
        for (int64_t j = 0; j < i; j++)
            a[i * cols + j] = a[j * cols + i];
}

/* In eight chains, so that the processor need not wait for each addition. */
static double dot(const double *a, const double *b, int64_t n)
{
    double s[8] = { 0 };
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        s[i & 7] += a[i] * b[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* A = R R^T with R upper triangular, from the last column on; then U = R^-1, since A^-1 = R^-T R^-1. */
bool rg_inverse_factor(double *a, int64_t n)
{
    for (int64_t j = n - 1; j >= 0; j--) {
        const double *rj = a + j * n + j + 1;
        double d = a[j * n + j] - dot(rj, rj, n - 1 - j);
        if (!(d > 0) || !isfinite(d))
            return false;
        a[j * n + j] = d = sqrt(d);
        for (int64_t i = 0; i < j; i++)
            a[i * n + j] = (a[i * n + j] - dot(a + i * n + j + 1, rj, n - 1 - j)) / d;
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        double *row = a + i * n, d = row[i];
        /* R of this row is read from left to right; U takes its place behind what is still to be read. */
        for (int64_t k = n - 1; k > i; k--) {
            const double by = row[k], *u = a + k * n;
            row[k] = 0;
            for (int64_t j = k; j < n; j++)
                row[j] -= by * u[j];
        }
        row[i] = 1;
        for (int64_t j = i; j < n; j++)
            row[j] /= d;
        memset(row, 0, (size_t)i * sizeof *row);
    }
    return true;
}

typedef struct quadratic {
    const float *d;
    int64_t rows, cols;
    const double *a;
    rg_pool *pool;
    double *sum; /* of each SIDE rows */
    double (*side)[SIDE]; /* [threads, cols] */
} quadratic;

/* The sum of d A d^T over n <= SIDE rows of d, side by side, so that each element of A is read once for all of them.
 * What is below the diagonal counts twice, since A is symmetric. */
static double rows_quadratic(const quadratic *q, const float *d, int64_t n, double (*side)[SIDE])
{
    double sum[SIDE] = { 0 }, all = 0;

    for (int64_t j = 0; j < q->cols; j++)
        for (int r = 0; r < SIDE; r++)
            side[j][r] = r < n ? (double)d[r * q->cols + j] : 0;
    for (int64_t i = 0; i < q->cols; i++) {
        const double *row = q->a + i * q->cols;
        double below[SIDE] = { 0 };

        for (int64_t j = 0; j < i; j++)
            for (int r = 0; r < SIDE; r++)
                below[r] += row[j] * side[j][r];
        for (int r = 0; r < SIDE; r++)
            sum[r] += side[i][r] * (2 * below[r] + row[i] * side[i][r]);
    }
    for (int r = 0; r < SIDE; r++)
        all += sum[r];
    return all;
}

static void quadratic_some(void *arg, int thread)
{
    quadratic *q = arg;
    double (*side)[SIDE] = q->side + (size_t)thread * (size_t)q->cols;
    uint32_t phase = 0;

    for (int i; (i = rg_phase_take(q->pool, phase, rg_ceil_div(q->rows, SIDE))) >= 0;) {
        const int64_t r = (int64_t)i * SIDE, n = q->rows - r < SIDE ? q->rows - r : SIDE;

        q->sum[i] = rows_quadratic(q, q->d + r * q->cols, n, side);
    }
    rg_phase_end(q->pool, &phase);
}

bool rg_quadratic(double *to, const float *d, int64_t rows, const double *a, int64_t cols, rg_pool *pool)
{
    const int64_t n = (rows + SIDE - 1) / SIDE;
    quadratic q = { .d = d, .rows = rows, .cols = cols, .a = a, .pool = pool };

    q.sum = rg_array((size_t)n, sizeof *q.sum);
    q.side = rg_table_new(rg_pool_threads(pool), cols, sizeof *q.side);
    const bool ok = q.sum && q.side;
    if (ok)
        rg_pool_run(pool, rg_pool_threads(pool), quadratic_some, &q);
    *to = 0;
    for (int64_t i = 0; ok && i < n; i++)
        *to += q.sum[i];
    rg_free(q.sum);
    rg_free(q.side);
    return ok;
}

/* ---- eigenvectors ------------------------------------------------------------------------------------------------ */

/* Turn rows p and q of a matrix of n columns by an angle. */
static void turn_rows(double *x, double *y, int64_t n, double cosine, double sine)
{
    for (int64_t k = 0; k < n; k++) {
        const double a = x[k], b = y[k];

        x[k] = cosine * a - sine * b;
        y[k] = sine * a + cosine * b;
    }
}

/* Make A[p][q] zero by a rotation of rows and columns p and q. */
static void turn(double *a, double *v, int64_t n, int64_t p, int64_t q)
{
    const double half = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
    const double t = (half < 0 ? -1 : 1) / (fabs(half) + sqrt(half * half + 1));
    const double cosine = 1 / sqrt(t * t + 1), sine = t * cosine;

    turn_rows(a + p * n, a + q * n, n, cosine, sine);
    for (int64_t k = 0; k < n; k++) {
        const double x = a[k * n + p], y = a[k * n + q];

        a[k * n + p] = cosine * x - sine * y;
        a[k * n + q] = sine * x + cosine * y;
    }
    turn_rows(v + p * n, v + q * n, n, cosine, sine);
}

/* Squares off the diagonal, and on it. */
static void squares(const double *a, int64_t n, double *off, double *on)
{
    *off = *on = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++)
            *(i == k ? on : off) += a[i * n + k] * a[i * n + k];
}

static void swap_rows(double *v, int64_t n, int64_t i, int64_t k)
{
    for (int64_t c = 0; c < n && i != k; c++) {
        const double x = v[i * n + c];

        v[i * n + c] = v[k * n + c];
        v[k * n + c] = x;
    }
}

void rg_eigen(double *a, int64_t n, double *values, double *v)
{
    enum { MOST_SWEEPS = 60 };
    double off, on;

    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++)
            v[i * n + k] = i == k;
    squares(a, n, &off, &on);
    for (int sweep = 0; sweep < MOST_SWEEPS && off > 1e-26 * on; sweep++) {
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++)
                if (a[p * n + q] * a[p * n + q] > 1e-32 * on / (double)(n * n))
                    turn(a, v, n, p, q);
        squares(a, n, &off, &on);
    }
    for (int64_t i = 0; i < n; i++)
        values[i] = a[i * n + i];
    for (int64_t i = 0; i < n; i++) {
        int64_t best = i;

        for (int64_t k = i + 1; k < n; k++)
            best = values[k] > values[best] ? k : best;
        const double x = values[i];
        values[i] = values[best];
        values[best] = x;
        swap_rows(v, n, i, best);
    }
}
