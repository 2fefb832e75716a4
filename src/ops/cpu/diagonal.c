/* diagonal.c -- recurrences whose decays are given or depend on the row alone: state spaces (S4) and the RG-LRU.
 *
 * Row after row, runs of channels shared out among threads; channels never meet.  Drafts are treated as in recurrent.c:
 * they run on a copy of the state and are logged; what a chunk reads of the log and writes there is of its own
 * channels. */
#include "ops/cpu/kept.h"

#include <string.h>

enum { CHANNELS = 64, L1_FLOATS = 8 << 10 };

/* Compute channels [c, c + n) of one span. */
typedef void span_fn(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, const rg_span *s, int c, int n);

static void runs_of_channels(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, int channels, span_fn *fn)
{
    int all = op->in[0]->cols, per_span = rg_ceil_div(all, channels);

    for (int i; (i = rg_chunk_next(f, per_span * f->batch->n_spans)) >= 0;) {
        int first = i % per_span * channels;

        fn(r, f, op, &f->batch->spans[i / per_span], first, rg_min(channels, all - first));
    }
    rg_fwd_barrier(f);
}

/* ---- state spaces ------------------------------------------------------------------------------------------------ */

static void modes_span(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, const rg_span *s, int c, int n)
{
    kept k = kept_of(f, op->buffer, s);
    const rg_weight *m = op->w[0];
    const size_t channels = (size_t)m->cols;
    float *scratch = rg_cpu_scratch(r, f);
    rg_modes w = { .x = k.at + c, .m = m->vec + c, .d = op->w[1]->vec + c, .ldx = channels, .ldm = rg_vec_stride(m),
                   .n_modes = op->n, .full = m->rows == (int64_t)op->n * RG_FULL_MODE_ROWS };
    int committed = s->n_rows - s->n_draft;

    for (int i = 0; rg_span_is_fresh(s) && i < 2 * op->n; i++)
        memset(w.x + (size_t)i * channels, 0, (size_t)n * sizeof(float));
    for (int i = 0; i < s->n_replay; i++)
        r->cpu->modes_row(&w, n, logged(&k, i) + c, NULL);
    for (int i = 0; i < s->n_rows; i++) {
        const float *u = rg_act_row(f, op->in[0], s->first_row + i) + c;

        if (i == committed) {
            for (int j = 0; j < 2 * op->n; j++)
                memcpy(scratch + (size_t)j * (size_t)n, w.x + (size_t)j * channels, (size_t)n * sizeof(float));
            w.x = scratch;
            w.ldx = (size_t)n;
        }
        if (i >= committed)
            memcpy(logged(&k, i - committed) + c, u, (size_t)n * sizeof(float));
        r->cpu->modes_row(&w, n, u, rg_act_row(f, op->out[0], s->first_row + i) + c);
    }
}

/* So many channels that their states and coefficients stay in L1 while the rows go by. */
void rg_cpu_state_space(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const int floats = 2 * op->n + (int)op->w[0]->rows, channels = L1_FLOATS / floats / 16 * 16;

    RG_ASSERT(op->n <= RG_MAX_STATE / 2);
    runs_of_channels(r, f, op, rg_max(16, rg_min(CHANNELS, channels)), modes_span);
}

/* ---- RG-LRU ------------------------------------------------------------------------------------------------------ */

static void lru_span(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, const rg_span *s, int c, int n)
{
    kept k = kept_of(f, op->buffer, s);
    const size_t channels = (size_t)op->in[0]->cols, bytes = (size_t)n * sizeof(float);
    float *h = k.at + c, *scratch = rg_cpu_scratch(r, f), *copy = scratch + 2 * CHANNELS;
    int committed = s->n_rows - s->n_draft;

    if (rg_span_is_fresh(s))
        memset(h, 0, bytes);
    for (int i = 0; i < s->n_replay; i++)
        r->cpu->lru_row(h, logged(&k, i) + c, logged(&k, i) + channels + c, n);
    for (int i = 0; i < s->n_rows; i++) {
        int row = s->first_row + i;
        rg_lru_row g = { .x = rg_act_row(f, op->in[0], row) + c, .r = rg_act_row(f, op->in[1], row) + c,
                         .i = rg_act_row(f, op->in[2], row) + c, .rate = op->w[0]->vec + c, .b_r = op->b[0]->vec + c,
                         .b_i = op->b[1]->vec + c, .first = s->start + i == 0, .a = scratch, .b = scratch + CHANNELS };

        if (i == committed)
            h = memcpy(copy, h, bytes);
        if (i >= committed) {
            g.a = logged(&k, i - committed) + c;
            g.b = g.a + channels;
        }
        r->cpu->lru_gates(&g, n);
        r->cpu->lru_row(h, g.a, g.b, n);
        memcpy(rg_act_row(f, op->out[0], row) + c, h, bytes);
    }
}

void rg_cpu_lru(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    runs_of_channels(r, f, op, CHANNELS, lru_span);
}
