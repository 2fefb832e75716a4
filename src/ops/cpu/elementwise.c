/* elementwise.c -- operations on rows that are not products: norms, sums, activations.
 *
 * One phase each.  A row is cut into pieces where a value depends on nothing else in the row. */
#include "ops/cpu/reader.h"

#include <string.h>

#include "ops/math.h"

enum { PIECE = 4096, ROWS = 4 }; /* columns, rows of a chunk */

void rg_cpu_gather(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_act *y = op->out[0], *x = op->in[0];

    (void)r;
    for (int c; (c = rg_chunk_next(f, y->rows)) >= 0;)
        memcpy(rg_act_row(f, y, c), rg_act_row(f, x, f->batch->logit_rows[c]), (size_t)y->cols * sizeof(float));
    rg_phase_done(f);
}

/* A chunk is some columns of one mean. */
void rg_cpu_mean_rows(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    enum { COLUMNS = 64 };
    const rg_act *y = op->out[0], *x = op->in[0];
    const int per_row = rg_ceil_div(y->cols, COLUMNS);

    (void)r;
    for (int c; (c = rg_chunk_next(f, y->rows * per_row)) >= 0;) {
        const rg_rows run = f->batch->scores[c / per_row];
        const int first = c % per_row * COLUMNS, n = rg_min(COLUMNS, y->cols - first);
        double sum[COLUMNS] = { 0 };

        for (int row = run.first; row < run.first + run.n; row++)
            for (int i = 0; i < n; i++)
                sum[i] += (double)rg_act_row(f, x, row)[first + i];
        for (int i = 0; i < n; i++)
            rg_act_row(f, y, c / per_row)[first + i] = (float)(sum[i] / run.n);
    }
    rg_phase_done(f);
}

/* Call norm for every run of op->n columns of every row. */
static void norms(rg_cpu_reader *r, rg_fwd *f, const rg_op *op,
                  void (*norm)(const rg_cpu *cpu, const rg_op *op, float *y, const float *x, int first))
{
    const rg_act *y = op->out[0], *x = op->in[0];

    for (int c; (c = rg_chunk_next(f, rg_ceil_div(y->rows, ROWS))) >= 0;)
        for (int row = c * ROWS; row < rg_min(y->rows, (c + 1) * ROWS); row++)
            for (int i = 0; i < y->cols; i += op->n)
                norm(r->cpu, op, rg_act_row(f, y, row) + i, rg_act_row(f, x, row) + i, i);
    rg_phase_done(f);
}

/* Values of w, of one run or of all, for the run that begins at column `first`. */
static const float *values_of(const rg_weight *w, int first)
{
    return w ? w->vec + first % w->cols : NULL;
}

static void rmsnorm_run(const rg_cpu *cpu, const rg_op *op, float *y, const float *x, int first)
{
    cpu->rmsnorm(y, x, values_of(op->w[0], first), op->n, op->x);
}

static void layernorm_run(const rg_cpu *cpu, const rg_op *op, float *y, const float *x, int first)
{
    cpu->layernorm(y, x, values_of(op->w[0], first), values_of(op->b[0], first), op->n, op->x);
}

static void l2norm_run(const rg_cpu *cpu, const rg_op *op, float *y, const float *x, int first)
{
    (void)first;
    cpu->l2norm(y, x, op->n, op->x);
}

void rg_cpu_rmsnorm(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    norms(r, f, op, rmsnorm_run);
}

void rg_cpu_layernorm(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    norms(r, f, op, layernorm_run);
}

static void match_rms_run(const rg_cpu *cpu, const rg_op *op, float *y, const float *x, int first)
{
    (void)first;
    cpu->match_rms(y, x, op->n, op->x);
}

static void cut_run(const rg_cpu *cpu, const rg_op *op, float *y, const float *x, int first)
{
    (void)first;
    cpu->cut(y, x, op->n, op->x);
}

void rg_cpu_match_rms(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    norms(r, f, op, match_rms_run);
}

void rg_cpu_cut_gate(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    norms(r, f, op, cut_run);
}

/* A chunk is a run of y in one row: 0, then a multiply-add for each run of x in rising order. */
void rg_cpu_mix(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_act *y = op->out[0], *x = op->in[0], *m = op->in[1];
    const int n = op->n, n_y = y->cols / n, n_x = x->cols / n;

    for (int c; (c = rg_chunk_next(f, y->rows * n_y)) >= 0;) {
        const int row = c / n_y, i = c % n_y;
        const float *from = rg_act_row(f, x, row), *by = rg_act_row(f, m, row) + i * n_x;
        float *to = rg_act_row(f, y, row) + i * n;

        memset(to, 0, (size_t)n * sizeof *to);
        for (int j = 0; j < n_x; j++)
            r->cpu->axpy(to, by[j], from + j * n, n);
    }
    rg_phase_done(f);
}

