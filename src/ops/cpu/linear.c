/* linear.c -- products with packed matrices.
 *
 * A chunk is a group of panels times a block of rows; within it the rows are the inner loop, so that a panel comes from
 * memory once and then from a near cache, and the block of rows is small enough to stay there too.  A step of one row
 * takes several panels per chunk.  What a chunk computes meets no other chunk, so the cut never shows in the bits. */
#include "ops/cpu/reader.h"

#include <string.h>

enum { NEAR_BYTES = 384 * 1024, CHUNKS_PER_THREAD = 8, GROUP_MAX = 32 };

rg_operand rg_operand_of(const rg_fwd *f, const rg_act *a)
{
    return (rg_operand){
        .x = rg_act_data(f, a),
        .ldx = (size_t)a->stride,
        .q = a->quantized ? (const rg_xblock *)(const void *)(f->arena + a->quant) : NULL,
        .ldq = rg_quant_stride(a->cols),
    };
}

void rg_cpu_quantize(rg_cpu_reader *r, rg_fwd *f, const rg_act *a)
{
    rg_xblock *q = (rg_xblock *)(void *)(f->arena + a->quant);
    size_t ld = rg_quant_stride(a->cols);

    if (a->quantized)
        return;
    for (int row; (row = rg_chunk_next(f, a->rows)) >= 0;)
        r->cpu->quantize(rg_act_row(f, a, row), a->cols / 32 * 32, q + (size_t)row * ld);
    rg_fwd_barrier(f);
    f->acts[a - f->acts].quantized = true;
}

void rg_cpu_panel(const rg_cpu *cpu, const uint8_t *panel, const rg_packed *w, const rg_operand *x, int first, int m,
                  float *y, size_t ldy)
{
    if (x->q && cpu->panel_fast[w->layout])
        cpu->panel_fast[w->layout](panel, (int)w->cols, x->q + (size_t)first * x->ldq, x->ldq, m, y, ldy);
    else
        cpu->panel_exact[w->layout](panel, (int)w->cols, x->x + (size_t)first * x->ldx, x->ldx, m, y, ldy);
}

/* ---- how a product is cut ---------------------------------------------------------------------------------------- */

typedef struct cut {
    int rows, n_row_blocks; /* rows of a block */
    int panels, n_panels;   /* panels of a group, and of all matrices */
    int n_chunks;
} cut;

static cut cut_of(const rg_fwd *f, int n_rows, int n_panels, int row_bytes)
{
    cut c = { .n_panels = n_panels };
    int per_thread;

    c.rows = rg_min(RG_ROWS_MAX, rg_max(8, NEAR_BYTES / row_bytes / 8 * 8));
    c.n_row_blocks = rg_ceil_div(n_rows, c.rows);
    per_thread = n_panels * c.n_row_blocks / (f->n_threads * CHUNKS_PER_THREAD);
    c.panels = rg_min(GROUP_MAX, rg_max(1, per_thread));
    c.n_chunks = rg_ceil_div(n_panels, c.panels) * c.n_row_blocks;
    return c;
}

/* y[row, at ..] = tile + bias, or += : the real ones of a panel's rows. */
static void put(const rg_fwd *f, const rg_act *y, int first, int m, int at, int n, const float *bias, const float *tile,
                bool accumulate)
{
    for (int i = 0; i < m; i++) {
        float *to = rg_act_row(f, y, first + i) + at;

        if (n == RG_PANEL && !bias && accumulate) {
            for (int k = 0; k < RG_PANEL; k++)
                to[k] += tile[i * RG_PANEL + k];
            continue;
        }
        for (int k = 0; k < n; k++) {
            float v = bias ? tile[i * RG_PANEL + k] + bias[k] : tile[i * RG_PANEL + k];
            to[k] = accumulate ? to[k] + v : v;
        }
    }
}

/* ---- linear, and linear per head --------------------------------------------------------------------------------- */

/* Matrix and panel of the i-th panel of all of op's matrices. */
typedef struct place {
    int w;
    int64_t mat, panel;
} place;

static int panels_of(const rg_weight *w)
{
    return rg_ceil_div(w->rows, RG_PANEL);
}

static place find(const rg_op *op, int i)
{
    place p = { 0 };

    for (; i >= panels_of(op->w[p.w]) * (int)op->w[p.w]->n_mats; p.w++)
        i -= panels_of(op->w[p.w]) * (int)op->w[p.w]->n_mats;
    p.mat = i / panels_of(op->w[p.w]);
    p.panel = i % panels_of(op->w[p.w]);
    return p;
}

