/* recurrent.c -- Mamba's convolution and scan over spans, and the state that a sequence keeps of them.
 *
 * The state in the slot is the one after the last committed row.  Draft rows leave it alone: they run on a copy, and
 * their inputs are logged.  The next step says how many of them were accepted (n_replay) and each operation folds those
 * in first, from its own part of the log: the convolution its inputs into the tail; the scan x, dt and B into h.  A
 * replayed row runs the same operations as an ordinary row, so the bits are those of a sequence without drafts.
 *
 * Chunks are runs of channels, and channels never meet: a chunk reads its channels of the log before it writes them.
 * Only B belongs to all channels, and is logged in a phase of its own after all have read it. */
#include "ops/cpu/kept.h"

#include <string.h>

enum {
    CHANNELS = 64,
    CHUNKS_PER_THREAD = 3,
    AHEAD = 4,               /* rows of a convolution */
    WIDE = 256,              /* channels of a convolution that a chunk has at most */
    TAP_VALUES = 24 << 10,   /* of a chunk's taps, which stay near while the rows go by */
};

bool rg_cpu_can(int layer, const rg_op *op, rg_error *err)
{
    if (op->kind == RG_OP_CONV && op->w[0]->cols > RG_MAX_CONV)
        return rg_fail(err, RG_E_UNSUPPORTED, "layer %d: a convolution of %lld taps; at most %d can be computed", layer,
                       (long long)op->w[0]->cols, RG_MAX_CONV);
    if (op->kind == RG_OP_SCAN && op->w[0]->rows > RG_MAX_STATE)
        return rg_fail(err, RG_E_UNSUPPORTED, "layer %d: a state of %lld a channel; at most %d can be computed", layer,
                       (long long)op->w[0]->rows, RG_MAX_STATE);
    if (op->kind == RG_OP_LINEAR_ATTENTION && op->recurrence->k_dim > RG_MAX_STATE)
        return rg_fail(err, RG_E_UNSUPPORTED, "layer %d: a recurrence over keys of %d; at most %d can be computed",
                       layer, op->recurrence->k_dim, RG_MAX_STATE);
    if (op->kind == RG_OP_STATE_SPACE && op->n > RG_MAX_STATE / 2)
        return rg_fail(err, RG_E_UNSUPPORTED, "layer %d: a state of %d modes a channel; at most %d can be computed",
                       layer, op->n, RG_MAX_STATE / 2);
    if (op->kind == RG_OP_CHOOSE_KEYS && op->out[0]->cols > RG_MAX_CHOSEN)
        return rg_fail(err, RG_E_UNSUPPORTED, "layer %d: an indexer that chooses %d keys; at most %d can be computed",
                       layer, op->out[0]->cols, RG_MAX_CHOSEN);
    if (op->kind == RG_OP_CHOOSE_KEYS && op->buffer->values > RG_MAX_INDEX_DIM)
        return rg_fail(err, RG_E_UNSUPPORTED, "layer %d: an indexer with keys of %d; at most %d can be computed", layer,
                       op->buffer->values, RG_MAX_INDEX_DIM);
    return true;
}

