/* adapt.c -- the deltas of adapters: y += scale * B (A x), by the exact recipe whatever the step's.
 *
 * Two phases: A x of all rows that have an adapter, and then B of that, tile by tile.  Rows of spans that name the same
 * adapter side by side are multiplied together; no row meets another, so that changes no bits. */
#include "ops/cpu/reader.h"

enum { STRETCH = 64, GROUP = 32 }; /* rows and panels of a piece; its tile is within RG_TILE */

/* Some panels of A or of B, by some rows. */
typedef struct piece {
    int w; /* of the operation's matrices */
    const rg_delta *delta;
    int row, n_rows, panel, n_panels;
} piece;

/* Panels of one matrix's delta by rows that share it: how many pieces. */
static int count_of(const rg_delta *d, bool second, int n_rows)
{
    const int n_panels = d->a ? rg_ceil_div((second ? d->b : d->a)->rows, RG_PANEL) : 0;

    return rg_ceil_div(n_rows, STRETCH) * rg_ceil_div(n_panels, GROUP);
}

static int count(const rg_fwd *f, const rg_op *op, bool second)
{
    rg_adapted rows = { 0 };
    int n = 0;

    while (rg_adapted_next(f, &rows))
        for (int k = 0; k < 3 && op->w[k]; k++)
            n += count_of(&op->w[k]->deltas[rows.adapter], second, rows.n);
    return n;
}

/* The i-th of the pieces that a phase is cut into. */
static piece find(const rg_fwd *f, const rg_op *op, bool second, int i)
{
    rg_adapted rows = { 0 };

    while (rg_adapted_next(f, &rows))
        for (int k = 0; k < 3 && op->w[k]; k++) {
            const rg_delta *d = &op->w[k]->deltas[rows.adapter];
            const int n = count_of(d, second, rows.n), n_stretches = rg_ceil_div(rows.n, STRETCH);
            piece p = { .w = k, .delta = d };

            if (i >= n) {
                i -= n;
                continue;
            }
            p.row = rows.first + i % n_stretches * STRETCH;
            p.panel = i / n_stretches * GROUP;
            p.n_rows = rg_min(STRETCH, rows.first + rows.n - p.row);
            p.n_panels = rg_min(GROUP, rg_ceil_div((second ? d->b : d->a)->rows, RG_PANEL) - p.panel);
            return p;
        }
    RG_ASSERT(false);
    return (piece){ 0 };
}

static float *low_at(const rg_cpu_reader *r, const piece *p)
{
    return r->low + ((size_t)p->row * 3 + (size_t)p->w) * r->low_cols;
}

static void shrink(rg_cpu_reader *r, const rg_fwd *f, const rg_op *op, const piece *p)
{
    const rg_operand x = rg_operand_of(f, op->in[0]);
    const rg_packed *a = rg_packed_of(p->delta->a);

    rg_cpu_product(r->cpu, RG_EXACT, a, &x, p->row,
                   (rg_product){ .panel = rg_panel_at(a, 0, p->panel),
                                 .n_panels = p->n_panels,
                                 .m = p->n_rows,
                                 .y = low_at(r, p) + p->panel * RG_PANEL,
                                 .ldy = 3 * r->low_cols,
                                 .room = rg_cpu_room(r, f) });
}

static void grow(rg_cpu_reader *r, const rg_fwd *f, const rg_op *op, const piece *p)
{
    const rg_operand low = { .x = low_at(r, p), .ldx = 3 * r->low_cols };
    const int ld = p->n_panels * RG_PANEL, at = p->panel * RG_PANEL, n = rg_min(ld, (int)p->delta->b->rows - at);
    const rg_packed *b = rg_packed_of(p->delta->b);
    float *tile = rg_cpu_scratch(r, f);

    rg_cpu_product(r->cpu, RG_EXACT, b, &low, 0,
                   (rg_product){ .panel = rg_panel_at(b, 0, p->panel),
                                 .n_panels = p->n_panels,
                                 .m = p->n_rows,
                                 .y = tile,
                                 .ldy = (size_t)ld,
                                 .room = rg_cpu_room(r, f) });
    for (int i = 0; i < p->n_rows; i++) {
        float *y = rg_act_row(f, op->out[p->w], p->row + i) + at;

        for (int k = 0; k < n; k++)
            y[k] += p->delta->scale * tile[i * ld + k];
    }
}

void rg_cpu_adapt(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    for (int second = 0; second < 2; second++) {
        const int n = count(f, op, second);

        for (int i; (i = rg_chunk_next(f, n)) >= 0;) {
            const piece p = find(f, op, second, i);

            second ? grow(r, f, op, &p) : shrink(r, f, op, &p);
        }
        rg_phase_done(f);
    }
}