void rg_cpu_l2norm(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    norms(r, f, op, l2norm_run);
}

/* Call piece for every run of at most PIECE columns of every row of y. */
static void pieces(rg_cpu_reader *r, rg_fwd *f, const rg_op *op,
                   void (*piece)(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n))
{
    const rg_act *y = op->out[0];
    int per_row = rg_ceil_div(y->cols, PIECE), rows = per_row > 1 ? 1 : ROWS;

    for (int c; (c = rg_chunk_next(f, per_row * rg_ceil_div(y->rows, rows))) >= 0;) {
        int first = c % per_row * PIECE, row = c / per_row * rows;

        for (int i = row; i < rg_min(y->rows, row + rows); i++)
            piece(r->cpu, f, op, i, first, rg_min(PIECE, y->cols - first));
    }
    rg_phase_done(f);
}

static void add_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    cpu->add(rg_act_row(f, op->out[0], row) + first, rg_act_row(f, op->in[0], row) + first, n);
}

static void embed_positions_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    const rg_weight *table = op->w[0];
    const int64_t at = (int64_t)f->batch->pos[row][0] + op->n;

    RG_ASSERT(at >= 0 && at < table->rows);
    cpu->add(rg_act_row(f, op->out[0], row) + first, table->vec + at * table->cols + first, n);
}

/* Columns [first, first + n) of a row y by values of x: by one each, or by one for every op->n of them. */
static void multiply(const rg_cpu *cpu, const rg_op *op, float *y, const float *x, int first, int n)
{
    if (op->n == 1)
        cpu->mul(y + first, x + first, n);
    for (int i = first, end; op->n > 1 && i < first + n; i = end) {
        end = rg_min(first + n, (i / op->n + 1) * op->n);
        cpu->scale(y + i, y + i, x[i / op->n], end - i);
    }
}

static void mul_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    multiply(cpu, op, rg_act_row(f, op->out[0], row), rg_act_row(f, op->in[0], row), first, n);
}

static void scale_columns_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    multiply(cpu, op, rg_act_row(f, op->out[0], row), op->w[0]->vec, first, n);
}

static void scale_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    float *y = rg_act_row(f, op->out[0], row) + first;

    cpu->scale(y, y, op->x, n);
}

/* The factor is computed in f32; positions up to 2^24 are exact there. */
static void scale_by_position_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    float *y = rg_act_row(f, op->out[0], row) + first;
    const int64_t periods = ((int64_t)f->batch->pos[row][0] + (int64_t)op->y) / op->n;

    cpu->scale(y, y, __builtin_fmaf(op->x, rg_logf((float)(1 + periods)), 1.0f), n);
}

static void act_mul_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    cpu->act_mul[op->act](rg_act_row(f, op->out[0], row) + first, rg_act_row(f, op->in[0], row) + first,
                          rg_act_row(f, op->in[1], row) + first, n);
}

static void activate_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    cpu->act[op->act](rg_act_row(f, op->out[0], row) + first, rg_act_row(f, op->in[0], row) + first, n);
}

static void softcap_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    cpu->softcap(rg_act_row(f, op->out[0], row) + first, op->x, n);
}

static void clamp(float *x, float min, float max, int n)
{
    for (int i = 0; i < n; i++) {
        x[i] = x[i] < min ? min : x[i];
        x[i] = x[i] > max ? max : x[i];
    }
}

static void decay_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    const rg_decay_params *p = op->decay;
    const rg_weight *rate = p->rate;
    const float *raw = rg_act_row(f, op->in[0], row) + first;
    float *y = rg_act_row(f, op->out[0], row) + first, *dt = op->out[1] ? rg_act_row(f, op->out[1], row) + first : y;
    const int cols = op->out[0]->cols, each = rate ? cols / (int)rate->cols : cols; /* columns of a rate */
    const bool elementwise = rate && each == 1;

    if (dt != raw)
        memcpy(dt, raw, (size_t)n * sizeof(float));
    if (p->bias)
        cpu->add(dt, p->bias->vec + first, n);
    cpu->act[p->act](dt, dt, n);
    if (p->max > 0.0f)
        clamp(dt, p->min, p->max, n);
    if (elementwise) {
        if (y != dt)
            memcpy(y, dt, (size_t)n * sizeof(float));
        cpu->mul(y, rate->vec + first, n);
    }
    for (int i = 0, end; !elementwise && i < n; i = end) {
        end = rg_min(n, ((first + i) / each + 1) * each - first);
        cpu->scale(y + i, dt + i, rate ? rate->vec[(first + i) / each] : p->fixed_rate, end - i);
    }
    cpu->act[RG_EXP](y, y, n);
}

