/* elementwise.c -- the backward of what goes value by value, of rotations and of small maps within a row. */
#include <math.h>
#include <string.h>

#include "ops/back/inside.h"

/* ---- activations ------------------------------------------------------------------------------------------------- */

static double sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

double rg_back_value(rg_activation act, double x)
{
    switch (act) {
    case RG_SILU:
        return x * sigmoid(x);
    case RG_GELU:
        return 0.5 * x * erfc(-x / sqrt(2));
    case RG_GELU_TANH:
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case RG_RELU:
        return x > 0 ? x : 0;
    case RG_RELU2:
        return x > 0 ? x * x : 0;
    case RG_SIGMOID:
        return sigmoid(x);
    case RG_SWIGLU_CLAMPED:
        x = x < 7 ? x : 7;
        return x * sigmoid(1.702 * x);
    case RG_TANH:
        return tanh(x);
    case RG_EXP:
        return exp(x);
    case RG_SOFTPLUS:
        return x > 30 ? x : log1p(exp(x));
    case RG_INVERSE:
        return 1 / x;
    default:
        return x;
    }
}

double rg_back_slope(rg_activation act, double x)
{
    const double c = 0.7978845608028654;
    double s;

    switch (act) {
    case RG_SILU:
        s = sigmoid(x);
        return s * (1 + x * (1 - s));
    case RG_GELU:
        return 0.5 * erfc(-x / sqrt(2)) + x * exp(-0.5 * x * x) * 0.3989422804014327;
    case RG_GELU_TANH:
        s = tanh(c * (x + 0.044715 * x * x * x));
        return 0.5 * (1 + s) + 0.5 * x * (1 - s * s) * c * (1 + 3 * 0.044715 * x * x);
    case RG_RELU:
        return x > 0;
    case RG_RELU2:
        return x > 0 ? 2 * x : 0;
    case RG_SIGMOID:
        s = sigmoid(x);
        return s * (1 - s);
    case RG_SWIGLU_CLAMPED:
        s = sigmoid(1.702 * x);
        return x < 7 ? s * (1 + 1.702 * x * (1 - s)) : 0;
    case RG_TANH:
        s = tanh(x);
        return 1 - s * s;
    case RG_EXP:
        return exp(x);
    case RG_SOFTPLUS:
        return sigmoid(x);
    case RG_INVERSE:
        return -1 / (x * x);
    default:
        return 1;
    }
}

/* The activations that most models have use the back end's exponential; the others are rare. */
void rg_back_slopes(const rg_backend *backend, rg_activation act, float *d, const float *g, const float *x, int n,
                    float *scratch)
{
    float *s = scratch;

    switch (act) {
    case RG_SILU:
        backend->host_activate(backend, RG_SIGMOID, s, x, (size_t)n);
        for (int i = 0; i < n; i++)
            d[i] = g[i] * s[i] * (1.0f + x[i] * (1.0f - s[i]));
        return;
    case RG_SIGMOID:
        backend->host_activate(backend, RG_SIGMOID, s, x, (size_t)n);
        for (int i = 0; i < n; i++)
            d[i] = g[i] * s[i] * (1.0f - s[i]);
        return;
    case RG_SOFTPLUS:
        backend->host_activate(backend, RG_SIGMOID, s, x, (size_t)n);
        for (int i = 0; i < n; i++)
            d[i] = g[i] * s[i];
        return;
    case RG_EXP:
        backend->host_activate(backend, RG_EXP, s, x, (size_t)n);
        for (int i = 0; i < n; i++)
            d[i] = g[i] * s[i];
        return;
    case RG_IDENTITY:
        for (int i = 0; i < n; i++)
            d[i] = g[i];
        return;
    default:
        for (int i = 0; i < n; i++)
            d[i] = g[i] * (float)rg_back_slope(act, (double)x[i]);
    }
}

