/* norms.c -- the backward of norms.  Of y = x r w with r = 1 / sqrt(mean x^2 + eps), g = dy w:
 *     dx = r (g - x r^2 mean(g x)),  dw = the sum of dy x r.
 * LayerNorm, xh = (x - mean) s: dx = s (g - mean g - xh mean(g xh)), dw = the sum of dy xh, db that of dy.  Means and
 * sums over a run's columns are in double. */
#include <math.h>
#include <string.h>

#include "ops/back/inside.h"

typedef struct norming {
    const rg_back *b;
    float *dw, *db; /* [blocks][cols of the weight] */
    int n, n_w;     /* columns of a run, of the weight */
} norming;

/* The sum of x[i] w[i] y[i]. */
static double dot_of_three(const float *x, const float *w, const float *y, int n)
{
    double l[RG_BACK_LANES] = { 0 };
    int i = 0;

    for (; i + RG_BACK_LANES <= n; i += RG_BACK_LANES)
        for (int k = 0; k < RG_BACK_LANES; k++)
            l[k] += (double)x[i + k] * (double)w[i + k] * (double)y[i + k];
    for (; i < n; i++)
        l[i % RG_BACK_LANES] += (double)x[i] * (double)w[i] * (double)y[i];
    return rg_back_fold_lanes(l);
}

static void rms_run(const rg_op *op, const float *x, const float *dy, const float *w, float *dx, float *dw, int n)
{
    const bool sum = op->kind == RG_OP_L2NORM;
    const double ss = rg_back_dot(x, x, n), gx = w ? dot_of_three(dy, w, x, n) : rg_back_dot(dy, x, n);
    const double r = 1 / sqrt((sum ? ss : ss / n) + (double)op->x), k = r * r * (sum ? gx : gx / n);
    for (int c = 0; c < n && w; c++)
        dx[c] += (float)(r * ((double)dy[c] * (double)w[c] - (double)x[c] * k));
    for (int c = 0; c < n && !w; c++)
        dx[c] += (float)(r * ((double)dy[c] - (double)x[c] * k));
    for (int c = 0; dw && c < n; c++)
        dw[c] += (float)((double)dy[c] * (double)x[c] * r);
}

static void layer_run(const rg_op *op, const float *x, const float *dy, const float *w, float *dx, float *dw, float *db,
                      int n)
{
    double mean = 0, var = 0, mg = 0, mgx = 0;

    for (int c = 0; c < n; c++)
        mean += (double)x[c];
    mean /= n;
    for (int c = 0; c < n; c++)
        var += ((double)x[c] - mean) * ((double)x[c] - mean);
    const double s = 1 / sqrt(var / n + (double)op->x);
    for (int c = 0; c < n; c++) {
        const double g = w ? (double)dy[c] * (double)w[c] : (double)dy[c];
        mg += g;
        mgx += g * ((double)x[c] - mean) * s;
    }
    mg /= n;
    mgx /= n;
    for (int c = 0; c < n; c++) {
        const double g = w ? (double)dy[c] * (double)w[c] : (double)dy[c], xh = ((double)x[c] - mean) * s;

        dx[c] += (float)(s * (g - mg - xh * mgx));
        if (dw)
            dw[c] += (float)((double)dy[c] * xh);
        if (db)
            db[c] += dy[c];
    }
}

static void norm_rows(void *arg, int first, int n, int block, int thread)
{
    const norming *v = arg;
    const rg_back *b = v->b;
    float *dw = v->dw ? v->dw + (size_t)block * (size_t)v->n_w : NULL;
    float *db = v->db ? v->db + (size_t)block * (size_t)v->n_w : NULL;

    (void)thread;
    for (int r = first; r < first + n; r++)
        for (int c = 0; c < b->in[0].cols; c += v->n) {
            const int at = v->n_w > v->n ? c : 0; /* weights of its own */
            const float *x = rg_mat_row(&b->in[0], r) + c, *dy = rg_mat_row(&b->d_out[0], r) + c;
            const float *w = b->w[0] ? b->w[0] + at : NULL;
            float *dx = rg_mat_row(&b->d_in[0], r) + c;

            if (b->op->kind == RG_OP_LAYERNORM)
                layer_run(b->op, x, dy, w, dx, dw ? dw + at : NULL, db ? db + at : NULL, v->n);
            else
                rms_run(b->op, x, dy, w, dx, dw ? dw + at : NULL, v->n);
        }
}