void rg_cpu_decay(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, decay_piece);
}

void rg_cpu_add(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, add_piece);
}

/* The token type of a row. */
static int type_of(const rg_batch *b, int row)
{
    const rg_span *span = b->spans;

    while (row >= span->first_row + span->n_rows)
        span++;
    return span->second > 0 && b->index[row] >= span->second;
}

static void embed_types_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    const rg_weight *table = op->w[0];
    const int type = table->rows > 1 ? type_of(f->batch, row) : 0;

    cpu->add(rg_act_row(f, op->out[0], row) + first, table->vec + type * table->cols + first, n);
}

static void scale_by_type_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    float *y = rg_act_row(f, op->out[0], row) + first;

    cpu->scale(y, y, op->w[type_of(f->batch, row)]->vec[0], n);
}

static void keep_type_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    (void)cpu;
    if (type_of(f->batch, row) != op->n)
        memset(rg_act_row(f, op->out[0], row) + first, 0, (size_t)n * sizeof(float));
}

void rg_cpu_scale_by_type(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, scale_by_type_piece);
}

void rg_cpu_keep_type(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, keep_type_piece);
}

/* A chunk is a row: exponentials by the kernel, which is the same everywhere, and their sum in double, in rising
 * order. */
void rg_cpu_soften(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_act *y = op->out[0], *x = op->in[0];

    for (int row; (row = rg_chunk_next(f, y->rows)) >= 0;) {
        const float *from = rg_act_row(f, x, row), t = f->batch->temperatures[row];
        float *to = rg_act_row(f, y, row), most = from[0];
        double sum = 0;

        for (int i = 1; i < y->cols; i++)
            most = from[i] > most ? from[i] : most;
        for (int i = 0; i < y->cols; i++)
            to[i] = (from[i] - most) / t;
        r->cpu->act[RG_EXP](to, to, y->cols);
        for (int i = 0; i < y->cols; i++)
            sum += (double)to[i];
        r->cpu->scale(to, to, (float)(1 / sum), y->cols);
    }
    rg_phase_done(f);
}

static void features_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    const rg_batch *b = f->batch;

    (void)cpu;
    memcpy(rg_act_row(f, op->out[0], row) + first, b->features + (size_t)row * (size_t)b->feature_cols + first,
           (size_t)n * sizeof(float));
}

void rg_cpu_features(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, features_piece);
}

void rg_cpu_embed_types(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, embed_types_piece);
}

void rg_cpu_embed_positions(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, embed_positions_piece);
}

void rg_cpu_mul(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, mul_piece);
}

/* A NaN stays. */
static void sparsify_piece(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int first, int n)
{
    const float *x = rg_act_row(f, op->in[0], row) + first;
    float *y = rg_act_row(f, op->out[0], row) + first;

    (void)cpu;
    for (int k = 0; k < n; k++)
        y[k] = __builtin_fabsf(x[k]) <= op->x ? 0.0f : x[k];
}

void rg_cpu_sparsify(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, sparsify_piece);
}

void rg_cpu_scale(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, scale_piece);
}

void rg_cpu_scale_columns(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, scale_columns_piece);
}

void rg_cpu_scale_by_position(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, scale_by_position_piece);
}

void rg_cpu_act_mul(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, act_mul_piece);
}

void rg_cpu_activate(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, activate_piece);
}

void rg_cpu_softcap(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pieces(r, f, op, softcap_piece);
}

/* One run: its products with x[i] stand side by side, x[i]^2 first. */
static void taylor_run(const rg_cpu *cpu, float *y, const float *x, int n)
{
    const float root = 1.0f / __builtin_sqrtf((float)n);

    *y++ = 1.0f;
    cpu->scale(y, x, __builtin_sqrtf(root), n);
    y += n;
    for (int i = 0; i < n; i++) {
        cpu->scale(y, x + i, x[i] * root, n - i);
        y[0] *= 0x1.6a09e6p-1f; /* sqrt(1/2) */
        y += n - i;
    }
}

void rg_cpu_taylor(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_act *y = op->out[0], *x = op->in[0];
    const int n = op->n, runs = x->cols / n;

    for (int c; (c = rg_chunk_next(f, rg_ceil_div(y->rows, ROWS))) >= 0;)
        for (int row = c * ROWS; row < rg_min(y->rows, (c + 1) * ROWS); row++)
            for (int i = 0; i < runs; i++)
                taylor_run(r->cpu, rg_act_row(f, y, row) + i * rg_taylor_cols(n), rg_act_row(f, x, row) + i * n, n);
    rg_phase_done(f);
}