/* Of the clamped activation u enters as clamp(u) + 1. */
static inline float entering(float u, bool clamped)
{
    return clamped ? fminf(fmaxf(u, -7), 7) + 1 : u;
}

static void values(const rg_backend *backend, rg_activation act, float *y, const float *x, int n)
{
    if (act == RG_SWIGLU_CLAMPED)
        for (int i = 0; i < n; i++)
            y[i] = (float)rg_back_value(act, (double)x[i]);
    else
        backend->host_activate(backend, act, y, x, (size_t)n);
}

void rg_back_hidden(const rg_backend *backend, rg_activation act, float *y, const float *g, const float *u, int n)
{
    const bool clamped = act == RG_SWIGLU_CLAMPED;

    values(backend, act, y, g ? g : u, n);
    for (int i = 0; g && i < n; i++)
        y[i] *= entering(u[i], clamped);
}

void rg_back_gated(const rg_backend *backend, rg_activation act, float *dg, float *du, const float *g, const float *u,
                   const float *dy, int n, float *scratch)
{
    const bool clamped = act == RG_SWIGLU_CLAMPED;

    values(backend, act, du, g, n);
    for (int i = 0; i < n; i++)
        dg[i] = dy[i] * entering(u[i], clamped);
    for (int i = 0; i < n; i++)
        du[i] = clamped && !(u[i] > -7 && u[i] < 7) ? 0 : dy[i] * du[i];
    rg_back_slopes(backend, act, dg, dg, g, n, scratch);
}

/* Work on rows with scratch for each thread. */
typedef struct rowing {
    const rg_back *b;
    float *scratch;
    size_t each;
    float *part; /* [blocks][..] */
    int n_part;
} rowing;

static bool begin(rowing *v, const rg_back *b, size_t each)
{
    *v = (rowing){ .b = b, .each = rg_back_whole(each) };
    v->scratch = rg_back_room(b->lane, v->each * (size_t)b->lane->n_threads);
    return v->scratch;
}

static void activate_rows(void *arg, int first, int n, int block, int thread)
{
    const rowing *v = arg;
    const rg_back *b = v->b;
    float *s = v->scratch + (size_t)thread * v->each, *d = s + b->in[0].cols;

    (void)block;
    for (int r = first; r < first + n; r++) {
        float *dx = rg_mat_row(&b->d_in[0], r);

        rg_back_slopes(b->lane->backend, b->op->act, d, rg_mat_row(&b->d_out[0], r), rg_mat_row(&b->in[0], r),
                       b->in[0].cols, s);
        for (int c = 0; c < b->in[0].cols; c++)
            dx[c] += d[c];
    }
}

void rg_back_activate(const rg_back *b)
{
    rowing v;

    if (begin(&v, b, 2 * (size_t)b->in[0].cols + 32))
        rg_back_each_rows(b->lane, b->in[0].rows, activate_rows, &v);
}

static void give(float *to, const float *from, int n, bool write)
{
    if (write)
        memcpy(to, from, (size_t)n * sizeof *to);
    for (int c = 0; c < n && !write; c++)
        to[c] += from[c];
}

/* y = act(g) u. */
static void act_mul_rows(void *arg, int first, int n, int block, int thread)
{
    const rowing *v = arg;
    const rg_back *b = v->b;
    const int cols = b->in[0].cols;
    float *s = v->scratch + (size_t)thread * v->each, *a = s + cols, *d = a + cols;

    (void)block;
    for (int r = first; r < first + n; r++) {
        rg_back_gated(b->lane->backend, b->op->act, d, a, rg_mat_row(&b->in[0], r), rg_mat_row(&b->in[1], r),
                      rg_mat_row(&b->d_out[0], r), cols, s);
        give(rg_mat_row(&b->d_in[0], r), d, cols, b->write_in[0]); /* the first one: both may be one activation */
        give(rg_mat_row(&b->d_in[1], r), a, cols, b->write_in[1]);
    }
}

