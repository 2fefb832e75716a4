/* channels.c -- the backward of what mixes the rows of a sequence channel by channel: convolutions, decays, state
 * spaces, the RG-LRU.  A recurrence goes forward once more, keeping its states, and then from the back. */
#include <math.h>
#include <string.h>

#include "ops/back/lanes.h"

/* ---- convolution ------------------------------------------------------------------------------------------------- */

enum { CONV_ROWS = 128 };

/* Some channels; of each result w [taps] and bias, and what their gradients are. */
typedef struct convolving {
    const rg_back *b;
    int c, taps, results;
    float *w;    /* [results][taps + 1] */
    double *sum; /* likewise */
    float *x, *dx, *g, *z, *scratch, *some;
} convolving;

static void lay_out_conv(convolving *v, const rg_back *b, rg_dealt *from)
{
    v->b = b;
    v->taps = (int)b->op->w[0]->cols;
    v->results = b->d_out[0].cols / b->in[0].cols;
    v->w = rg_deal(from, (size_t)(v->results * (v->taps + 1)) * RG_LANES);
    v->sum = rg_deal_doubles(from, (size_t)(v->results * (v->taps + 1)) * RG_LANES);
    v->some = rg_deal(from, (size_t)(v->taps + 1) * RG_LANES);
    v->x = rg_deal(from, (size_t)(CONV_ROWS + v->taps) * RG_LANES);
    v->dx = rg_deal(from, (size_t)(CONV_ROWS + v->taps) * RG_LANES);
    v->g = rg_deal(from, CONV_ROWS * RG_LANES);
    v->z = rg_deal(from, CONV_ROWS * RG_LANES);
    v->scratch = rg_deal(from, CONV_ROWS * RG_LANES);
}

/* Rows [first, first + n) of a sequence. */
static void conv_rows(const convolving *v, const rg_span *span, int first, int n)
{
    const rg_back *b = v->b;
    const rg_backend *backend = b->lane->backend;
    const int before = v->taps - 1, missing = first < before ? before - first : 0;
    const int row = span->first_row + first - before + missing, there = n + before - missing;
    const size_t each = (size_t)(v->taps + 1) * RG_LANES, skipped = (size_t)missing * RG_LANES;

    memset(v->x, 0, skipped * sizeof *v->x);
    memset(v->dx, 0, (size_t)(n + before) * RG_LANES * sizeof *v->dx);
    rg_lanes_load(v->x + skipped, &b->in[0], row, there, v->c);
    for (int i = 0; i < v->results; i++) {
        const rg_mat dy = { .at = b->d_out[0].at + (size_t)i * (size_t)b->in[0].cols, .ld = b->d_out[0].ld,
                            .rows = b->d_out[0].rows, .cols = b->in[0].cols };
        const float *w = v->w + (size_t)i * each;
        const rg_loop_conv p = { .n_rows = n, .taps = v->taps, .w = w, .bias = w + (size_t)v->taps * RG_LANES,
                                 .x = v->x, .g = v->g, .z = v->z, .dx = v->dx, .dw = v->some,
                                 .db = v->some + (size_t)v->taps * RG_LANES };

        rg_lanes_load(v->g, &dy, span->first_row + first, n, v->c);
        if (b->op->act != RG_IDENTITY) {
            backend->host_loops(backend)->conv(&p);
            rg_back_slopes(backend, b->op->act, v->g, v->g, v->z, n * RG_LANES, v->scratch);
        }
        backend->host_loops(backend)->conv_back(&p);
        rg_lanes_sum(v->sum + (size_t)i * each, v->some, each);
    }
    rg_lanes_add(&b->d_in[0], row, there, v->c, v->dx + skipped);
}

/* Taps and biases of the channels, side by side. */
static void conv_weights(const convolving *v)
{
    const rg_back *b = v->b;
    const int cols = b->in[0].cols, some = rg_lanes_of(cols, v->c);
    float *w = v->w;

    memset(w, 0, (size_t)(v->results * (v->taps + 1)) * RG_LANES * sizeof *w);
    for (int i = 0; i < v->results; i++)
        for (int j = 0; j <= v->taps; j++, w += RG_LANES)
            for (int k = 0; k < some; k++) {
                const size_t c = (size_t)(i * cols + v->c + k);

                w[k] = j < v->taps ? b->w[0][c * (size_t)v->taps + (size_t)j] : b->b[0] ? b->b[0][c] : 0;
            }
}

