/* kv.c -- rotary embedding, and K and V into the state. */
#include "ops/cpu/reader.h"

#include <math.h> /* pow */

#include "ops/math.h"

/* The frequency of a pair in a variant of a rope; `base` is dynamic_base's. */
static double frequency(const rg_rope *rope, int variant, double base, int pair)
{
    if (rope->original)
        return variant ? (double)(float)(1.0 / pow(base, (double)pair / rope->n_pairs)) : (double)rope->inv_freq[pair];
    return (double)rope[variant].inv_freq[pair];
}

static double dynamic_base(const rg_rope *rope, int variant)
{
    double d = 2.0 * rope->n_pairs, length = (double)rope->original + variant;

    if (!rope->original || !variant)
        return 0;
    return rope->theta * pow(rope->stretch * length / rope->original - (rope->stretch - 1), d / (d - 2));
}

/* Cosines, then sines, of one row under one variant of a rope.  Kept from operation to operation and layer to layer: a
 * row is one chunk, so in a phase only one thread looks at its entry.  A step uses one variant of a rope for a row, so
 * another variant's entry is the one to replace. */
static const float *angles(rg_cpu_reader *r, const rg_rope *rope, int row, rg_rope_row want)
{
    size_t rows = (size_t)r->sizes.max_rows;
    size_t width = ((size_t)r->sizes.max_head_dim + 31) / 32 * 32; /* fits: max_head_dim is an int */
    size_t at = (size_t)row, pick = at;
    const rg_rope *one = rope->original ? rope : rope + want.variant;
    double base;
    float *v;

    for (int i = 0; i < RG_ROPES; i++, at += rows) {
        const rg_rope_row *have = &r->rope_rows[at];

        if (have->rope == rope && have->variant == want.variant && have->pos == want.pos)
            return r->rope_values + at * width;
        if (!have->rope || have->rope == rope)
            pick = at;
    }
    v = r->rope_values + pick * width;
    base = dynamic_base(rope, want.variant);
    for (int i = 0; i < one->n_pairs; i++) {
        double sine, cosine;

        rg_sincos((double)want.pos * frequency(rope, want.variant, base, i), &sine, &cosine);
        v[i] = (float)(cosine * (double)one->factor);
        v[one->n_pairs + i] = (float)(sine * (double)one->factor);
    }
    r->rope_rows[pick] = want;
    return v;
}

void rg_cpu_rotate(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_act *x = op->out[0];
    const rg_span *span = f->batch->spans;
    const int32_t furthest = op->y > 0 ? (int32_t)op->y : INT32_MAX;
    int n = op->rope->n_pairs, last = op->rope->original ? INT32_MAX : rg_max(op->rope->n_variants, 1) - 1;

    RG_ASSERT(x->rows <= r->sizes.max_rows && 2 * n <= r->sizes.max_head_dim);
    for (int row; (row = rg_chunk_next(f, x->rows)) >= 0;) {
        float *head = rg_act_row(f, x, row) + (int)op->x;
        const float *v;

        while (row >= span->first_row + span->n_rows) /* rows come in rising order */
            span++;
        v = angles(r, op->rope, row,
                   (rg_rope_row){ op->rope, rg_min(span->rope, last), rg_min(f->batch->pos[row][0], furthest) });
        for (int i = 0; i < x->cols; i += op->n)
            r->cpu->rotate(head + i, v, v + n, n, op->rope->interleaved);
    }
    rg_phase_done(f);
}

/* ---- into the state ---------------------------------------------------------------------------------------------- */

enum {
    ROWS = 64, /* of a chunk: of one head, so that threads seldom write to one cache line; */
    FEW_ROWS = 4, /* of all heads, where there are so few */
    SOON = 4,  /* rows from now */
    LINE = 16, /* positions of a dimension on a cache line, of f32 */
};

static void store_row(const rg_cpu *cpu, const rg_kv *kv, rg_kv_place to, int head, const float *k, const float *v)
{
    int n_k = rg_kv_k_values(kv), n_v = rg_kv_v_values(kv);

    cpu->store(to.k, to.k_scales, kv->type, rg_kv_k_stride(kv), k + (size_t)head * (size_t)n_k, n_k);
    cpu->store(to.v, to.v_scales, kv->type, 1, v + (size_t)head * (size_t)n_v, n_v);
}