void rg_back_act_mul(const rg_back *b)
{
    rowing v;

    if (begin(&v, b, 3 * (size_t)b->in[0].cols + 48))
        rg_back_each_rows(b->lane, b->in[0].rows, act_mul_rows, &v);
}

/* ---- sums and factors -------------------------------------------------------------------------------------------- */

static void add_rows(void *arg, int first, int n, int block, int thread)
{
    const rg_back *b = arg;

    (void)block, (void)thread;
    for (int r = first; r < first + n; r++) {
        const float *d = rg_mat_row(&b->d_out[0], r);
        float *dx = rg_mat_row(&b->d_in[0], r);

        for (int c = 0; c < b->d_out[0].cols; c++)
            dx[c] += d[c];
    }
}

void rg_back_add(const rg_back *b)
{
    rg_back_each_rows(b->lane, b->d_out[0].rows, add_rows, (void *)(uintptr_t)b);
}

/* y *= x, each value of x by n columns of y. */
static void mul_rows(void *arg, int first, int rows, int block, int thread)
{
    const rg_back *b = arg;
    const int n = b->op->n, cols = b->in[0].cols;

    (void)block, (void)thread;
    for (int r = first; r < first + rows; r++) {
        const float *x = rg_mat_row(&b->in[0], r), *y = rg_mat_row(&b->out[0], r);
        float *d = rg_mat_row(&b->d_out[0], r), *dx = rg_mat_row(&b->d_in[0], r);

        for (int k = 0; k < cols; k++) {
            double sum = 0;

            for (int c = k * n; c < (k + 1) * n; c++) {
                sum += (double)d[c] * (double)y[c];
                d[c] *= x[k];
            }
            dx[k] += (float)sum;
        }
    }
}

void rg_back_mul(const rg_back *b)
{
    rg_back_each_rows(b->lane, b->in[0].rows, mul_rows, (void *)(uintptr_t)b);
}

static void scale_rows(void *arg, int first, int n, int block, int thread)
{
    const rg_back *b = arg;

    (void)block, (void)thread;
    for (int r = first; r < first + n; r++) {
        float *d = rg_mat_row(&b->d_out[0], r), by = b->op->x;

        if (b->op->kind == RG_OP_SCALE_BY_POSITION) {
            const double p = floor(((double)b->batch->pos[r][0] + (double)b->op->y) / b->op->n);
            by = (float)(1 + (double)b->op->x * log1p(p));
        }
        for (int c = 0; c < b->d_out[0].cols; c++)
            d[c] *= by;
    }
}

void rg_back_scale(const rg_back *b)
{
    rg_back_each_rows(b->lane, b->d_out[0].rows, scale_rows, (void *)(uintptr_t)b);
}

void rg_back_scale_by_position(const rg_back *b)
{
    rg_back_scale(b);
}

static void scale_columns_rows(void *arg, int first, int n, int block, int thread)
{
    const rowing *v = arg;
    const rg_back *b = v->b;
    const int each = b->op->n;
    float *dw = v->part ? v->part + (size_t)block * (size_t)v->n_part : NULL;

    (void)thread;
    for (int r = first; r < first + n; r++) {
        const float *y = rg_mat_row(&b->out[0], r);
        float *d = rg_mat_row(&b->d_out[0], r);

        for (int c = 0; c < b->d_out[0].cols; c++) {
            if (dw)
                dw[c / each] += d[c] * y[c];
            d[c] *= b->w[0][c / each];
        }
    }
}

void rg_back_scale_columns(const rg_back *b)
{
    const int blocks = rg_back_blocks(b->d_out[0].rows);
    rowing v = { .b = b, .n_part = (int)b->op->w[0]->cols };

    if (b->dw[0] && !(v.part = rg_back_zeros(b->lane, (size_t)blocks * (size_t)v.n_part)))
        return;
    rg_back_each_rows(b->lane, b->d_out[0].rows, scale_columns_rows, &v);
    if (v.part)
        rg_back_fold(b->dw[0], v.part, blocks, v.n_part);
}

