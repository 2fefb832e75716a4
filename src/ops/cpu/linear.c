/* linear.c -- products with packed matrices.
 *
 * A chunk is a block: a group of panels by a stretch of rows, small enough that its sums stay in a near cache, and the
 * kernel walks it as suits the machine.  A step of one row takes more panels per chunk.  What a chunk computes meets no
 * other chunk, so the cut never shows in the bits. */
#include "ops/cpu/reader.h"

#include <string.h>

enum { CHUNKS_PER_THREAD = 8, GROUP_MAX = 32, FEW_ROWS = 16 };

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

void rg_cpu_product(const rg_cpu *cpu, const rg_packed *w, const rg_operand *x, int first, rg_product p)
{
    bool fast = x->q && cpu->product_fast[w->layout];

    p.panel_bytes = w->panel_bytes;
    p.cols = (int)w->cols;
    p.ldx = fast ? x->ldq : x->ldx;
    if (fast)
        p.q = x->q + (size_t)first * x->ldq;
    else
        p.x = x->x + (size_t)first * x->ldx;
    (fast ? cpu->product_fast : cpu->product_exact)[w->layout](&p);
}

/* ---- how a product is cut ---------------------------------------------------------------------------------------- */

/* Panels, counted through all matrices of an operation, by rows. */
typedef struct block {
    int panel, n_panels, row, n_rows;
} block;

typedef void block_fn(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, block b);

static void products(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, int n_panels, block_fn *compute)
{
    int rows = op->in[0]->rows, stretch = rg_min(RG_ROWS_MAX, rows), n_stretches = rg_ceil_div(rows, stretch);
    int per_thread = n_panels * n_stretches / (f->n_threads * CHUNKS_PER_THREAD);
    int group = rg_min(rg_min(GROUP_MAX, RG_TILE / stretch), rg_max(1, per_thread));

    for (int i; (i = rg_chunk_next(f, rg_ceil_div(n_panels, group) * n_stretches)) >= 0;) {
        block b = { .panel = i / n_stretches * group, .row = i % n_stretches * stretch };

        b.n_panels = rg_min(group, n_panels - b.panel);
        b.n_rows = rg_min(stretch, rows - b.row);
        compute(r, f, op, b);
    }
    rg_fwd_barrier(f);
}

/* y[row, at ..] = tile + bias, or += : the n columns of a block that are there; ld floats between rows of the tile. */
typedef struct finished {
    const float *tile, *bias; /* bias NULL: none */
    int ld, n, at;
    bool accumulate;
} finished;

static void put(const rg_fwd *f, const rg_act *y, block b, finished t)
{
    for (int i = 0; i < b.n_rows; i++) {
        float *to = rg_act_row(f, y, b.row + i) + t.at;
        const float *from = t.tile + (size_t)i * (size_t)t.ld;

        if (!t.accumulate && !t.bias)
            memcpy(to, from, (size_t)t.n * sizeof *to);
        else if (!t.bias)
            for (int k = 0; k < t.n; k++)
                to[k] += from[k];
        else
            for (int k = 0; k < t.n; k++) {
                float v = from[k] + t.bias[k];
                to[k] = t.accumulate ? to[k] + v : v;
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

/* A block within one matrix, the one at p. */
static void linear_at(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, block b, place p)
{
    const rg_weight *w = op->w[p.w];
    const rg_act *y = op->out[p.w];
    rg_operand x = rg_operand_of(f, op->in[0]);
    int row = (int)p.panel * RG_PANEL, column = (int)p.mat * op->n; /* n: columns between heads */
    finished t = { .tile = rg_cpu_scratch(r, f), .bias = op->b[p.w] ? op->b[p.w]->vec + row : NULL,
                   .ld = b.n_panels * RG_PANEL, .n = rg_min(b.n_panels * RG_PANEL, (int)w->rows - row),
                   .at = (int)(p.mat * w->rows) + row, .accumulate = op->accumulate };
    rg_product product = { .panel = rg_panel_at(w->packed, p.mat, p.panel), .n_panels = b.n_panels, .m = b.n_rows,
                           .y = rg_cpu_scratch(r, f), .ldy = (size_t)t.ld };

    x.x += column;
    if (!rg_is_fast(r, f, w) || op->n % 32)
        x.q = NULL;
    else
        x.q += column / 32;
    if (t.n == t.ld && !t.bias && !t.accumulate && b.n_rows <= FEW_ROWS) { /* straight to its place */
        product.y = rg_act_row(f, y, b.row) + t.at;
        product.ldy = (size_t)y->stride;
        rg_cpu_product(r->cpu, w->packed, &x, b.row, product);
        return;
    }
    rg_cpu_product(r->cpu, w->packed, &x, b.row, product);
    put(f, y, b, t);
}

static void linear_block(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, block b)
{
    for (int end = b.panel + b.n_panels; b.panel < end; b.panel += b.n_panels) {
        place p = find(op, b.panel);

        b.n_panels = rg_min(end - b.panel, panels_of(op->w[p.w]) - (int)p.panel);
        linear_at(r, f, op, b, p);
    }
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
    products(r, f, op, n_panels, linear_block);
}

void rg_cpu_linear_heads(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    rg_cpu_linear(r, f, op);
}

/* ---- gate and up, side by side ----------------------------------------------------------------------------------- */

static void gated_block(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, block b)
{
    int row = b.panel * RG_PANEL, ld = b.n_panels * RG_PANEL, n = rg_min(ld, (int)op->w[0]->rows - row);
    float *tile[2] = { rg_cpu_scratch(r, f), rg_cpu_scratch(r, f) + RG_TILE * RG_PANEL };

    for (int k = 0; k < 2; k++) {
        rg_operand x = rg_operand_of(f, op->in[0]);

        if (!rg_is_fast(r, f, op->w[k]))
            x.q = NULL;
        rg_cpu_product(r->cpu, op->w[k]->packed, &x, b.row,
                       (rg_product){ .panel = rg_panel_at(op->w[k]->packed, 0, b.panel), .n_panels = b.n_panels,
                                     .m = b.n_rows, .y = tile[k], .ldy = (size_t)ld });
        for (int i = 0; op->b[k] && i < b.n_rows; i++)
            for (int j = 0; j < n; j++)
                tile[k][i * ld + j] += op->b[k]->vec[row + j];
    }
    r->cpu->act_mul[op->act](tile[0], tile[0], tile[1], b.n_rows * ld);
    put(f, op->out[0], b, (finished){ .tile = tile[0], .ld = ld, .n = n, .at = row });
}

void rg_cpu_gated(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    if (rg_is_fast(r, f, op->w[0]) || rg_is_fast(r, f, op->w[1]))
        rg_cpu_quantize(r, f, op->in[0]);
    products(r, f, op, panels_of(op->w[0]), gated_block);
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
