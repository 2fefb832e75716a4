/* linear_attention.c -- linear recurrences with matrix states, row after row, and what a sequence keeps of them.
 *
 * A head's state lies in tiles of RG_STATE_TILE columns, each [k_dim][columns of the tile], so that a tile stays in L1
 * while RG_RECUR_ROWS rows go over it.  Columns never meet: threads share spans, heads and tiles, and a row's result
 * does not depend on how many rows there are.
 *
 * Drafts are treated as in recurrent.c: the state in the slot is the one after the last committed row; draft rows run
 * on a copy of each tile, and their inputs are logged in a phase of their own, after everyone has folded in the
 * accepted ones of the step before. */
#include "ops/cpu/kept.h"

#include <string.h>

enum { CHUNKS_PER_THREAD = 3, K = 1, V, DECAY, BETA, A, B, N_IN /* operands, as the operation lists them */ };

/* Rows of one operand: in an activation, or in the log. */
typedef struct operand {
    const float *at; /* NULL: there is none */
    size_t ld;
    int cols;
} operand;

/* Rows of one sequence, and the head that is computed. */
typedef struct rows {
    const rg_linear_attention_params *p;
    const float *fixed_decay, *skip; /* [n_heads], or NULL */
    operand in[N_IN]; /* by number: q first */
    operand y;        /* none: only the state advances */
    int head;
} rows;

/* The part of row i that the head reads, of an operand whose heads have so many columns. */
static const float *part(const rows *r, int which, int i, int cols)
{
    const operand *x = &r->in[which];
    int m = x->at ? x->cols / cols : 1, head = r->p->interleaved ? r->head % m : r->head / (r->p->n_heads / m);

    return x->at ? x->at + (size_t)i * x->ld + (size_t)head * (size_t)cols : NULL;
}

/* An activation from one of its rows on. */
static operand operand_of(const rg_fwd *f, const rg_act *a, int row)
{
    if (!a)
        return (operand){ 0 };
    return (operand){ .at = rg_act_row(f, a, row), .ld = rg_act_stride(f, a), .cols = a->cols };
}

/* The same operands as they lie in the log, one after the other; q is not there. */
static void in_log(const kept *k, const operand *now, operand *before)
{
    const float *at = k->log;

    for (int i = K; at && i < N_IN; i++)
        if (now[i].at) {
            before[i] = (operand){ .at = at, .ld = k->ld, .cols = now[i].cols };
            at += now[i].cols;
        }
}

static void fill(float *x, float value, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = value;
}

/* Row i as the kernels want it; what has to be made for it goes to scratch, 2 k_dim floats. */
static rg_recurrence_row row_of(const rg_cpu *cpu, const rows *r, int i, float *scratch)
{
    const rg_linear_attention_params *p = r->p;
    const bool per_head = !r->in[DECAY].at || r->in[DECAY].cols == p->n_heads;
    rg_recurrence_row row = { .k = part(r, K, i, p->k_dim), .v = part(r, V, i, p->v_dim), .beta = 1.0f,
                              .decay = scratch, .skip = r->skip ? r->skip[r->head] : 0.0f };

    if (!per_head)
        row.decay = part(r, DECAY, i, p->k_dim);
    else if (r->in[DECAY].at)
        fill(scratch, *part(r, DECAY, i, 1), p->k_dim);
    else
        fill(scratch, r->fixed_decay ? r->fixed_decay[r->head] : 1.0f, p->k_dim);
    if (r->in[BETA].at)
        row.beta = *part(r, BETA, i, 1);
    row.a = part(r, A, i, p->k_dim);
    row.b = part(r, B, i, p->k_dim);
    if (p->delta) {
        float *b = scratch + p->k_dim;

        memcpy(b, row.k, (size_t)p->k_dim * sizeof *b);
        cpu->mul(b, row.decay, p->k_dim);
        row.b = b;
    }
    if (r->y.at) {
        row.q = part(r, 0, i, p->k_dim);
        row.y = (float *)(uintptr_t)r->y.at + (size_t)i * r->y.ld + (size_t)r->head * (size_t)p->v_dim;
    }
    return row;
}

/* Where tile t of a head's state begins. */
static float *tile_of(const rg_linear_attention_params *p, float *state, int t)
{
    return state + (size_t)t * RG_STATE_TILE * (size_t)p->k_dim;
}

static int tile_cols(const rg_linear_attention_params *p, int t)
{
    return rg_min(RG_STATE_TILE, p->v_dim - t * RG_STATE_TILE);
}