static void norm(const rg_back *b)
{
    const int blocks = rg_back_blocks(b->in[0].rows), n_w = b->op->w[0] ? (int)b->op->w[0]->cols : b->op->n;
    norming v = { .b = b, .n = b->op->n, .n_w = n_w };
    const size_t all = (size_t)blocks * (size_t)n_w;

    if (b->dw[0] && !(v.dw = rg_back_zeros(b->lane, all)))
        return;
    if (b->db[0] && !(v.db = rg_back_zeros(b->lane, all)))
        return;
    rg_back_each_rows(b->lane, b->in[0].rows, norm_rows, &v);
    if (v.dw)
        rg_back_fold(b->dw[0], v.dw, blocks, n_w);
    if (v.db)
        rg_back_fold(b->db[0], v.db, blocks, n_w);
}

void rg_back_rmsnorm(const rg_back *b)
{
    norm(b);
}

void rg_back_layernorm(const rg_back *b)
{
    norm(b);
}

void rg_back_l2norm(const rg_back *b)
{
    norm(b);
}

/* ---- of Gemma 3n ------------------------------------------------------------------------------------------------- */

/* y' = y a, a = rms(x) / max(rms(y), root of floor).  da / dx = x a / sum x^2; da / dy = -y a / sum y^2 above the
 * floor. */
void rg_back_match_rms(const rg_back *b)
{
    const int n = b->d_out[0].cols;

    for (int r = 0; r < b->d_out[0].rows; r++) {
        const float *x = rg_mat_row(&b->in[0], r), *y = rg_mat_row(&b->out[0], r);
        float *d = rg_mat_row(&b->d_out[0], r), *dx = rg_mat_row(&b->d_in[0], r);
        double sx = 0, sy = 0, dy = 0;

        for (int c = 0; c < n; c++) {
            sx += (double)x[c] * (double)x[c];
            sy += (double)y[c] * (double)y[c];
            dy += (double)d[c] * (double)y[c];
        }
        const bool above = sy / n > (double)b->op->x;
        const double low = above ? sy / n : (double)b->op->x, a = sqrt(sx / n) / sqrt(low);
        for (int c = 0; c < n; c++) {
            if (sx > 0)
                dx[c] += (float)(dy * a * (double)x[c] / sx);
            d[c] = (float)(a * ((double)d[c] - (above ? dy * (double)y[c] / sy : 0)));
        }
    }
}

/* y = relu(x - mean - k dev): where y > 0, g = dy; dx = g - (sum g) (1 / n + k (x - mean) / (n dev)). */
void rg_back_cut_gate(const rg_back *b)
{
    const int n = b->d_out[0].cols;

    for (int r = 0; r < b->d_out[0].rows; r++) {
        const float *x = rg_mat_row(&b->in[0], r), *d = rg_mat_row(&b->d_out[0], r);
        float *dx = rg_mat_row(&b->d_in[0], r);
        double mean = 0, var = 0, sum = 0;

        for (int c = 0; c < n; c++)
            mean += (double)x[c] / n;
        for (int c = 0; c < n; c++)
            var += ((double)x[c] - mean) * ((double)x[c] - mean) / n;
        const double dev = sqrt(var), at = mean + (double)b->op->x * dev;
        for (int c = 0; c < n; c++)
            sum += (double)x[c] > at ? (double)d[c] : 0;
        for (int c = 0; c < n; c++) {
            const double away = dev > 0 ? ((double)x[c] - mean) / dev : 0;
            dx[c] += (float)(((double)x[c] > at ? (double)d[c] : 0) - sum * (1 + (double)b->op->x * away) / n);
        }
    }
}
