/* channels.c -- the backward of what mixes the rows of a sequence channel by channel: convolutions, decays, Mamba's
 * scan, state spaces, the RG-LRU.
 *
 * A part is a run of channels over all sequences, so that sums over rows are those of one thread, in the rows' order; a
 * recurrence goes forward once more, keeping its states, and then from the back.  Nothing crosses from one sequence to
 * another. */
#include <math.h>
#include <string.h>

#include "ops/back/inside.h"

enum { CHANNELS = 16 };

typedef struct parts {
    const rg_back *b;
    int longest; /* rows of a sequence */
    size_t each;
    float *scratch;
    float *shared; /* of the scan: [parts][rows][2 states], summed over a part's channels */
} parts;

static int longest_of(const rg_back *b)
{
    int most = 0;

    for (int s = 0; s < b->batch->n_spans; s++)
        most = b->batch->spans[s].n_rows > most ? b->batch->spans[s].n_rows : most;
    return most;
}

static bool begin(parts *v, const rg_back *b, size_t each)
{
    *v = (parts){ .b = b, .longest = longest_of(b), .each = rg_back_whole(each) };
    v->scratch = rg_back_room(b->lane, v->each * (size_t)b->lane->n_threads);
    return v->scratch;
}

static void run(parts *v, int channels, void (*part)(void *arg, int i, int thread))
{
    rg_back_each(v->b->lane, rg_ceil_div(channels, CHANNELS), part, v);
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

/* One result c: of the input's channel k. */
static void conv_result(const rg_back *b, int c, int k)
{
    const int taps = (int)b->op->w[0]->cols;
    const float *w = b->w[0] + (size_t)c * (size_t)taps;
    double dw[64] = { 0 }, db = 0;

    for (int s = 0; s < b->batch->n_spans; s++) {
        const rg_span *span = rg_back_span(b, s);

        for (int t = 0; t < span->n_rows; t++) {
            const int from = t < taps - 1 ? taps - 1 - t : 0; /* the first tap that meets a row */
            const int row = span->first_row + t - (taps - 1);
            double z = b->b[0] ? (double)b->b[0][c] : 0;

            for (int j = from; j < taps; j++)
                z += (double)w[j] * (double)rg_mat_row(&b->in[0], row + j)[k];
            const double g = (double)rg_mat_row(&b->d_out[0], span->first_row + t)[c] * rg_back_slope(b->op->act, z);
            db += g;
            for (int j = from; j < taps; j++) {
                dw[j] += g * (double)rg_mat_row(&b->in[0], row + j)[k];
                rg_mat_row(&b->d_in[0], row + j)[k] += (float)(g * (double)w[j]);
            }
        }
    }
    for (int j = 0; b->dw[0] && j < taps; j++)
        b->dw[0][(size_t)c * (size_t)taps + (size_t)j] += (float)dw[j];
    if (b->db[0])
        b->db[0][c] += (float)db;
}

static void conv_part(void *arg, int i, int thread)
{
    const parts *v = arg;
    const rg_back *b = v->b;

    (void)thread;
    for (int k = i * CHANNELS; k < (i + 1) * CHANNELS && k < b->in[0].cols; k++)
        for (int c = k; c < b->d_out[0].cols; c += b->in[0].cols)
            conv_result(b, c, k);
}

void rg_back_conv(const rg_back *b)
{
    parts v;

    RG_ASSERT(b->op->w[0]->cols <= 64);
    if (begin(&v, b, 16))
        run(&v, b->in[0].cols, conv_part);
}

/* ---- decays ------------------------------------------------------------------------------------------------------ */

/* dt = act(raw + bias) within bounds, decay = exp(rate dt); a rate is for `each` columns. */
static void decay_column(const rg_back *b, int c, double *d_rate)
{
    const rg_decay_params *p = b->op->decay;
    const int cols = b->in[0].cols, each = p->rate ? cols / (int)p->rate->cols : 1;
    const double rate = p->rate ? (double)b->w[0][c / each] : (double)p->fixed_rate;
    double db = 0;

    for (int r = 0; r < b->in[0].rows; r++) {
        const double x = (double)rg_mat_row(&b->in[0], r)[c] + (b->b[0] ? (double)b->b[0][c] : 0);
        const double v = rg_back_value(p->act, x);
        const bool free = !(p->max > 0) || (v >= (double)p->min && v <= (double)p->max);
        const double dt = p->max > 0 ? fmin(fmax(v, (double)p->min), (double)p->max) : v;
        const double g = (double)rg_mat_row(&b->d_out[0], r)[c] * exp(rate * dt);
        double d = g * rate + (b->d_out[1].at ? (double)rg_mat_row(&b->d_out[1], r)[c] : 0);

        *d_rate += g * dt;
        d = free ? d * rg_back_slope(p->act, x) : 0;
        db += d;
        rg_mat_row(&b->d_in[0], r)[c] += (float)d;
    }
    if (b->db[0])
        b->db[0][c] += (float)db;
}

/* A part has all columns of its rates. */
static void decay_part(void *arg, int i, int thread)
{
    const parts *v = arg;
    const rg_back *b = v->b;
    const int cols = b->in[0].cols, n = b->op->decay->rate ? (int)b->op->decay->rate->cols : cols, each = cols / n;

    (void)thread;
    for (int k = i * CHANNELS; k < (i + 1) * CHANNELS && k < n; k++) {
        double d_rate = 0;

        for (int c = k * each; c < (k + 1) * each; c++)
            decay_column(b, c, &d_rate);
        if (b->dw[0] && b->op->decay->rate)
            b->dw[0][k] += (float)d_rate;
    }
}

void rg_back_decay(const rg_back *b)
{
    parts v;

    if (begin(&v, b, 16))
        run(&v, b->op->decay->rate ? (int)b->op->decay->rate->cols : b->in[0].cols, decay_part);
}

/* ---- Mamba's scan ------------------------------------------------------------------------------------------------ */

/* One channel of one sequence: T rows, N states. */
typedef struct scanning {
    const rg_back *b;
    const rg_span *span;
    int c, n;
    float *decay, *h; /* [T][N]: exp(dt a), h after the row */
    float *dt;        /* [T] */
    float *shared;    /* [rows of the step][2 N]: dB, dC */
} scanning;

static void scan_forward(const scanning *v)
{
    const rg_back *b = v->b;
    const int n = v->n, d_inner = b->in[0].cols;

    for (int t = 0; t < v->span->n_rows; t++) {
        v->dt[t] = (float)rg_back_value(RG_SOFTPLUS, (double)rg_mat_row(&b->in[1], v->span->first_row + t)[v->c]);
        for (int k = 0; k < n; k++)
            v->decay[t * n + k] = v->dt[t] * b->w[0][(size_t)k * (size_t)d_inner + (size_t)v->c];
    }
    b->lane->backend->host_activate(b->lane->backend, RG_EXP, v->decay, v->decay, (size_t)v->span->n_rows * (size_t)n);
    for (int t = 0; t < v->span->n_rows; t++) {
        const int row = v->span->first_row + t;
        const float u = rg_mat_row(&b->in[0], row)[v->c] * v->dt[t], *bt = rg_mat_row(&b->in[2], row);

        for (int k = 0; k < n; k++)
            v->h[t * n + k] = (t ? v->decay[t * n + k] * v->h[(t - 1) * n + k] : 0) + u * bt[k];
    }
}

/* lambda [N] is the gradient of the state; da [N] and *dd are added to. */
static void scan_row_back(const scanning *v, int t, double *lambda, double *da, double *dd)
{
    const rg_back *b = v->b;
    const int row = v->span->first_row + t, n = v->n, c = v->c, d_inner = b->in[0].cols;
    const float *bt = rg_mat_row(&b->in[2], row), *ct = bt + n, *h = v->h + t * n, *a = v->decay + t * n;
    const double x = (double)rg_mat_row(&b->in[0], row)[c], z = (double)rg_mat_row(&b->in[3], row)[c];
    const double dt = (double)v->dt[t], d = (double)b->w[1][c], dy = (double)rg_mat_row(&b->d_out[0], row)[c];
    float *to = v->shared + (size_t)row * 2 * (size_t)n;
    double y = d * x, du = 0, ddt = 0;

    for (int k = 0; k < n; k++)
        y += (double)ct[k] * (double)h[k];
    rg_mat_row(&b->d_in[3], row)[c] += (float)(dy * y * rg_back_slope(RG_SILU, z));
    const double g = dy * rg_back_value(RG_SILU, z);
    *dd += g * x;
    for (int k = 0; k < n; k++) {
        const double before = t ? (double)h[k - n] : 0, w = (double)b->w[0][(size_t)k * (size_t)d_inner + (size_t)c];

        lambda[k] += (double)ct[k] * g;
        to[n + k] += (float)(g * (double)h[k]);
        to[k] += (float)(lambda[k] * dt * x);
        du += lambda[k] * dt * (double)bt[k];
        const double kept = lambda[k] * (double)a[k];
        ddt += kept * before * w + lambda[k] * (double)bt[k] * x;
        da[k] += kept * before * dt;
        lambda[k] = kept;
    }
    rg_mat_row(&b->d_in[0], row)[c] += (float)(du + d * g);
    rg_mat_row(&b->d_in[1], row)[c] += (float)(ddt * rg_back_slope(RG_SOFTPLUS, (double)rg_mat_row(&b->in[1], row)[c]));
}

static void scan_part(void *arg, int i, int thread)
{
    const parts *p = arg;
    const rg_back *b = p->b;
    const int n = (int)b->op->w[0]->rows, d_inner = b->in[0].cols;
    float *at = p->scratch + (size_t)thread * p->each;
    double *lambda = (double *)(void *)at, *da = lambda + n;
    scanning v = { .b = b, .n = n, .decay = (float *)(da + n) };

    v.h = v.decay + (size_t)p->longest * (size_t)n;
    v.dt = v.h + (size_t)p->longest * (size_t)n;
    v.shared = p->shared + (size_t)i * (size_t)b->in[0].rows * 2 * (size_t)n;
    memset(v.shared, 0, (size_t)b->in[0].rows * 2 * (size_t)n * sizeof *v.shared);
    for (v.c = i * CHANNELS; v.c < (i + 1) * CHANNELS && v.c < d_inner; v.c++) {
        double dd = 0;

        memset(da, 0, (size_t)n * sizeof *da);
        for (int s = 0; s < b->batch->n_spans; s++) {
            v.span = rg_back_span(b, s);
            memset(lambda, 0, (size_t)n * sizeof *lambda);
            scan_forward(&v);
            for (int t = v.span->n_rows - 1; t >= 0; t--)
                scan_row_back(&v, t, lambda, da, &dd);
        }
        for (int k = 0; b->dw[0] && k < n; k++)
            b->dw[0][(size_t)k * (size_t)d_inner + (size_t)v.c] += (float)da[k];
        if (b->dw[1])
            b->dw[1][v.c] += (float)dd;
    }
}

/* dB and dC of some rows, summed over the parts. */
static void scan_fold(void *arg, int first, int n, int block, int thread)
{
    const parts *p = arg;
    const rg_back *b = p->b;
    const int cols = b->in[2].cols, n_parts = rg_ceil_div(b->in[0].cols, CHANNELS);

    (void)block, (void)thread;
    for (int r = first; r < first + n; r++)
        for (int c = 0; c < cols; c++) {
            double sum = 0;

            for (int i = 0; i < n_parts; i++)
                sum += (double)p->shared[((size_t)i * (size_t)b->in[0].rows + (size_t)r) * (size_t)cols + (size_t)c];
            rg_mat_row(&b->d_in[2], r)[c] += (float)sum;
        }
}

void rg_back_scan(const rg_back *b)
{
    const size_t n = (size_t)b->op->w[0]->rows, longest = (size_t)longest_of(b);
    const size_t n_parts = (size_t)rg_ceil_div(b->in[0].cols, CHANNELS);
    parts v;

    if (!begin(&v, b, 4 * n + 2 * longest * n + longest))
        return;
    v.shared = rg_back_room(b->lane, n_parts * (size_t)b->in[0].rows * 2 * n);
    if (!v.shared)
        return;
    run(&v, b->in[0].cols, scan_part);
    rg_back_each_rows(b->lane, b->in[0].rows, scan_fold, &v);
}

/* ---- state spaces ------------------------------------------------------------------------------------------------ */

/* A channel's modes as real numbers: rows E, B, C, and of the full form R and F, each a pair. */
typedef struct spacing {
    const rg_back *b;
    const rg_span *span;
    int c, n, rows; /* rows of a mode in w[0] */
    double *x;      /* [T + 1][2 n] states, the first one 0 */
    double *q;      /* [T] */
    double *m, *dm; /* [n][rows] */
} spacing;

static void space_forward(const spacing *v)
{
    const rg_back *b = v->b;
    const bool full = v->rows == RG_FULL_MODE_ROWS;

    memset(v->x, 0, 2 * (size_t)v->n * sizeof *v->x);
    for (int t = 0; t < v->span->n_rows; t++) {
        const double u = (double)rg_mat_row(&b->in[0], v->span->first_row + t)[v->c];
        const double *x = v->x + (size_t)t * 2 * (size_t)v->n;
        double *y = v->x + (size_t)(t + 1) * 2 * (size_t)v->n, q = 0;

        for (int k = 0; full && k < v->n; k++)
            q += v->m[k * v->rows + 6] * x[2 * k] + v->m[k * v->rows + 7] * x[2 * k + 1];
        v->q[t] = q;
        for (int k = 0; k < v->n; k++) {
            const double *m = v->m + k * v->rows;

            y[2 * k] = m[0] * x[2 * k] - m[1] * x[2 * k + 1] + m[2] * u + (full ? m[8] * q : 0);
            y[2 * k + 1] = m[0] * x[2 * k + 1] + m[1] * x[2 * k] + m[3] * u + (full ? m[9] * q : 0);
        }
    }
}

static void space_row_back(const spacing *v, int t, double *l, double *dd)
{
    const rg_back *b = v->b;
    const int row = v->span->first_row + t;
    const bool full = v->rows == RG_FULL_MODE_ROWS;
    const double u = (double)rg_mat_row(&b->in[0], row)[v->c], dy = (double)rg_mat_row(&b->d_out[0], row)[v->c];
    const double *x = v->x + (size_t)t * 2 * (size_t)v->n, *y = x + 2 * v->n;
    double du = dy * (double)b->w[1][v->c], dq = 0;

    *dd += dy * u;
    for (int k = 0; k < v->n; k++) {
        const double *m = v->m + k * v->rows;
        double *d = v->dm + k * v->rows, *p = l + 2 * k;

        d[4] += dy * y[2 * k];
        d[5] += dy * y[2 * k + 1];
        p[0] += dy * m[4];
        p[1] += dy * m[5];
        d[0] += p[0] * x[2 * k] + p[1] * x[2 * k + 1];
        d[1] += p[1] * x[2 * k] - p[0] * x[2 * k + 1];
        d[2] += p[0] * u;
        d[3] += p[1] * u;
        du += p[0] * m[2] + p[1] * m[3];
        if (full) {
            d[8] += p[0] * v->q[t];
            d[9] += p[1] * v->q[t];
            dq += p[0] * m[8] + p[1] * m[9];
        }
        const double re = m[0] * p[0] + m[1] * p[1], im = m[0] * p[1] - m[1] * p[0];
        p[0] = re;
        p[1] = im;
    }
    for (int k = 0; full && k < v->n; k++) {
        const double *m = v->m + k * v->rows;
        double *d = v->dm + k * v->rows;

        d[6] += dq * x[2 * k];
        d[7] += dq * x[2 * k + 1];
        l[2 * k] += dq * m[6];
        l[2 * k + 1] += dq * m[7];
    }
    rg_mat_row(&b->d_in[0], row)[v->c] += (float)du;
}

static void space_part(void *arg, int i, int thread)
{
    const parts *p = arg;
    const rg_back *b = p->b;
    const size_t channels = (size_t)b->in[0].cols, n = (size_t)b->op->n;
    const int rows = (int)(b->op->w[0]->rows / b->op->n);
    double *l = (double *)(void *)(p->scratch + (size_t)thread * p->each);
    spacing v = { .b = b, .n = b->op->n, .rows = rows, .m = l + 2 * n };

    v.dm = v.m + n * (size_t)rows;
    v.q = v.dm + n * (size_t)rows;
    v.x = v.q + p->longest;
    for (v.c = i * CHANNELS; v.c < (i + 1) * CHANNELS && v.c < (int)channels; v.c++) {
        double dd = 0;

        for (size_t k = 0; k < n * (size_t)rows; k++)
            v.m[k] = (double)b->w[0][k * channels + (size_t)v.c];
        memset(v.dm, 0, n * (size_t)rows * sizeof *v.dm);
        for (int s = 0; s < b->batch->n_spans; s++) {
            v.span = rg_back_span(b, s);
            memset(l, 0, 2 * n * sizeof *l);
            space_forward(&v);
            for (int t = v.span->n_rows - 1; t >= 0; t--)
                space_row_back(&v, t, l, &dd);
        }
        for (size_t k = 0; b->dw[0] && k < n * (size_t)rows; k++)
            b->dw[0][k * channels + (size_t)v.c] += (float)v.dm[k];
        if (b->dw[1])
            b->dw[1][v.c] += (float)dd;
    }
}

void rg_back_state_space(const rg_back *b)
{
    const size_t n = (size_t)b->op->n, rows = (size_t)b->op->w[0]->rows, longest = (size_t)longest_of(b);
    parts v;

    if (begin(&v, b, 2 * (2 * n + 2 * rows + longest + (longest + 1) * 2 * n)))
        run(&v, b->in[0].cols, space_part);
}

/* ---- RG-LRU ------------------------------------------------------------------------------------------------------ */

/* l = rate s(r + b_r), a = exp l, h = a h + m s(i + b_i) x, m = sqrt(1 - exp 2l), or 1 at the first position. */
static void lru_span(const rg_back *b, const rg_span *span, int c, double *h, double d[3])
{
    const double rate = (double)b->w[0][c];
    double lambda = 0;

    for (int t = 0; t < span->n_rows; t++) {
        const int row = span->first_row + t;
        const double l = rate * rg_back_value(RG_SIGMOID, (double)rg_mat_row(&b->in[1], row)[c] + (double)b->b[0][c]);
        const double g = rg_back_value(RG_SIGMOID, (double)rg_mat_row(&b->in[2], row)[c] + (double)b->b[1][c]);

        h[t + 1] = exp(l) * h[t] + (t ? sqrt(-expm1(2 * l)) : 1) * g * (double)rg_mat_row(&b->in[0], row)[c];
    }
    for (int t = span->n_rows - 1; t >= 0; t--) {
        const int row = span->first_row + t;
        const double s = rg_back_value(RG_SIGMOID, (double)rg_mat_row(&b->in[1], row)[c] + (double)b->b[0][c]);
        const double g = rg_back_value(RG_SIGMOID, (double)rg_mat_row(&b->in[2], row)[c] + (double)b->b[1][c]);
        const double l = rate * s, a = exp(l), m = t ? sqrt(-expm1(2 * l)) : 1;
        const double x = (double)rg_mat_row(&b->in[0], row)[c];

        lambda += (double)rg_mat_row(&b->d_out[0], row)[c];
        double dl = lambda * h[t] * a;
        if (t && m > 0)
            dl -= lambda * g * x * exp(2 * l) / m;
        const double dr = dl * rate * s * (1 - s), di = lambda * m * x * g * (1 - g);
        d[0] += dl * s;
        d[1] += dr;
        d[2] += di;
        rg_mat_row(&b->d_in[0], row)[c] += (float)(lambda * m * g);
        rg_mat_row(&b->d_in[1], row)[c] += (float)dr;
        rg_mat_row(&b->d_in[2], row)[c] += (float)di;
        lambda *= a;
    }
}

static void lru_part(void *arg, int i, int thread)
{
    const parts *p = arg;
    const rg_back *b = p->b;
    double *h = (double *)(void *)(p->scratch + (size_t)thread * p->each);

    for (int c = i * CHANNELS; c < (i + 1) * CHANNELS && c < b->in[0].cols; c++) {
        double d[3] = { 0 };

        h[0] = 0;
        for (int s = 0; s < b->batch->n_spans; s++)
            lru_span(b, rg_back_span(b, s), c, h, d);
        if (b->dw[0])
            b->dw[0][c] += (float)d[0];
        for (int k = 0; k < 2; k++)
            if (b->db[k])
                b->db[k][c] += (float)d[1 + k];
    }
}

void rg_back_lru(const rg_back *b)
{
    parts v;

    if (begin(&v, b, 2 * (size_t)(longest_of(b) + 1)))
        run(&v, b->in[0].cols, lru_part);
}
