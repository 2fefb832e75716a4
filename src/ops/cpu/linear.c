/* linear.c -- products with packed matrices.
 *
 * A chunk is a block: a group of panels by a stretch of rows, small enough that its sums stay in a near cache; the
 * kernel chooses the order within it.  A step of one row takes more panels per chunk.  No sum crosses chunks, so the
 * cut never changes the bits.
 *
 * Where a matrix is packed for skipping columns, a step of one row has a phase before: each thread goes over half of
 * the columns, since what it reads of a column then is twice as long as with half of the rows, and long pieces come
 * faster from memory.  The halves are two of the four chains of the exact recipe each, and so the bits are the same. */
#include "ops/cpu/reader.h"

#include <string.h>

#include "base/mem.h"

enum {
    CHUNKS_PER_THREAD = 8,
    GROUP_MAX = 32,
    FEW_ROWS = 16,
    SMALL_SHARE = 1 << 20, /* bytes of weights for each thread, which one row meets in some microseconds */
    TURNS = 128,           /* steps of one row in which a thread fetches all of the next one's panels */
};

static rg_rounded *rounded_at(const rg_fwd *f, const rg_act *a)
{
    return (rg_rounded *)(void *)(rg_cpu_fwd_of(f)->arena + rg_cpu_act_of(f, a)->round);
}

rg_operand rg_operand_of(const rg_fwd *f, const rg_act *a)
{
    return (rg_operand){
        .x = rg_act_data(f, a),
        .ldx = rg_act_stride(f, a),
        .r = rounded_at(f, a),
        .ldr = rg_round_stride(a->cols),
        .n_blocks = a->cols / 32,
    };
}

/* What fast is for a layout in a step of this precision; in a step of bf16 products weights of f32 are rounded too. */
static rg_recipe fast_of(const rg_cpu_reader *r, rg_layout layout, bool llm_int8, bool bf16)
{
    const rg_recipe fast = r->cpu->fast[layout];

    if (bf16)
        return layout == RG_LAYOUT_F32 ? RG_BF16_ROUNDED : RG_EXACT;
    return fast == RG_INT8 && llm_int8 ? RG_LLM_INT8 : fast;
}

rg_recipe rg_cpu_recipe(const rg_cpu_reader *r, const rg_weight *w, rg_recipe rounding)
{
    const rg_recipe fast = fast_of(r, rg_packed_of(w->placed)->layout, rounding == RG_LLM_INT8,
                                   rounding == RG_BF16_ROUNDED);

    return w->cols % 32 == 0 && fast == rounding ? rounding : RG_EXACT;
}

rg_recipe rg_cpu_rounding(const rg_cpu_reader *r, const rg_fwd *f, const rg_weight *const *w, int n)
{
    rg_recipe rounding = RG_EXACT;

    for (int i = 0; i < n && w[i] && !f->exact && rounding == RG_EXACT; i++)
        rounding = rg_cpu_recipe(r, w[i], fast_of(r, rg_packed_of(w[i]->placed)->layout, f->llm_int8, f->bf16));
    return rounding;
}

/* The outliers of a row are kept side by side, as many as there is room for. */
static void round_apart(const rg_cpu *cpu, const float *x, int n_blocks, rg_rounded *to)
{
    const rg_outliers o = rg_outliers_behind(to, n_blocks);
    int n = 0;

    cpu->quantize_row(x, 32 * n_blocks, &to->int8, o.bits);
    for (int b = 0; b < n_blocks; b++)
        for (uint32_t bits = o.bits[b]; bits && n < n_blocks; bits &= bits - 1)
            o.values[n++] = x[32 * b + __builtin_ctz(bits)];
}

void rg_cpu_round_row(const rg_cpu *cpu, rg_recipe rounding, const float *x, int n, rg_rounded *to)
{
    if (rounding == RG_INT8)
        cpu->quantize(x, n / 32 * 32, &to->int8);
    else if (rounding == RG_LLM_INT8)
        round_apart(cpu, x, n / 32, to);
    else
        cpu->store(to->bf16, NULL, RG_BF16, 1, x, n / 32 * 32);
}

void rg_cpu_round(rg_cpu_reader *r, rg_fwd *f, const rg_act *a, rg_recipe rounding)
{
    rg_rounded *to = rounded_at(f, a);

    if (rounding == RG_EXACT || rg_cpu_act_of(f, a)->rounded == (int)rounding)
        return;
    for (int row; (row = rg_chunk_next(f, a->rows)) >= 0;)
        rg_cpu_round_row(r->cpu, rounding, rg_act_row(f, a, row), a->cols, to + (size_t)row * rg_round_stride(a->cols));
    rg_phase_done(f);
    rg_cpu_act_of(f, a)->rounded = (int)rounding;
}