/* y = cap tanh(x / cap): dx = dy (1 - tanh^2). */
static void softcap_rows(void *arg, int first, int n, int block, int thread)
{
    const rg_back *b = arg;

    (void)block, (void)thread;
    for (int r = first; r < first + n; r++) {
        const float *x = rg_mat_row(&b->out[0], r);
        float *d = rg_mat_row(&b->d_out[0], r);

        for (int c = 0; c < b->d_out[0].cols; c++) {
            const float t = tanhf(x[c] / b->op->x);
            d[c] *= 1.0f - t * t;
        }
    }
}

void rg_back_softcap(const rg_back *b)
{
    rg_back_each_rows(b->lane, b->d_out[0].rows, softcap_rows, (void *)(uintptr_t)b);
}

/* ---- within a row ------------------------------------------------------------------------------------------------ */

/* Outputs of a run: 1, x_i n^(-1/4), and x_i x_j n^(-1/2), times sqrt(1/2) where i = j. */
static void taylor_rows(void *arg, int first, int rows, int block, int thread)
{
    const rg_back *b = arg;
    const int n = b->op->n, n_y = rg_taylor_cols(n), runs = b->in[0].cols / n;
    const double one = pow(n, -0.25), two = pow(n, -0.5);

    (void)block, (void)thread;
    for (int r = first; r < first + rows; r++)
        for (int h = 0; h < runs; h++) {
            const float *x = rg_mat_row(&b->in[0], r) + h * n, *d = rg_mat_row(&b->d_out[0], r) + h * n_y;
            float *dx = rg_mat_row(&b->d_in[0], r) + h * n;
            const float *pair = d + 1 + n;

            for (int i = 0; i < n; i++)
                dx[i] += (float)((double)d[1 + i] * one);
            for (int i = 0; i < n; i++)
                for (int j = i; j < n; j++, pair++) {
                    const double g = (double)*pair * two * (i == j ? sqrt(0.5) : 1);
                    dx[i] += (float)(g * (double)x[j]);
                    dx[j] += (float)(g * (double)x[i]);
                }
        }
}

void rg_back_taylor(const rg_back *b)
{
    rg_back_each_rows(b->lane, b->in[0].rows, taylor_rows, (void *)(uintptr_t)b);
}

/* y_i = sum_j m_ij x_j over runs of n columns. */
static void mix_rows(void *arg, int first, int rows, int block, int thread)
{
    const rg_back *b = arg;
    const int n = b->op->n, n_y = b->d_out[0].cols / n, n_x = b->in[0].cols / n;

    (void)block, (void)thread;
    for (int r = first; r < first + rows; r++) {
        const float *x = rg_mat_row(&b->in[0], r), *m = rg_mat_row(&b->in[1], r), *d = rg_mat_row(&b->d_out[0], r);
        float *dx = rg_mat_row(&b->d_in[0], r), *dm = rg_mat_row(&b->d_in[1], r);

        for (int i = 0; i < n_y; i++)
            for (int j = 0; j < n_x; j++) {
                double sum = 0;

                for (int c = 0; c < n; c++) {
                    sum += (double)d[i * n + c] * (double)x[j * n + c];
                    dx[j * n + c] += m[i * n_x + j] * d[i * n + c];
                }
                dm[i * n_x + j] += (float)sum;
            }
    }
}

void rg_back_mix(const rg_back *b)
{
    rg_back_each_rows(b->lane, b->in[0].rows, mix_rows, (void *)(uintptr_t)b);
}

/* ---- rotation ---------------------------------------------------------------------------------------------------- */

/* The frequencies of a span's variant of a rope. */
static const rg_rope *variant_of(const rg_rope *rope, int variant)
{
    const int last = rope->n_variants > 1 ? rope->n_variants - 1 : 0;

    return rope + (rope->original ? 0 : variant < last ? variant : last);
}