/* Rows [first, first + n) over tiles [tile, end), which begin at s. */
static void go_over(const rg_cpu *cpu, const rows *r, int first, int n, float *s, int tile, int end, float *scratch)
{
    const rg_linear_attention_params *p = r->p;
    rg_recurrence_row row[RG_RECUR_ROWS];

    for (int i = 0, some; i < n; i += some) {
        some = rg_min(n - i, RG_RECUR_ROWS);
        for (int k = 0; k < some; k++)
            row[k] = row_of(cpu, r, first + i + k, scratch + (size_t)k * 2 * (size_t)p->k_dim);
        for (int t = tile; t < end; t++)
            cpu->recur(&(rg_recurrence){ .s = tile_of(p, s, t - tile),
                                         .k_dim = p->k_dim,
                                         .first = t * RG_STATE_TILE,
                                         .cols = tile_cols(p, t),
                                         .n_rows = some,
                                         .scale = p->scale,
                                         .row = row });
    }
}

/* Tiles [tile, end) of one head of one span. */
static void head_span(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, const rg_span *s, int head, int tile, int end)
{
    const rg_linear_attention_params *p = op->recurrence;
    kept k = kept_of(f, op->buffer, s);
    float *scratch = rg_cpu_scratch(r, f), *copy = scratch + (size_t)2 * RG_RECUR_ROWS * (size_t)p->k_dim;
    float *at = tile_of(p, k.at + (size_t)head * (size_t)p->k_dim * (size_t)p->v_dim, tile);
    int committed = s->n_rows - s->n_draft;
    rows now = { .p = p, .head = head }, before = now;

    now.fixed_decay = before.fixed_decay = op->w[0] ? op->w[0]->vec : NULL;
    now.skip = op->w[1] ? op->w[1]->vec : NULL;
    now.y = operand_of(f, op->out[0], s->first_row);
    for (int i = 0; i < N_IN; i++)
        now.in[i] = operand_of(f, op->in[i], s->first_row);
    in_log(&k, now.in, before.in);
    for (int t = tile; t < end && rg_span_is_fresh(s); t++)
        memset(tile_of(p, at, t - tile), 0, (size_t)(p->k_dim * tile_cols(p, t)) * sizeof(float));
    go_over(r->cpu, &before, 0, s->n_replay, at, tile, end, scratch);
    go_over(r->cpu, &now, 0, committed, at, tile, end, scratch);
    for (int t = tile; t < end && s->n_draft; t++) {
        memcpy(copy, tile_of(p, at, t - tile), (size_t)(p->k_dim * tile_cols(p, t)) * sizeof(float));
        go_over(r->cpu, &now, committed, s->n_draft, copy, t, t + 1, scratch);
    }
}

/* Put the inputs of a span's draft rows into the log. */
static void log_drafts(rg_fwd *f, const rg_op *op, const rg_span *s)
{
    kept k = kept_of(f, op->buffer, s);
    int first = s->first_row + s->n_rows - s->n_draft;

    for (int i = 0; i < s->n_draft; i++) {
        float *to = logged(&k, i);

        for (int which = K; which < N_IN; which++)
            if (op->in[which]) {
                memcpy(to, rg_act_row(f, op->in[which], first + i), (size_t)op->in[which]->cols * sizeof(float));
                to += op->in[which]->cols;
            }
    }
}

/* A chunk is several tiles of one span, so that what is made for a row is made for few of them again. */
void rg_cpu_linear_attention(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_batch *b = f->batch;
    const rg_linear_attention_params *p = op->recurrence;
    int tiles = rg_ceil_div(p->v_dim, RG_STATE_TILE), all = p->n_heads * tiles, n_draft = 0;
    int per_span = rg_min(all, rg_ceil_div((int64_t)f->n_threads * CHUNKS_PER_THREAD, b->n_spans));
    int each = rg_ceil_div(all, per_span);

    RG_ASSERT(p->k_dim <= RG_MAX_STATE);
    for (int c; (c = rg_chunk_next(f, per_span * b->n_spans)) >= 0;) {
        int at = c % per_span * each, end = rg_min(all, at + each);

        for (int next; at < end; at = next) {
            int head = at / tiles;

            next = rg_min(end, (head + 1) * tiles);
            head_span(r, f, op, &b->spans[c / per_span], head, at - head * tiles, next - head * tiles);
        }
    }
    rg_fwd_barrier(f);
    for (int i = 0; i < b->n_spans; i++)
        n_draft += b->spans[i].n_draft;
    if (!n_draft)
        return;
    for (int c; (c = rg_chunk_next(f, b->n_spans)) >= 0;)
        log_drafts(f, op, &b->spans[c]);
    rg_fwd_barrier(f);
}