/* p of panels in this layout, which is not folded. */
static void multiply_as(const rg_cpu *cpu, rg_recipe recipe, rg_layout layout, const rg_product *p, const rg_operand *x,
                        int first)
{
    cpu->product[recipe == RG_LLM_INT8 ? RG_INT8 : recipe][layout](p);
    if (recipe == RG_LLM_INT8)
        rg_cpu_add_outliers(cpu, layout, p, x, first);
}

/* The same of folded panels: one row goes through each while it is in the near cache. */
static void multiply_folded(const rg_cpu *cpu, rg_recipe recipe, const rg_packed *w, const rg_product *p,
                            const rg_operand *x, int first)
{
    const rg_layout layout = rg_layout_unfolded(w->layout);
    const int most = p->m == 1 ? 1 : RG_UNFOLDED;
    rg_product q = *p;

    q.panel = p->room;
    q.next = NULL;
    q.panel_bytes = rg_unfolded_bytes(w->layout, (int)w->placed.cols);
    for (int i = 0; i < p->n_panels; i += most, q.y += RG_PANEL * most) {
        q.n_panels = rg_min(most, p->n_panels - i);
        for (int k = 0; k < q.n_panels; k++)
            cpu->unfold(w->layout, p->panel + (size_t)(i + k) * p->panel_bytes, (int)w->placed.cols,
                        p->room + (size_t)k * q.panel_bytes);
        multiply_as(cpu, recipe, layout, &q, x, first);
    }
}

void rg_cpu_product(const rg_cpu *cpu, rg_recipe recipe, const rg_packed *w, const rg_operand *x, int first,
                    rg_product p)
{
    const rg_rounded *rounded = recipe == RG_EXACT ? NULL : x->r + (size_t)first * x->ldr;

    p.panel_bytes = w->panel_bytes;
    p.cols = (int)w->placed.cols;
    if (recipe == RG_EXACT) {
        p.x = x->x + (size_t)first * x->ldx;
        p.ldx = x->ldx;
    } else if (recipe == RG_INT8 || recipe == RG_LLM_INT8) {
        p.q = &rounded->int8;
        p.ldx = x->ldr;
    } else {
        p.h = rounded->bf16;
        p.ldx = x->ldr * RG_LEN(rounded->bf16);
    }
    if (rg_layout_is_folded(w->layout))
        multiply_folded(cpu, recipe, w, &p, x, first);
    else
        multiply_as(cpu, recipe, w->layout, &p, x, first);
}

/* Panels, counted through all matrices of an operation, by rows. */
typedef struct block {
    int panel, n_panels, row, n_rows;
    int next; /* the panel with which this thread is likely to go on; -1: not known */
} block;

/* Matrix and panel of the i-th panel of all of op's matrices. */
typedef struct place {
    int w;
    int64_t mat, panel;
} place;

static int panels_of(const rg_weight *w)
{
    return rg_ceil_div(w->rows, RG_PANEL);
}

