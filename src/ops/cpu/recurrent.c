/* recurrent.c -- Mamba's convolution and scan over spans, and the state that a sequence keeps of them.
 *
 * The state in the slot is the one after the last committed row.  Draft rows leave it alone: they run on a copy, and
 * their inputs are logged.  The next step says how many of them were accepted (n_replay) and each operation folds
 * those in first, from its own part of the log: the convolution its inputs into the tail; the scan x, dt and B into
 * h.  A replayed row goes through the operations that it would have gone through as a row, so the bits are those of a
 * sequence that never drafted.
 *
 * Chunks are runs of channels, and channels never meet: a chunk reads its channels of the log before it writes them.
 * Only B belongs to all channels, and is logged in a phase of its own after all have read it. */
#include "ops/cpu/reader.h"

#include <string.h>

enum { CHANNELS = 64, CHUNKS_PER_THREAD = 3, AHEAD = 4 /* rows of a convolution */ };

/* The parts of a layer's state in one slot. */
typedef struct slot {
    float *h, *tail, *log_in, *log_x, *log_dt, *log_b;
} slot;

static slot slot_of(const rg_fwd *f, const rg_recurrent *rec, const rg_span *s)
{
    const rg_group_memory *memory = &f->groups[rec->group];
    size_t inner = (size_t)rec->d_inner, log = RG_MAX_DRAFT * inner;
    int32_t at = s->tables[rec->group][0];
    slot t;

    RG_ASSERT(at >= 0 && s->n_draft <= RG_MAX_DRAFT && s->n_draft <= s->n_rows && s->n_replay <= RG_MAX_DRAFT);
    t.h = (float *)(void *)(memory->data + (size_t)at * memory->block_bytes + rec->offset);
    t.tail = t.h + (size_t)rec->d_state * inner;
    t.log_in = t.tail + (size_t)(rec->d_conv - 1) * inner;
    t.log_x = t.log_in + log;
    t.log_dt = t.log_x + log;
    t.log_b = t.log_dt + log;
    return t;
}

/* Nothing is committed yet: the state is zero, whatever the slot held before. */
static bool is_fresh(const rg_span *s)
{
    return s->start == s->n_replay;
}