/* What many positions from `to` on will be written to: each dimension of a key is on a line of its own, and stores wait
 * for one line after the other. */
static void fetch_keys(const rg_kv *kv, rg_kv_place to)
{
    const size_t stride = rg_kv_k_stride(kv) * rg_format_of(kv->type)->block_bytes;

    for (int d = 0; d < kv->k_dim && !kv->latent; d++)
        __builtin_prefetch(to.k + (size_t)d * stride, 1);
}

/* One head's part of a later row of an input, of n values: a short run far from the row before. */
static void fetch_row(const rg_fwd *f, const rg_act *x, int row, int head, int n)
{
    for (int i = 0; row < x->rows && i < n; i += 16)
        __builtin_prefetch(rg_act_row(f, x, row) + (size_t)head * (size_t)n + i);
}

static int slot_of(const rg_batch *b, int row)
{
    return b->slot ? b->slot[row] : b->index[row];
}

static uint8_t *part_at(const rg_fwd *f, const rg_kv *kv, const rg_span *span, int slot)
{
    const rg_group_memory *memory = &rg_cpu_fwd_of(f)->groups[kv->group];
    int block = span->tables[kv->group][slot / RG_BLOCK];

    RG_ASSERT(block >= 0);
    return memory->data + (size_t)block * memory->block_bytes + kv->offset;
}

/* Blocks whose last position was stored in this step are whole, unless they hold a tree: then what is made here is
 * never read.  A block of drafts may be filled, and closed, again. */
static void close_blocks(rg_cpu_reader *r, rg_fwd *f, const rg_kv *kv, const rg_kv *open)
{
    const rg_batch *b = f->batch;
    const int heads = kv->latent ? 1 : kv->n_heads;
    int n = 0, i = 0, s = 0, row = -1;

    for (int k = 0; k < b->n_rows; k++)
        n += slot_of(b, k) % RG_BLOCK == RG_BLOCK - 1;
    for (int c; n && (c = rg_chunk_next(f, heads * n)) >= 0;) {
        for (; i <= c / heads; i += slot_of(b, row) % RG_BLOCK == RG_BLOCK - 1) /* chunks come in rising order */
            row++;
        while (row >= b->spans[s].first_row + b->spans[s].n_rows)
            s++;
        r->cpu->close(kv, c % heads, part_at(f, open, &b->spans[s], slot_of(b, row)),
                      part_at(f, kv, &b->spans[s], slot_of(b, row)));
    }
    if (n)
        rg_phase_done(f);
}

/* One head of a row; the chunk has `left` rows from this one on. */
static void store_head(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, const rg_kv *kv, uint8_t *part, int row, int head,
                       int left)
{
    const int at = slot_of(f->batch, row) % RG_BLOCK;
    const rg_kv_place to = rg_kv_at(kv, part, head, at);

    if (at % LINE == 0 && left >= LINE / 2)
        fetch_keys(kv, to);
    fetch_row(f, op->in[0], row + SOON, head, rg_kv_k_values(kv));
    fetch_row(f, op->in[1], row + SOON, head, rg_kv_v_values(kv));
    store_row(r->cpu, kv, to, head, rg_act_row(f, op->in[0], row), rg_act_row(f, op->in[1], row));
}

void rg_cpu_kv_store(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_batch *b = f->batch;
    const rg_kv open = rg_kv_open(op->kv);
    int heads = op->kv->latent ? 1 : op->kv->n_heads, n_blocks = rg_ceil_div(b->n_rows, ROWS);
    int at_once = b->n_rows <= FEW_ROWS ? heads : 1, cuts = heads / at_once;

    for (int c; (c = rg_chunk_next(f, cuts * n_blocks)) >= 0;) {
        int row = c / cuts * ROWS, end = rg_min(b->n_rows, row + ROWS), s = 0, first = c % cuts;

        for (; row < end; row++) {
            while (row >= b->spans[s].first_row + b->spans[s].n_rows)
                s++;
            uint8_t *part = part_at(f, &open, &b->spans[s], slot_of(b, row));
            for (int h = first; h < first + at_once; h++)
                store_head(r, f, op, &open, part, row, h, end - row);
        }
    }
    rg_phase_done(f);
    if (rg_kv_has_open(op->kv))
        close_blocks(r, f, op->kv, &open);
}
