/* linear.c -- the backward of tables and products.
 *
 * The gradients of y = W x + b are dx += W^T dy, dW += the sum over rows of dy x^T, and db += the sum of dy: two
 * products of the forward's size. */
#include <string.h>

#include "ops/back/inside.h"

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Rows of several threads may be of one token: one of them goes over all rows, columns are shared out. */
typedef struct table_part {
    const rg_back *b;
    int cols;
} table_part;

enum { TABLE_COLS = 32 };

/* The row of the table that row r of the step reads; -1: none. */
static int64_t row_of(const rg_back *b, int r)
{
    const rg_op *op = b->op;
    const int64_t n = op->w[0]->rows;
    int64_t row = 0;

    if (op->kind == RG_OP_EMBED)
        row = b->batch->token[r] < 0 ? -1 : b->batch->token[r] < n ? b->batch->token[r] : 0;
    else if (op->kind == RG_OP_EMBED_POSITIONS)
        row = b->batch->pos[r][0] + op->n;
    return row < n ? row : -1;
}

static void add_columns(void *arg, int i, int thread)
{
    const table_part *p = arg;
    const rg_back *b = p->b;
    const int first = i * TABLE_COLS, n = rg_back_min(TABLE_COLS, p->cols - first);
    const float scale = b->op->kind == RG_OP_EMBED ? b->op->x : 1.0f;

    (void)thread;
    for (int r = 0; r < b->d_out[0].rows; r++) {
        const int64_t row = row_of(b, r);
        const float *d = rg_mat_row(&b->d_out[0], r) + first;
        float *to = b->dw[0] + (row < 0 ? 0 : row) * p->cols + first;

        for (int c = 0; c < n && row >= 0; c++)
            to[c] += scale * d[c];
    }
}

void rg_back_embed(const rg_back *b)
{
    table_part p = { b, b->d_out[0].cols };

    if (b->dw[0])
        rg_back_each(b->lane, rg_ceil_div(p.cols, TABLE_COLS), add_columns, &p);
}

void rg_back_embed_positions(const rg_back *b)
{
    rg_back_embed(b);
}

/* Token types: the rows of a span before its second text are of type 0. */
void rg_back_embed_types(const rg_back *b)
{
    const int cols = b->d_out[0].cols;

    for (int s = 0; b->dw[0] && s < b->batch->n_spans; s++) {
        const rg_span *span = rg_back_span(b, s);

        for (int r = span->first_row; r < span->first_row + span->n_rows; r++) {
            const bool second = span->second && b->batch->index[r] >= span->second && b->op->w[0]->rows > 1;
            const float *d = rg_mat_row(&b->d_out[0], r);

            for (int c = 0; c < cols; c++)
                b->dw[0][(second ? cols : 0) + c] += d[c];
        }
    }
}

void rg_back_features(const rg_back *b)
{
    for (int r = 0; b->d_features.at && r < b->d_out[0].rows; r++) {
        const float *d = rg_mat_row(&b->d_out[0], r);
        float *to = rg_mat_row(&b->d_features, r);

        for (int c = 0; c < b->d_out[0].cols; c++)
            to[c] += d[c];
    }
}

void rg_back_gather(const rg_back *b)
{
    for (int i = 0; i < b->d_out[0].rows; i++) {
        const float *d = rg_mat_row(&b->d_out[0], i);
        float *to = rg_mat_row(&b->d_in[0], b->batch->logit_rows[i]);

        for (int c = 0; c < b->d_out[0].cols; c++)
            to[c] += d[c];
    }
}

void rg_back_mean_rows(const rg_back *b)
{
    for (int i = 0; i < b->d_out[0].rows; i++) {
        const rg_rows run = b->batch->scores[i];
        const float *d = rg_mat_row(&b->d_out[0], i);

        for (int r = run.first; r < run.first + run.n; r++) {
            float *to = rg_mat_row(&b->d_in[0], r);
            for (int c = 0; c < b->d_out[0].cols; c++)
                to[c] += d[c] / (float)run.n;
        }
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static rg_gemm by_input(const float *w, const rg_mat *dx, const rg_mat *dy)
{
    return (rg_gemm){ .m = dy->rows,
                      .n = dx->cols,
                      .k = dy->cols,
                      .a = dy->at,
                      .lda = dy->ld,
                      .b = w,
                      .ldb = (size_t)dx->cols,
                      .y = dx->at,
                      .ldy = dx->ld,
                      .add = true };
}

static rg_gemm by_weight(float *dw, const rg_mat *x, const rg_mat *dy)
{
    return (rg_gemm){ .m = dy->cols,
                      .n = x->cols,
                      .k = dy->rows,
                      .a = dy->at,
                      .lda = dy->ld,
                      .a_turned = true,
                      .b = x->at,
                      .ldb = x->ld,
                      .y = dw,
                      .ldy = (size_t)x->cols,
                      .add = true };
}

void rg_back_linear(const rg_back *b)
{
    rg_gemm dx[3], dw[3];
    int n = 0, n_dw = 0;

    for (; n < 3 && b->op->w[n]; n++) {
        dx[n] = by_input(b->w[n], &b->d_in[0], &b->d_out[n]);
        if (b->dw[n])
            dw[n_dw++] = by_weight(b->dw[n], &b->in[0], &b->d_out[n]);
        if (b->db[n])
            rg_back_sum_rows(b->lane, b->db[n], &b->d_out[n]);
    }
    dx[0].add = !b->write_in[0];
    rg_gemm_run_all(b->lane, dx, n);
    rg_gemm_run_all(b->lane, dw, n_dw);
}

static rg_mat columns(const rg_mat *m, int first, int n)
{
    return (rg_mat){ m->at + first, m->ld, m->rows, n };
}

void rg_back_linear_heads(const rg_back *b)
{
    const rg_weight *w = b->op->w[0];
    const int rows = (int)w->rows, cols = (int)w->cols;

    for (int h = 0; h < w->n_mats; h++) {
        const rg_mat x = columns(&b->in[0], h * b->op->n, cols), dx = columns(&b->d_in[0], h * b->op->n, cols);
        const rg_mat dy = columns(&b->d_out[0], h * rows, rows);
        const size_t at = (size_t)h * (size_t)rows * (size_t)cols;

        rg_gemm_run(b->lane, &(rg_gemm[]){ by_input(b->w[0] + at, &dx, &dy) }[0]);
        if (b->dw[0])
            rg_gemm_run(b->lane, &(rg_gemm[]){ by_weight(b->dw[0] + at, &x, &dy) }[0]);
    }
}