static void conv_gradients(const convolving *v)
{
    const rg_back *b = v->b;
    const int cols = b->in[0].cols, some = rg_lanes_of(cols, v->c);
    const double *sum = v->sum;

    for (int i = 0; i < v->results; i++)
        for (int j = 0; j <= v->taps; j++, sum += RG_LANES)
            for (int k = 0; k < some; k++) {
                const size_t c = (size_t)(i * cols + v->c + k);

                if (j < v->taps && b->dw[0])
                    b->dw[0][c * (size_t)v->taps + (size_t)j] += (float)sum[k];
                else if (j == v->taps && b->db[0])
                    b->db[0][c] += (float)sum[k];
            }
}

static void conv_part(void *arg, int i, int thread)
{
    const rg_back_parts *p = arg;
    const rg_back *b = p->b;
    convolving v = { .c = i * RG_LANES };

    lay_out_conv(&v, b, &(rg_dealt){ p->scratch + (size_t)thread * p->each, 0 });
    conv_weights(&v);
    memset(v.sum, 0, (size_t)(v.results * (v.taps + 1)) * RG_LANES * sizeof *v.sum);
    for (int s = 0; s < b->batch->n_spans; s++) {
        const rg_span *span = rg_back_span(b, s);

        for (int t = 0; t < span->n_rows; t += CONV_ROWS)
            conv_rows(&v, span, t, rg_back_min(CONV_ROWS, span->n_rows - t));
    }
    conv_gradients(&v);
}

void rg_back_conv(const rg_back *b)
{
    rg_dealt need = { 0 };
    rg_back_parts v;

    lay_out_conv(&(convolving){ 0 }, b, &need);
    if (rg_back_parts_begin(&v, b, need.used))
        rg_back_parts_run(&v, b->in[0].cols, conv_part);
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
    const rg_back_parts *v = arg;
    const rg_back *b = v->b;
    const int cols = b->in[0].cols, n = b->op->decay->rate ? (int)b->op->decay->rate->cols : cols, each = cols / n;

    (void)thread;
    for (int k = i * RG_LANES; k < (i + 1) * RG_LANES && k < n; k++) {
        double d_rate = 0;

        for (int c = k * each; c < (k + 1) * each; c++)
            decay_column(b, c, &d_rate);
        if (b->dw[0] && b->op->decay->rate)
            b->dw[0][k] += (float)d_rate;
    }
}

void rg_back_decay(const rg_back *b)
{
    rg_back_parts v;

    if (rg_back_parts_begin(&v, b, 16))
        rg_back_parts_run(&v, b->op->decay->rate ? (int)b->op->decay->rate->cols : b->in[0].cols, decay_part);
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
    const rg_back_parts *p = arg;
    const rg_back *b = p->b;
    const size_t channels = (size_t)b->in[0].cols, n = (size_t)b->op->n;
    const int rows = (int)(b->op->w[0]->rows / b->op->n);
    double *l = (double *)(void *)(p->scratch + (size_t)thread * p->each);
    spacing v = { .b = b, .n = b->op->n, .rows = rows, .m = l + 2 * n };

    v.dm = v.m + n * (size_t)rows;
    v.q = v.dm + n * (size_t)rows;
    v.x = v.q + p->longest;
    for (v.c = i * RG_LANES; v.c < (i + 1) * RG_LANES && v.c < (int)channels; v.c++) {
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
    const size_t n = (size_t)b->op->n, rows = (size_t)b->op->w[0]->rows, longest = (size_t)rg_back_longest(b);
    rg_back_parts v;

    if (rg_back_parts_begin(&v, b, 2 * (2 * n + 2 * rows + longest + (longest + 1) * 2 * n)))
        rg_back_parts_run(&v, b->in[0].cols, space_part);
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
    const rg_back_parts *p = arg;
    const rg_back *b = p->b;
    double *h = (double *)(void *)(p->scratch + (size_t)thread * p->each);

    for (int c = i * RG_LANES; c < (i + 1) * RG_LANES && c < b->in[0].cols; c++) {
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
    rg_back_parts v;

    if (rg_back_parts_begin(&v, b, 2 * (size_t)(rg_back_longest(b) + 1)))
        rg_back_parts_run(&v, b->in[0].cols, lru_part);
}