/* Prefetch n channels of a row: rows are far apart in memory, and may be in another core's cache. */
static void prefetch_row(const float *row, int n)
{
    for (int k = 0; k < n; k += 16)
        __builtin_prefetch(row + k);
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

/* The tail after n > 0 more inputs, at in, ld apart: rows move down, each from a higher place, so in place is safe. */
static void push(float *tail, int keep, size_t inner, const float *in, size_t ld, int n, int channels)
{
    for (int i = 0; i < keep; i++) {
        int from = i + n;
        const float *row = from < keep ? tail + (size_t)from * inner : in + (size_t)(from - keep) * ld;

        memcpy(tail + (size_t)i * inner, row, (size_t)channels * sizeof(float));
    }
}

/* Taps of channels [c, c + n) of each result, side by side: [results][taps][n]. */
static void gather_taps(const rg_op *op, int c, int n, float *to)
{
    const int taps = (int)op->w[0]->cols;

    for (int at = c; at < op->out[0]->cols; at += op->in[0]->cols, to += taps * n) {
        const float *w = op->w[0]->vec + (size_t)at * (size_t)taps;

        for (int k = 0; k < n; k++)
            for (int j = 0; j < taps; j++)
                to[j * n + k] = *w++;
    }
}

/* Row i of a span: the results of its channels [c, c + n). */
static void conv_results(const rg_cpu *cpu, const rg_op *op, float *y, const float *const *in, const float *w, int c,
                         int n)
{
    const int taps = (int)op->w[0]->cols;

    for (int at = c; at < op->out[0]->cols; at += op->in[0]->cols, w += taps * n) {
        cpu->conv_row(y + at, in, w, op->b[0] ? op->b[0]->vec + at : NULL, taps, n);
        if (op->act != RG_IDENTITY)
            cpu->act[op->act](y + at, y + at, n);
    }
}

/* Channels [c, c + n) of one span. */
static void conv_span(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, const rg_span *s, int c, int n)
{
    const rg_act *x = op->in[0];
    kept k = kept_of(f, op->buffer, s);
    size_t inner = (size_t)x->cols, ld = rg_act_stride(f, x);
    int keep = (int)op->w[0]->cols - 1, committed = s->n_rows - s->n_draft;
    const float *rows = rg_act_row(f, x, s->first_row) + c, *in[RG_MAX_CONV];
    float *tail = k.at + c, *w = rg_cpu_scratch(r, f);

    gather_taps(op, c, n, w);
    for (int i = 0; rg_span_is_fresh(s) && i < keep; i++)
        memset(tail + (size_t)i * inner, 0, (size_t)n * sizeof(float));
    if (s->n_replay)
        push(tail, keep, inner, k.log + c, k.ld, s->n_replay, n);
    for (int i = 0; i < s->n_rows; i++) {
        for (int j = 0; j <= keep; j++) {
            int at = i - keep + j;
            in[j] = at < 0 ? tail + (size_t)(at + keep) * inner : rows + (size_t)at * ld;
        }
        if (i + AHEAD < s->n_rows)
            prefetch_row(rows + (size_t)(i + AHEAD) * ld, n);
        conv_results(r->cpu, op, rg_act_row(f, op->out[0], s->first_row + i), in, w, c, n);
    }
    if (committed)
        push(tail, keep, inner, rows, ld, committed, n);
    for (int i = 0; i < s->n_draft; i++)
        memcpy(k.log + (size_t)i * k.ld + c, rows + (size_t)(committed + i) * ld, (size_t)n * sizeof(float));
}

/* Channels of a chunk: all threads get some, and a row's piece is long where there are enough. */
static int conv_channels(const rg_fwd *f, const rg_op *op)
{
    const int results = op->out[0]->cols / op->in[0]->cols, taps = (int)op->w[0]->cols;
    const int share = op->in[0]->cols * f->batch->n_spans / (f->n_threads * CHUNKS_PER_THREAD) / CHANNELS * CHANNELS;

    return rg_max(16, rg_min(rg_max(CHANNELS, rg_min(WIDE, share)), TAP_VALUES / (results * taps) / 16 * 16));
}

void rg_cpu_conv(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    int channels = op->in[0]->cols, each = conv_channels(f, op), per_span = rg_ceil_div(channels, each);

    RG_ASSERT(op->w[0]->cols >= 1 && op->w[0]->cols <= RG_MAX_CONV);
    for (int c; (c = rg_chunk_next(f, per_span * f->batch->n_spans)) >= 0;) {
        int first = c % per_span * each;

        conv_span(r, f, op, &f->batch->spans[c / per_span], first, rg_min(each, channels - first));
    }
    rg_fwd_barrier(f);
}

/* ---- scan -------------------------------------------------------------------------------------------------------- */

/* Where a chunk's recurrence stands: h and a with rows ldh and lda apart, in the state or, for drafts, in scratch. */
typedef struct at_work {
    float *h;
    const float *a;
    size_t ldh, lda;
} at_work;

/* h and a of n channels copied side by side into scratch. */
static at_work copy_of(const at_work *w, int d_state, int n, float *scratch)
{
    at_work copy = { .h = scratch, .a = scratch + RG_SCAN_VALUES, .ldh = (size_t)n, .lda = (size_t)n };

    for (int i = 0; i < d_state; i++) {
        memcpy(scratch + (size_t)(i * n), w->h + (size_t)i * w->ldh, (size_t)n * sizeof(float));
        memcpy(scratch + RG_SCAN_VALUES + (size_t)(i * n), w->a + (size_t)i * w->lda, (size_t)n * sizeof(float));
    }
    return copy;
}

/* A draft row in the log: x [inner], dt [inner], B [d_state]. */
static void scan_span(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, const rg_span *s, int c, int n)
{
    kept k = kept_of(f, op->buffer, s);
    int d_state = (int)op->w[0]->rows, committed = s->n_rows - s->n_draft;
    size_t inner = (size_t)op->w[0]->cols;
    at_work w = { k.at + c, op->w[0]->vec + c, inner, rg_vec_stride(op->w[0]) };
    float *scratch = rg_cpu_scratch(r, f), *dt = scratch + 2 * RG_SCAN_VALUES;

    for (int i = 0; rg_span_is_fresh(s) && i < d_state; i++)
        memset(w.h + (size_t)i * inner, 0, (size_t)n * sizeof(float));
    for (int i = 0; i < s->n_replay; i++)
        r->cpu->scan_row(w.h, w.ldh, w.a, w.lda, d_state, n, logged(&k, i) + c, logged(&k, i) + inner + c,
                         logged(&k, i) + 2 * inner, NULL, NULL, NULL, NULL);
    for (int i = 0; i < s->n_rows; i++) {
        int row = s->first_row + i;
        const float *x = rg_act_row(f, op->in[0], row) + c, *b = rg_act_row(f, op->in[2], row);

        for (int p = 0; i + 1 < s->n_rows && p < 4; p++)
            prefetch_row(rg_act_row(f, op->in[p], row + 1) + (p == 2 ? 0 : c), p == 2 ? 2 * d_state : n);
        r->cpu->act[RG_SOFTPLUS](dt, rg_act_row(f, op->in[1], row) + c, n);
        if (i == committed)
            w = copy_of(&w, d_state, n, scratch);
        if (i >= committed) {
            float *log = logged(&k, i - committed) + c;
            memcpy(log, x, (size_t)n * sizeof(float));
            memcpy(log + inner, dt, (size_t)n * sizeof(float));
        }
        r->cpu->scan_row(w.h, w.ldh, w.a, w.lda, d_state, n, x, dt, b, b + d_state, op->w[1]->vec + c,
                         rg_act_row(f, op->in[3], row) + c, rg_act_row(f, op->out[0], row) + c);
    }
}

static void log_b(rg_fwd *f, const rg_op *op, const rg_span *s)
{
    kept k = kept_of(f, op->buffer, s);
    int first = s->first_row + s->n_rows - s->n_draft;

    for (int i = 0; i < s->n_draft; i++)
        memcpy(logged(&k, i) + 2 * op->w[0]->cols, rg_act_row(f, op->in[2], first + i),
               (size_t)op->w[0]->rows * sizeof(float));
}

/* Prefetch h of channels [c, c + n): it lies in short pieces far apart, which the hardware does not prefetch. */
static void prefetch_state(const rg_fwd *f, const rg_op *op, const rg_span *s, int c, int n)
{
    const float *h = kept_of(f, op->buffer, s).at + c, *a = op->w[0]->vec + c;

    for (int64_t i = 0; i < op->w[0]->rows; i++, h += op->w[0]->cols, a += rg_vec_stride(op->w[0]))
        for (int k = 0; k < n; k += 16) {
            __builtin_prefetch(h + k, 1);
            __builtin_prefetch(a + k);
        }
}

/* A chunk is several runs of channels of one span, so that while one is computed the next comes nearer. */
void rg_cpu_scan(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_batch *b = f->batch;
    int inner = (int)op->w[0]->cols, d_state = (int)op->w[0]->rows, n_draft = 0;
    int channels = rg_min(CHANNELS, RG_SCAN_VALUES / d_state / 16 * 16);

    RG_ASSERT(d_state <= RG_MAX_STATE && channels > 0);
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