static void linear_panel(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, int i, int first, int m)
{
    place p = find(op, i);
    const rg_weight *w = op->w[p.w];
    rg_operand x = rg_operand_of(f, op->in[0]);
    float *tile = rg_cpu_scratch(r, f);
    int row = (int)p.panel * RG_PANEL, column = (int)p.mat * op->n; /* n: columns between heads */

    x.x += column;
    if (!rg_is_fast(r, f, w) || op->n % 32)
        x.q = NULL;
    else
        x.q += column / 32;
    const rg_act *y = op->out[p.w];
    const uint8_t *panel = rg_panel_at(w->packed, p.mat, p.panel);
    int at = (int)(p.mat * w->rows) + row, n = rg_min(RG_PANEL, (int)w->rows - row);

    if (n == RG_PANEL && !op->b[p.w] && !op->accumulate) { /* nothing to do to it: straight to its place */
        rg_cpu_panel(r->cpu, panel, w->packed, &x, first, m, rg_act_row(f, y, first) + at, (size_t)y->stride);
        return;
    }
    rg_cpu_panel(r->cpu, panel, w->packed, &x, first, m, tile, RG_PANEL);
    put(f, y, first, m, at, n, op->b[p.w] ? op->b[p.w]->vec + row : NULL, tile, op->accumulate);
}

static void products(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, int n_panels,
                     void (*panel)(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, int i, int first, int m))
{
    int rows = op->in[0]->rows;
    int column_bytes = rg_is_fast(r, f, op->w[0]) ? (int)sizeof(rg_xblock) / 32 : (int)sizeof(float);
    cut c = cut_of(f, rows, n_panels, (int)op->w[0]->cols * column_bytes);

    for (int i; (i = rg_chunk_next(f, c.n_chunks)) >= 0;) {
        int first = i % c.n_row_blocks * c.rows, from = i / c.n_row_blocks * c.panels;

        for (int k = from; k < rg_min(c.n_panels, from + c.panels); k++)
            panel(r, f, op, k, first, rg_min(c.rows, rows - first));
    }
    rg_fwd_barrier(f);
}

void rg_cpu_linear(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    int n_panels = 0;
    bool fast = false;

    for (int i = 0; i < 3 && op->w[i]; i++) {
        n_panels += panels_of(op->w[i]) * (int)op->w[i]->n_mats;
        fast |= rg_is_fast(r, f, op->w[i]);
    }
    /* Heads that do not start on a block of 32 columns are computed exactly, whatever the recipe: the model decides. */
    if (fast && op->n % 32 == 0)
        rg_cpu_quantize(r, f, op->in[0]);
    products(r, f, op, n_panels, linear_panel);
}

void rg_cpu_linear_heads(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    rg_cpu_linear(r, f, op);
}

/* ---- gate and up, side by side ----------------------------------------------------------------------------------- */

static void gated_panel(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, int i, int first, int m)
{
    float *tile[2] = { rg_cpu_scratch(r, f), rg_cpu_scratch(r, f) + RG_ROWS_MAX * RG_PANEL };
    int row = i * RG_PANEL, n = rg_min(RG_PANEL, (int)op->w[0]->rows - row);

    for (int k = 0; k < 2; k++) {
        rg_operand x = rg_operand_of(f, op->in[0]);

        if (!rg_is_fast(r, f, op->w[k]))
            x.q = NULL;
        rg_cpu_panel(r->cpu, rg_panel_at(op->w[k]->packed, 0, i), op->w[k]->packed, &x, first, m, tile[k], RG_PANEL);
        if (op->b[k])
            for (int j = 0; j < m * RG_PANEL; j++)
                if (j % RG_PANEL < n)
                    tile[k][j] += op->b[k]->vec[row + j % RG_PANEL];
    }
    r->cpu->act_mul[op->act](tile[0], tile[0], tile[1], m * RG_PANEL);
    put(f, op->out[0], first, m, row, n, NULL, tile[0], false);
}

void rg_cpu_gated(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    if (rg_is_fast(r, f, op->w[0]) || rg_is_fast(r, f, op->w[1]))
        rg_cpu_quantize(r, f, op->in[0]);
    products(r, f, op, panels_of(op->w[0]), gated_panel);
}

/* ---- embedding --------------------------------------------------------------------------------------------------- */

void rg_cpu_embed(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_act *y = op->out[0];
    const rg_batch *b = f->batch;

    for (int row; (row = rg_chunk_next(f, y->rows)) >= 0;) {
        float *to = rg_act_row(f, y, row);

        RG_ASSERT(b->token[row] < op->w[0]->rows);
        if (b->token[row] >= 0)
            rg_unpack_row(op->w[0]->packed, 0, b->token[row], to);
        else
            memcpy(to, b->embeds + (size_t)row * (size_t)y->cols, (size_t)y->cols * sizeof(float));
        if (op->x != 1.0f)
            r->cpu->scale(to, to, op->x, y->cols);
    }
    rg_fwd_barrier(f);
}