static double frequency(const rg_rope *rope, int variant, int i)
{
    if (!rope->original || variant <= 0)
        return (double)rope->inv_freq[i];
    const double length = (double)rope->original + variant, d = 2.0 * rope->n_pairs;
    const double grown = rope->stretch * length / rope->original - (rope->stretch - 1);
    return pow(rope->theta * pow(grown, d / (d - 2)), -2.0 * i / d);
}

/* What rows are rotated by: cosines and sines [n_pairs] of each position, or, where spans differ in their frequencies,
 * room for those of a row, one for each thread. */
typedef struct rotating {
    const rg_back *b;
    float *angles; /* [n or threads][2][n_pairs] */
    int n;         /* positions; 0: row by row */
} rotating;

static void find_angles(const rg_back *b, const rg_span *span, int pos, float *to)
{
    const rg_rope *rope = variant_of(b->op->rope, span->rope);

    for (int i = 0; i < rope->n_pairs; i++) {
        const double angle = (double)((float)pos * (float)frequency(rope, span->rope, i));

        to[i] = (float)cos(angle) * rope->factor;
        to[rope->n_pairs + i] = (float)sin(angle) * rope->factor;
    }
}

static void angles_part(void *arg, int i, int thread)
{
    const rotating *v = arg;

    (void)thread;
    find_angles(v->b, v->b->batch->spans, i, v->angles + (size_t)i * 2 * (size_t)v->b->op->rope->n_pairs);
}

/* By the negative angle. */
static void rotate_row(const rg_rope *rope, const float *co, float *d)
{
    const int n = rope->n_pairs, step = rope->interleaved ? 2 : 1, apart = rope->interleaved ? 1 : n;
    const float *si = co + n;

    for (int i = 0; i < n; i++) {
        const float dp = d[step * i], dq = d[step * i + apart];

        d[step * i] = dp * co[i] + dq * si[i];
        d[step * i + apart] = dq * co[i] - dp * si[i];
    }
}

static void rotate_span(void *arg, int s, int thread)
{
    const rotating *v = arg;
    const rg_back *b = v->b;
    const rg_span *span = rg_back_span(b, s);
    const rg_rope *rope = variant_of(b->op->rope, span->rope);
    const int head_dim = b->op->n, first = (int)b->op->x, last = (int)b->op->y;
    const size_t each = 2 * (size_t)b->op->rope->n_pairs;

    for (int r = span->first_row; r < span->first_row + span->n_rows; r++) {
        const int pos = last && b->batch->pos[r][0] > last ? last : b->batch->pos[r][0];
        float *angles = v->angles + (size_t)(v->n ? pos : thread) * each;

        if (!v->n)
            find_angles(b, span, pos, angles);
        for (int h = 0; h < b->d_out[0].cols; h += head_dim)
            rotate_row(rope, angles, rg_mat_row(&b->d_out[0], r) + h + first);
    }
}

/* Positions that all spans rotate by the same angles; 0: they do not, or they are more than rows. */
static int positions_of(const rg_back *b)
{
    const rg_batch *batch = b->batch;
    int n = 0;

    for (int s = 0; s < batch->n_spans; s++)
        if (batch->spans[s].rope != batch->spans[0].rope)
            return 0;
    for (int r = 0; r < batch->n_rows; r++) {
        if (batch->pos[r][0] < 0)
            return 0;
        n = batch->pos[r][0] >= n ? batch->pos[r][0] + 1 : n;
    }
    return n <= batch->n_rows ? n : 0;
}

void rg_back_rotate(const rg_back *b)
{
    rotating v = { .b = b, .n = positions_of(b) };
    const size_t n = (size_t)(v.n ? v.n : b->lane->n_threads);

    v.angles = rg_back_room(b->lane, n * 2 * (size_t)b->op->rope->n_pairs);
    rg_back_each(b->lane, v.n, angles_part, &v);
    rg_back_each(b->lane, b->batch->n_spans, rotate_span, &v);
}