/* n channels of a row on their way: rows lie far apart, and who computed them may have been another core. */
static void prefetch_row(const float *row, int n)
{
    for (int k = 0; k < n; k += 16)
        __builtin_prefetch(row + k);
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

/* The tail after n more inputs, at in, ld apart: rows move down, each from a higher place, so in place is safe. */
static void push(float *tail, int keep, size_t inner, const float *in, size_t ld, int n, int channels)
{
    for (int i = 0; i < keep; i++) {
        int from = i + n;
        const float *row = from < keep ? tail + (size_t)from * inner : in + (size_t)(from - keep) * ld;

        if (n)
            memcpy(tail + (size_t)i * inner, row, (size_t)channels * sizeof(float));
    }
}

/* Channels [c, c + n) of one span. */
static void conv_span(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, const rg_span *s, int c, int n)
{
    const rg_recurrent *rec = op->rec;
    const rg_act *x = op->in[0];
    slot t = slot_of(f, rec, s);
    size_t inner = (size_t)rec->d_inner, ld = (size_t)x->stride;
    int keep = rec->d_conv - 1, committed = s->n_rows - s->n_draft;
    const float *rows = rg_act_row(f, x, s->first_row) + c, *in[RG_MAX_CONV];
    const float *bias = op->b[0] ? op->b[0]->vec + c : NULL, *w = op->w[0]->vec + (size_t)c * (size_t)rec->d_conv;

    t.tail += c;
    t.log_in += c;
    for (int i = 0; is_fresh(s) && i < keep; i++)
        memset(t.tail + (size_t)i * inner, 0, (size_t)n * sizeof(float));
    push(t.tail, keep, inner, t.log_in, inner, s->n_replay, n);
    for (int i = 0; i < s->n_rows; i++) {
        for (int j = 0; j <= keep; j++) {
            int at = i - keep + j;
            in[j] = at < 0 ? t.tail + (size_t)(at + keep) * inner : rows + (size_t)at * ld;
        }
        if (i + AHEAD < s->n_rows)
            prefetch_row(rows + (size_t)(i + AHEAD) * ld, n);
        r->cpu->conv_row(rg_act_row(f, op->out[0], s->first_row + i) + c, in, w, bias, rec->d_conv, n);
    }
    push(t.tail, keep, inner, rows, ld, committed, n);
    for (int i = 0; i < s->n_draft; i++)
        memcpy(t.log_in + (size_t)i * inner, rows + (size_t)(committed + i) * ld, (size_t)n * sizeof(float));
}

void rg_cpu_conv(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    int per_span = rg_ceil_div(op->rec->d_inner, CHANNELS);

    RG_ASSERT(op->rec->d_conv >= 1 && op->rec->d_conv <= RG_MAX_CONV);
    for (int c; (c = rg_chunk_next(f, per_span * f->batch->n_spans)) >= 0;) {
        int first = c % per_span * CHANNELS;

        conv_span(r, f, op, &f->batch->spans[c / per_span], first, rg_min(CHANNELS, op->rec->d_inner - first));
    }
    rg_fwd_barrier(f);
}

/* ---- scan -------------------------------------------------------------------------------------------------------- */

/* Where a chunk's recurrence stands: h and a with rows ld apart, in the state or, for drafts, in scratch. */
typedef struct at_work {
    float *h;
    const float *a;
    size_t ld;
} at_work;

/* h and a of n channels copied side by side into scratch. */
static at_work copy_of(const at_work *w, int d_state, int n, float *scratch)
{
    at_work copy = { .h = scratch, .a = scratch + RG_SCAN_VALUES, .ld = (size_t)n };

    for (int i = 0; i < d_state; i++) {
        memcpy(scratch + (size_t)(i * n), w->h + (size_t)i * w->ld, (size_t)n * sizeof(float));
        memcpy(scratch + RG_SCAN_VALUES + (size_t)(i * n), w->a + (size_t)i * w->ld, (size_t)n * sizeof(float));
    }
    return copy;
}

static void scan_span(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, const rg_span *s, int c, int n)
{
    const rg_recurrent *rec = op->rec;
    slot t = slot_of(f, rec, s);
    size_t inner = (size_t)rec->d_inner;
    at_work w = { t.h + c, op->w[0]->vec + c, inner };
    float *scratch = rg_cpu_scratch(r, f), *dt = scratch + 2 * RG_SCAN_VALUES;
    int committed = s->n_rows - s->n_draft;

    for (int i = 0; is_fresh(s) && i < rec->d_state; i++)
        memset(w.h + (size_t)i * inner, 0, (size_t)n * sizeof(float));
    for (int i = 0; i < s->n_replay; i++)
        r->cpu->scan_row(w.h, w.a, w.ld, rec->d_state, n, t.log_x + (size_t)i * inner + c,
                         t.log_dt + (size_t)i * inner + c, t.log_b + (size_t)(i * rec->d_state), NULL, NULL, NULL,
                         NULL);
    for (int i = 0; i < s->n_rows; i++) {
        int row = s->first_row + i;
        const float *x = rg_act_row(f, op->in[0], row) + c, *b = rg_act_row(f, op->in[2], row);

        for (int k = 0; i + 1 < s->n_rows && k < 4; k++)
            prefetch_row(rg_act_row(f, op->in[k], row + 1) + (k == 2 ? 0 : c), k == 2 ? 2 * rec->d_state : n);
        r->cpu->softplus(dt, rg_act_row(f, op->in[1], row) + c, n);
        if (i == committed)
            w = copy_of(&w, rec->d_state, n, scratch);
        if (i >= committed) {
            memcpy(t.log_x + (size_t)(i - committed) * inner + c, x, (size_t)n * sizeof(float));
            memcpy(t.log_dt + (size_t)(i - committed) * inner + c, dt, (size_t)n * sizeof(float));
        }
        r->cpu->scan_row(w.h, w.a, w.ld, rec->d_state, n, x, dt, b, b + rec->d_state, op->w[1]->vec + c,
                         rg_act_row(f, op->in[3], row) + c, rg_act_row(f, op->out[0], row) + c);
    }
}

static void log_b(rg_fwd *f, const rg_op *op, const rg_span *s)
{
    slot t = slot_of(f, op->rec, s);
    int first = s->first_row + s->n_rows - s->n_draft;

    for (int i = 0; i < s->n_draft; i++)
        memcpy(t.log_b + (size_t)(i * op->rec->d_state), rg_act_row(f, op->in[2], first + i),
               (size_t)op->rec->d_state * sizeof(float));
}

/* h of channels [c, c + n) on its way from memory: it lies in short pieces far apart, which the hardware does not see
 * coming. */
static void prefetch_state(const rg_fwd *f, const rg_op *op, const rg_span *s, int c, int n)
{
    const rg_recurrent *rec = op->rec;
    const float *h = slot_of(f, rec, s).h + c, *a = op->w[0]->vec + c;

    for (int i = 0; i < rec->d_state; i++, h += rec->d_inner, a += rec->d_inner)
        for (int k = 0; k < n; k += 16) {
            __builtin_prefetch(h + k, 1);
            __builtin_prefetch(a + k);
        }
}

/* A chunk is several runs of channels of one span, so that while one is computed the next comes nearer. */
void rg_cpu_scan(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_batch *b = f->batch;
    int inner = op->rec->d_inner, channels = rg_min(CHANNELS, RG_SCAN_VALUES / op->rec->d_state / 16 * 16), n_draft = 0;

    RG_ASSERT(op->rec->d_state <= RG_MAX_STATE && channels > 0);
    int n_runs = rg_ceil_div(inner, channels), share = n_runs * b->n_spans / (f->n_threads * CHUNKS_PER_THREAD);
    int per_span = rg_ceil_div(n_runs, rg_max(1, share)), wide = rg_ceil_div(n_runs, per_span) * channels;
    for (int i; (i = rg_chunk_next(f, per_span * b->n_spans)) >= 0;) {
        const rg_span *s = &b->spans[i / per_span];

        for (int c = i % per_span * wide, end = rg_min(c + wide, inner); c < end; c += channels) {
            if (c + channels < end)
                prefetch_state(f, op, s, c + channels, rg_min(channels, end - c - channels));
            scan_span(r, f, op, s, c, rg_min(channels, end - c));
        }
    }
    rg_fwd_barrier(f);
    for (int i = 0; i < b->n_spans; i++)
        n_draft += b->spans[i].n_draft;
    if (!n_draft)
        return;
    for (int c; (c = rg_chunk_next(f, b->n_spans)) >= 0;)
        log_b(f, op, &b->spans[c]);
    rg_fwd_barrier(f);
}