static int all_panels(const rg_op *op)
{
    int n = 0;

    for (int i = 0; i < 3 && op->w[i]; i++)
        n += panels_of(op->w[i]) * (int)op->w[i]->n_mats;
    return n;
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

static const uint8_t *panel_of(const rg_op *op, int i)
{
    const place p = find(op, i);

    return rg_panel_at(rg_packed_of(op->w[p.w]->placed), p.mat, p.panel);
}

/* Multiply the panels at p.panel of w, the first of which is number b.panel of the operation's, by the rows of b.  A
 * matrix whose columns may be skipped gives the same, zeros included, whether they are or not. */
static void multiply(const rg_cpu_reader *r, const rg_op *op, rg_recipe recipe, const rg_packed *w, const rg_operand *x,
                     block b, rg_product p)
{
    const float *half[2] = { r->halves + RG_PANEL * b.panel, r->halves + r->half_floats + RG_PANEL * b.panel };

    if (w->column_bytes && b.n_rows == 1) {
        for (int i = 0; i < RG_PANEL * p.n_panels; i++)
            p.y[i] = (half[0][i] + half[1][i]) + 0.0f;
        return;
    }
    p.column_bytes = w->column_bytes;
    p.next = b.next < 0 ? NULL : panel_of(op, b.next);
    rg_cpu_product(r->cpu, recipe, w, x, b.row, p);
    for (int row = 0; w->column_bytes && row < b.n_rows; row++)
        for (int i = 0; i < RG_PANEL * p.n_panels; i++)
            p.y[(size_t)row * p.ldy + (size_t)i] += 0.0f;
}

/* ---- columns that are skipped ------------------------------------------------------------------------------------ */

/* Half of the columns of panels that may skip them, b of all, by the one row. */
static void half_block(const rg_cpu_reader *r, const rg_fwd *f, const rg_op *op, block b, int half)
{
    float *y = r->halves + (size_t)half * r->half_floats;

    for (int end = b.panel + b.n_panels; b.panel < end; b.panel += b.n_panels) {
        const place p = find(op, b.panel);
        const rg_packed *w = rg_packed_of(op->w[p.w]->placed);

        b.n_panels = rg_min(end - b.panel, panels_of(op->w[p.w]) - (int)p.panel);
        if (w->column_bytes)
            r->cpu->sparse[w->layout](&(rg_product){
                .panel = rg_panel_at(w, p.mat, p.panel), .panel_bytes = w->panel_bytes, .column_bytes = w->column_bytes,
                .n_panels = b.n_panels, .cols = (int)w->placed.cols, .m = 1, .half = half,
                .x = rg_act_data(f, op->in[0]) + p.mat * op->n, .y = y + RG_PANEL * b.panel });
    }
}

/* A phase, of a step of one row where columns may be skipped: their halves, which multiply adds.  Chunks are as many
 * for each thread, of panels that the kernel goes over at once. */
static void halves(const rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const int n_panels = all_panels(op), least = f->n_threads % 2 ? f->n_threads : f->n_threads / 2;
    const int n_groups = least * rg_ceil_div(n_panels, least * RG_COLUMN_PANELS);
    const int group = (rg_ceil_div(n_panels, n_groups) + 1) / 2 * 2; /* whole cache lines */
    bool any = false;

    for (int i = 0; i < 3 && op->w[i]; i++)
        any = any || rg_packed_of(op->w[i]->placed)->column_bytes;
    if (!any || op->in[0]->rows != 1)
        return;
    RG_ASSERT((size_t)n_panels * RG_PANEL <= r->half_floats);
    for (int i; (i = rg_chunk_next(f, 2 * rg_ceil_div(n_panels, group))) >= 0;) {
        block b = { .panel = i / 2 * group, .n_rows = 1 };

        b.n_panels = rg_min(group, n_panels - b.panel);
        half_block(r, f, op, b, i % 2);
    }
    rg_phase_done(f);
}

/* ---- how a product is cut ---------------------------------------------------------------------------------------- */

typedef void block_fn(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, block b);

static bool is_small(const rg_fwd *f, const rg_op *op, int n_panels)
{
    const int share = rg_ceil_div(n_panels, f->n_threads);

    return share <= RG_TILE && (size_t)share * rg_packed_of(op->w[0]->placed)->panel_bytes <= SMALL_SHARE;
}

/* Fetch those of the next thread's panels whose turn it is.  A last cache that holds what the near ones let go of gives
 * a line away to the only core that asks for it, and takes it back later; a line that two cores have it keeps, and so
 * gives it faster.  It forgets that when the line leaves it: hence again and again, a few panels in each step. */
static void fetch_from_next(const rg_fwd *f, const rg_op *op, int n_panels, int group)
{
    const int first = (f->thread + 1) % f->n_threads * group, end = rg_min(first + group, n_panels);
    const int step = f->batch->n_spans ? f->batch->spans[0].start : 0, n_all = all_panels(op);
    const int turn = (int)((unsigned)(step + f->layer) % TURNS);

    for (int of_w = 0; of_w < n_all; of_w += n_panels) /* gate and up: both */
        for (int i = first + turn; i < end; i += TURNS) {
            const place p = find(op, of_w + i);
            const rg_packed *w = rg_packed_of(op->w[p.w]->placed);
            const uint8_t *panel = rg_panel_at(w, p.mat, p.panel);

            for (size_t at = 0; at < w->panel_bytes; at += RG_ALIGN)
                __builtin_prefetch(panel + at, 0, 2);
        }
}

static void products(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, int n_panels, block_fn *compute)
{
    int rows = op->in[0]->rows, stretch = rg_min(RG_ROWS_MAX, rows), n_stretches = rg_ceil_div(rows, stretch), n_chunks;
    int per_thread = n_panels * n_stretches / (f->n_threads * CHUNKS_PER_THREAD);
    int group = rg_min(rg_min(GROUP_MAX, RG_TILE / stretch), rg_max(1, per_thread));

    if (stretch > 1 && (group > 1 || n_panels * n_stretches >= f->n_threads * CHUNKS_PER_THREAD))
        group = rg_max(2, group / 2 * 2); /* kernels of many rows take two panels together */
    if (rows == 1 && is_small(f, op, n_panels)) { /* one stream each, and nothing to share out */
        group = rg_ceil_div(n_panels, f->n_threads);
        if (f->n_threads > 1)
            fetch_from_next(f, op, n_panels, group);
    }

    n_chunks = rg_ceil_div(n_panels, group) * n_stretches;
    for (int i, on; (i = rg_chunk_next(f, n_chunks)) >= 0;) {
        block b = { .panel = i / n_stretches * group, .row = i % n_stretches * stretch };

        on = rg_chunk_likely(f, i);
        b.next = on < n_chunks ? on / n_stretches * group : -1;
        b.n_panels = rg_min(group, n_panels - b.panel);
        b.n_rows = rg_min(stretch, rows - b.row);
        compute(r, f, op, b);
    }
    rg_phase_done(f);
}

/* y[row, at ..] = tile + bias, or += : the n columns of a block that are there; ld floats between rows of the tile. */
typedef struct finished {
    const float *tile;
    const float *bias; /* NULL: none */
    int ld, n, at;
    bool accumulate;
} finished;

static void put(const rg_cpu *cpu, const rg_fwd *f, const rg_act *y, block b, finished t)
{
    const rg_put p = { .to = rg_act_row(f, y, b.row) + t.at,
                       .from = t.tile,
                       .bias = t.bias,
                       .ld_to = rg_act_stride(f, y),
                       .ld_from = (size_t)t.ld,
                       .n_rows = b.n_rows,
                       .n = t.n,
                       .accumulate = t.accumulate };

    cpu->put(&p);
}

/* ---- columns in another order ------------------------------------------------------------------------------------ */

/* Permute columns, and round the row for the product to come while it is in the near cache. */
void rg_cpu_permute(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_packed *w = rg_packed_of(op->w[0]->placed);
    const rg_act *y = op->out[0];
    const int cols = (int)w->placed.cols, n_runs = y->cols / cols;
    const rg_recipe rounding = rg_cpu_rounding(r, f, op->w, 1);
    rg_rounded *to = rounded_at(f, y);

    for (int row; (row = rg_chunk_next(f, y->rows)) >= 0;) {
        for (int m = 0; m < n_runs; m++)
            rg_permute(rg_act_row(f, y, row) + m * cols, rg_act_row(f, op->in[0], row) + m * op->n,
                       rg_order_behind(w, rg_panel_at(w, m, 0)), cols);
        if (rounding != RG_EXACT)
            rg_cpu_round_row(r->cpu, rounding, rg_act_row(f, y, row), y->cols,
                             to + (size_t)row * rg_round_stride(y->cols));
    }
    rg_phase_done(f);
    rg_cpu_act_of(f, y)->rounded = (int)rounding;
}

/* ---- linear, and linear per head --------------------------------------------------------------------------------- */

/* The input as the matrices read it. */
static const rg_act *input_of(const rg_op *op)
{
    return op->in[1] ? op->in[1] : op->in[0];
}

/* Columns of it from one head to the next. */
static int heads_apart(const rg_op *op)
{
    return op->n && op->in[1] ? (int)op->w[0]->cols : op->n;
}

/* Heads that do not start on a block of 32 columns are computed exactly, whatever the recipe: the model decides. */
static rg_recipe linear_rounding(const rg_cpu_reader *r, const rg_fwd *f, const rg_op *op)
{
    return heads_apart(op) % 32 ? RG_EXACT : rg_cpu_rounding(r, f, op->w, 3);
}

/* A block within one matrix, the one at p. */
static void linear_at(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, block b, place p)
{
    const rg_weight *w = op->w[p.w];
    const rg_act *y = op->out[p.w];
    const rg_recipe recipe = rg_cpu_recipe(r, w, linear_rounding(r, f, op));
    rg_operand x = rg_operand_of(f, input_of(op));
    int row = (int)p.panel * RG_PANEL, column = (int)p.mat * heads_apart(op);
    finished t = { .tile = rg_cpu_scratch(r, f), .bias = op->b[p.w] ? op->b[p.w]->vec + row : NULL,
                   .ld = b.n_panels * RG_PANEL, .n = rg_min(b.n_panels * RG_PANEL, (int)w->rows - row),
                   .at = (int)(p.mat * w->rows) + row, .accumulate = op->accumulate };
    rg_product product = { .panel = rg_panel_at(rg_packed_of(w->placed), p.mat, p.panel), .n_panels = b.n_panels,
                           .m = b.n_rows, .y = rg_cpu_scratch(r, f), .ldy = (size_t)t.ld, .room = rg_cpu_room(r, f) };

    x.x += column;
    x.r += column / 32;
    x.first_block = column / 32;
    const bool is_plain = recipe == RG_EXACT && rg_packed_of(w->placed)->layout == RG_LAYOUT_F32;

    if (t.n == t.ld && !t.bias && !t.accumulate && (is_plain || b.n_rows <= FEW_ROWS)) { /* straight to its place */
        product.y = rg_act_row(f, y, b.row) + t.at;
        product.ldy = rg_act_stride(f, y);
        multiply(r, op, recipe, rg_packed_of(w->placed), &x, b, product);
        return;
    }
    multiply(r, op, recipe, rg_packed_of(w->placed), &x, b, product);
    put(r->cpu, f, y, b, t);
}

static void linear_block(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, block b)
{
    const int end = b.panel + b.n_panels, next = b.next;

    for (; b.panel < end; b.panel += b.n_panels) {
        place p = find(op, b.panel);

        b.n_panels = rg_min(end - b.panel, panels_of(op->w[p.w]) - (int)p.panel);
        b.next = b.panel + b.n_panels < end ? b.panel + b.n_panels : next;
        linear_at(r, f, op, b, p);
    }
}

void rg_cpu_linear(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    rg_cpu_round(r, f, input_of(op), linear_rounding(r, f, op));
    if (op->is_head && rg_cpu_screen(r, f, op, rg_cpu_recipe(r, op->w[0], linear_rounding(r, f, op))))
        return;
    halves(r, f, op);
    products(r, f, op, all_panels(op), linear_block);
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
    const rg_recipe rounding = rg_cpu_rounding(r, f, op->w, 2);

    for (int k = 0; k < 2; k++) {
        rg_operand x = rg_operand_of(f, input_of(op));

        const rg_packed *w = rg_packed_of(op->w[k]->placed);
        const int up = panels_of(op->w[0]);
        const block of_all = { b.panel + k * up, b.n_panels, b.row, b.n_rows, k == 0 ? b.panel + up : b.next };

        multiply(r, op, rg_cpu_recipe(r, op->w[k], rounding), w, &x, of_all,
                 (rg_product){ .panel = rg_panel_at(w, 0, b.panel), .n_panels = b.n_panels, .m = b.n_rows, .y = tile[k],
                               .ldy = (size_t)ld, .room = rg_cpu_room(r, f) });
        for (int i = 0; op->b[k] && i < b.n_rows; i++)
            r->cpu->add(tile[k] + (size_t)i * (size_t)ld, op->b[k]->vec + row, n);
    }
    for (int i = 0; i < b.n_rows; i++)
        r->cpu->act_mul[op->act](rg_act_row(f, op->out[0], b.row + i) + row, tile[0] + (size_t)i * (size_t)ld,
                                 tile[1] + (size_t)i * (size_t)ld, n);
}

void rg_cpu_gated(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    rg_cpu_round(r, f, input_of(op), rg_cpu_rounding(r, f, op->w, 2));
    halves(r, f, op);
    products(r, f, op, panels_of(op->w[0]), gated_block);
}

/* ---- embedding --------------------------------------------------------------------------------------------------- */

void rg_cpu_embed(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_act *y = op->out[0];
    const rg_batch *b = f->batch;

    for (int row; (row = rg_chunk_next(f, y->rows)) >= 0;) {
        float *to = rg_act_row(f, y, row);
        const int32_t token = b->token[row] - (int32_t)op->y;

        if (b->token[row] == -1 && b->given && op->n) {
            memcpy(to, b->given[row], (size_t)y->cols * sizeof(float));
            continue;
        }
        rg_unpack_row(rg_packed_of(op->w[0]->placed), 0, token >= 0 && token < op->w[0]->rows ? token : 0, to);
        if (op->x != 1.0f)
            r->cpu->scale(to, to, op->x, y->cols);
    }
    rg_phase_done(f);
}
