/* attention.c -- softmax(q k) v over paged keys, and its latent form.
 *
 * A row walks its keys in blocks of 64, aligned to places in the sequence, and in segments of 1,024: each segment's sum
 * starts from nothing and is merged into the row's in order.  So a row has the same bits alone or in a batch, and
 * however the prompt is cut.  When few rows see many keys, segments are shared out among threads and merged in a second
 * phase, with the same operations in the same order.
 *
 * A chunk is a tile of rows times some heads of one kv head: its items.  All items visit a block while it is near.  A
 * row of a draft tree sees its ancestors through a list of slots: the blocks that hold them are gathered into scratch
 * in logical order, so that its sum has the shape it would have alone.
 *
 * With attention sparsity a query passes over a block whose weights are all below a threshold (kernels.h), beside the
 * largest of its scores in the segment so far and of those in the block of the first keys, which in many models hold
 * most of the weight ("sinks").  Segments know no more of each other, so that threads can share them out. */
#include "ops/cpu/reader.h"

#include <string.h>

#include "ops/math.h"
#include "ops/kv4.h"

enum { HEADS = RG_PANEL, LINE = 64, SEGMENT_BLOCKS = RG_SEGMENT / RG_BLOCK, MANY_CHUNKS = 16 /* for each thread */ };

typedef struct plan {
    const rg_op *op;
    const rg_kv *kv;
    rg_kv open;      /* where a row's own block is read (kv.h); *kv but for q4 */
    size_t width;    /* floats between items */
    int per_kv;      /* query heads of a kv head */
    int heads, tile; /* heads and rows of a chunk */
    int n_head_chunks, n_tiles;
    int n_segments; /* that a chunk is cut into: 1 when it walks them all */
    float below;    /* as rg_attend has it */
} plan;

/* One chunk at work. */
typedef struct job {
    const plan *p;
    const rg_span *span;
    int row, n_rows;   /* of the batch */
    int head, n_heads; /* query heads */
    int kv_head;
    const rg_sight *sight;
    int last_block;    /* of the segment that is walked */
    rg_kv_place after; /* the first block of this thread's next chunk; k NULL: not known */
    rg_softmax total[RG_ITEMS_MAX], part[RG_ITEMS_MAX]; /* [row][head] */
    float top[RG_ITEMS_MAX]; /* of attention sparsity: the largest score in the first block; -inf: none is known */
    bool looks;              /* that is being found */
    const float *q[RG_ITEMS_MAX], *first_q[RG_ITEMS_MAX]; /* first_q: of the keys before n_first */
    float *k_block, *v_block; /* scratch of a gathered or widened block, one after the other; of latents: of each row
                               * its queries as columns, and a block */
} job;

/* The span, rows and kv head of a chunk. */
typedef struct chunk {
    const rg_span *span;
    int row, n_rows;
    int kv_head, group; /* and which of its groups of heads */
} chunk;

static int low_key(const plan *p, const rg_batch *b, int row)
{
    return rg_sight_low(p->op->attend->sight, b->index[row]);
}

static int end_key(const plan *p, const rg_batch *b, int row)
{
    return rg_sight_end(p->op->attend->sight, b->index[row], b->kv_end[row]);
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

static plan plan_of(const rg_cpu_reader *r, const rg_fwd *f, const rg_op *op)
{
    const rg_batch *b = f->batch;
    plan p = { .op = op, .kv = op->kv, .n_segments = 1,
               .below = f->attention_sparsity > 0.0f ? rg_logf(f->attention_sparsity) : 0.0f };
    int kv_heads = op->kv->latent ? 1 : op->kv->n_heads, keys = 0;
    size_t n_parts;

    RG_ASSERT(op->attend->n_heads <= r->sizes.max_heads && op->kv->k_dim <= r->sizes.max_head_dim &&
              op->kv->v_dim <= r->sizes.max_head_dim);
    p.open = rg_kv_open(op->kv);
    p.width = ((size_t)r->sizes.max_head_dim + 31) / 32 * 32; /* fits: max_head_dim is an int */
    p.per_kv = op->attend->n_heads / kv_heads;
    p.heads = rg_min(HEADS, p.per_kv);
    p.tile = RG_ITEMS_MAX / p.heads;
    if (op->kv->latent) /* so that k_block has room for columns */
        p.tile = rg_min(p.tile, RG_BLOCK / RG_PANEL);
    p.n_head_chunks = kv_heads * rg_ceil_div(p.per_kv, p.heads);
    for (int s = 0; s < b->n_spans; s++)
        p.n_tiles += rg_ceil_div(b->spans[s].n_rows, p.tile);
    for (int i = 0; i < b->n_rows; i++)
        keys = rg_max(keys, b->kv_end[i]);
    n_parts = (size_t)b->n_rows * (size_t)op->attend->n_heads * (size_t)rg_ceil_div(keys, RG_SEGMENT);
    if (keys > RG_SEGMENT && p.n_tiles * p.n_head_chunks < 4 * f->n_threads && n_parts <= r->n_partials)
        p.n_segments = rg_ceil_div(keys, RG_SEGMENT);
    return p;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* A layer's part of the block that holds a position; NULL: it was given back, since no row sees it. */
static uint8_t *part_of(const rg_fwd *f, const rg_kv *kv, const rg_span *span, int position)
{
    const rg_group_memory *memory = &rg_cpu_fwd_of(f)->groups[kv->group];
    int block = span->tables[kv->group][position / RG_BLOCK];

    return block < 0 ? NULL : memory->data + (size_t)block * memory->block_bytes + kv->offset;
}

static uint8_t *part_at(const rg_fwd *f, const rg_kv *kv, const job *j, int position)
{
    uint8_t *part = part_of(f, kv, j->span, position);

    RG_ASSERT(part);
    return part;
}

/* True if a row reads this block in its closed form. */
static bool is_closed(const rg_fwd *f, const plan *p, int row, int block)
{
    return rg_kv_has_open(p->kv) && f->batch->index[row] / RG_BLOCK != block;
}

/* Where a block's K and V begin, if it is there. */
static rg_kv_place place_of(const rg_fwd *f, const rg_kv *kv, const rg_span *span, int block, int kv_head)
{
    uint8_t *part = part_of(f, kv, span, block * RG_BLOCK);

    return part ? rg_kv_at(kv, part, kv_head, 0) : (rg_kv_place){ 0 };
}

/* First logical position that a row of a draft tree reaches through its list. */
static int tree_start(const rg_span *s)
{
    return s->start + s->n_rows - s->n_draft;
}

static int slot_of(const job *j, const int32_t *ancestors, int position)
{
    int first = tree_start(j->span);

    return ancestors && position >= first ? ancestors[position - first] : position;
}

/* What a gathered block would be once it is closed. */
static void round_block(const rg_kv *kv, rg_kv_place at)
{
    for (int d = 0; d < kv->k_dim; d++)
        kv4_round_row((float *)(void *)at.k + d * RG_BLOCK, RG_BLOCK);
    for (int i = 0; i < RG_BLOCK; i++)
        kv4_round_row((float *)(void *)at.v + i * kv->v_dim, kv->v_dim);
}

/* K and V of some positions of a block, through the list, into scratch as a block of one head.  A closed one is that of
 * this row's path alone, and made of all positions. */
static rg_kv_place gather(const rg_fwd *f, job *j, const int32_t *ancestors, int block, uint64_t seen, bool closed)
{
    const rg_kv *kv = &j->p->open;
    uint8_t *part = (uint8_t *)j->k_block;
    rg_kv one = *kv;

    one.n_heads = 1;
    RG_EACH_SEEN(i, closed ? ~0ull : seen) {
        int slot = slot_of(j, ancestors, block * RG_BLOCK + i);

        rg_kv_copy(kv, rg_kv_at(kv, part_at(f, kv, j, slot), j->kv_head, slot % RG_BLOCK), rg_kv_at(&one, part, 0, i));
    }
    if (closed)
        round_block(kv, rg_kv_at(&one, part, 0, 0));
    return rg_kv_at(&one, part, 0, 0);
}

/* Some latent positions of a block as f32; rows that nobody sees may hold anything. */
static void latent(const rg_cpu *cpu, const rg_fwd *f, job *j, const int32_t *ancestors, int block, uint64_t seen,
                   bool closed)
{
    const rg_kv *kv = closed && !ancestors ? j->p->kv : &j->p->open;

    RG_EACH_SEEN(i, seen) {
        int slot = slot_of(j, ancestors, block * RG_BLOCK + i);
        const rg_kv_place from = rg_kv_at(kv, part_at(f, kv, j, slot), 0, slot % RG_BLOCK);
        float *row = j->v_block + (size_t)i * (size_t)kv->k_dim;

        cpu->load(row, from.k, from.k_scales, kv->type, kv->v_dim);
        cpu->load(row + kv->v_dim, from.v, from.v_scales, kv->type, kv->k_dim - kv->v_dim);
        if (closed && ancestors) { /* closed forms of latents are made of a position alone */
            kv4_round_row(row, kv->v_dim);
            kv4_round_row(row + kv->v_dim, kv->k_dim - kv->v_dim);
        }
    }
}

/* The list through which a row reaches keys of a block; NULL: it needs none. */
static const int32_t *list_of(const rg_fwd *f, const job *j, int row, int block)
{
    return f->batch->ancestors && (block + 1) * RG_BLOCK > tree_start(j->span) ? f->batch->ancestors[row] : NULL;
}

/* Place k of a row's choice of keys. */
static int32_t chosen_at(const float *row, int k)
{
    int32_t place;

    memcpy(&place, row + k, sizeof place);
    return place;
}

/* The keys of a block among those that were chosen for a row. */
static uint64_t chosen_bits(const float *row, int n, int block)
{
    int32_t base = block * RG_BLOCK;
    int lo = 0, hi = n;
    uint64_t bits = 0;

    while (lo < hi) { /* the first at base or behind it */
        int middle = lo + (hi - lo) / 2;

        if (chosen_at(row, middle) < base)
            lo = middle + 1;
        else
            hi = middle;
    }
    for (; lo < n && chosen_at(row, lo) - base < RG_BLOCK; lo++)
        bits |= 1ull << (chosen_at(row, lo) - base);
    return bits;
}

/* The keys of a block that a query head of a row reads. */
static uint64_t seen(const rg_fwd *f, const job *j, int row, int head, int block)
{
    const rg_act *chosen = j->p->op->attend->chosen;
    uint64_t bits = rg_sight_bits(j->sight, j->head + head, f->batch->index[row], f->batch->kv_end[row], block);

    return bits && chosen ? bits & chosen_bits(rg_act_row(f, chosen, row), chosen->cols, block) : bits;
}

/* What this thread reads after a block as a row reads it, if that is of the same type. */
static rg_kv_place next_of(const rg_fwd *f, const job *j, int row, int block)
{
    if (block >= j->last_block)
        return rg_kv_has_open(j->p->kv) ? (rg_kv_place){ 0 } : j->after;
    if (is_closed(f, j->p, row, block) != is_closed(f, j->p, row, block + 1))
        return (rg_kv_place){ 0 };
    return place_of(f, j->p->kv, j->span, block + 1, j->kv_head);
}

/* What comes next is fetched by the first scores of a block. */
static void fetch_latents(const rg_kv *kv, rg_kv_place next, rg_attend *a)
{
    const size_t bytes = rg_kv_bytes(kv);

    if (!next.k)
        return;
    a->k_next = next.k;
    a->v_next = next.k + bytes / 2 / LINE * LINE;
    a->next_step = bytes / (size_t)kv->k_dim / LINE * LINE;
}

/* Latents have one kv head, whose query heads all see the same. */
static void find_latent(const rg_cpu *cpu, const rg_fwd *f, job *j, int row, int block, int *have, rg_attend *a)
{
    const bool through = list_of(f, j, row, block), closed = is_closed(f, j->p, row, block);
    const int wanted = 2 * block + closed;
    const rg_kv *kv = j->p->kv;
    uint64_t bits = a->seen;

    a->next_step = 0;
    if (!through && *have < 0)
        fetch_latents(kv, next_of(f, j, row, block), a);
    if (!through && kv->type != RG_I8 && kv->type != RG_Q4_1) { /* read where it lies */
        a->k = a->v = part_at(f, kv, j, block * RG_BLOCK);
        *have = wanted;
        return;
    }
    a->type = RG_F32;
    a->k = a->v = j->v_block;
    if (!through && *have == wanted)
        return;
    for (int i = 0; i < j->n_rows && !through; i++) /* all that any row of the tile sees */
        bits |= seen(f, j, j->row + i, 0, block);
    latent(cpu, f, j, through ? f->batch->ancestors[row] : NULL, block, bits, closed);
    *have = through ? -1 : wanted;
}

/* What comes next is fetched by scores and values; with attention sparsity by the scores, and of K alone, in halves:
 * V may not be needed. */
static void fetch_block(const rg_kv *kv, rg_kv_place next, rg_attend *a)
{
    a->k_next = next.k;
    a->v_next = next.v;
    a->k_scales_next = next.k_scales;
    a->v_scales_next = next.v_scales;
    if (!(a->below < 0.0f) && !a->looks)
        return;
    const uint8_t *k = next.k ? next.k : a->k;

    a->k_next = k;
    a->v_next = k + (size_t)kv->k_dim * (RG_BLOCK / RG_KV_RUN) * rg_kv_run_bytes(kv->type) / 2;
    a->k_scales_next = a->v_scales_next = next.k ? next.k_scales : a->k_scales;
}

/* Where a row's block lies, ready for attend.  `have`: what scratch holds for rows without a list: the number of the
 * block, of latents twice that, and one more if it is closed. */
static void find_block(const rg_cpu *cpu, const rg_fwd *f, job *j, int row, int block, int *have, rg_attend *a)
{
    const bool through = list_of(f, j, row, block), closed = is_closed(f, j->p, row, block);
    const rg_kv *kv = closed && !through ? j->p->kv : &j->p->open;

    a->type = kv->type;
    a->v_stride = kv->latent ? kv->k_dim : kv->type == RG_Q4_1 ? rg_kv_runs(kv->v_dim) * RG_KV_RUN : kv->v_dim;
    a->k = j->k_block;
    a->v = j->v_block;
    a->k_next = a->v_next = NULL;
    a->fetch_to_l1 = cpu->fetch_to_l1;
    if (kv->latent) {
        find_latent(cpu, f, j, row, block, have, a);
        return;
    }
    const rg_kv_place at = through ? gather(f, j, f->batch->ancestors[row], block, a->seen, closed)
                                   : rg_kv_at(kv, part_at(f, kv, j, block * RG_BLOCK), j->kv_head, 0);
    a->k = at.k;
    a->v = at.v;
    a->k_scales = at.k_scales;
    a->v_scales = at.v_scales;
    if (through) {
        *have = -1;
        return;
    }
    if (kv->type == RG_F32 || j->n_rows * j->n_heads < cpu->widen_from || a->below < 0.0f) {
        fetch_block(kv, next_of(f, j, row, block), a);
        return;
    }
    if (*have != block) /* made f32 once for all queries of the tile: exact, and cheaper than in every product */
        cpu->widen(j->k_block, j->v_block, a);
    *have = block;
    a->type = RG_F32;
    a->v_stride = kv->v_dim;
    a->k = j->k_block;
    a->v = j->v_block;
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

static void clear(rg_softmax *s, int v_dim)
{
    s->m = s->top = -__builtin_inff();
    s->l = 0.0f;
    memset(s->o, 0, (size_t)v_dim * sizeof(float));
}

/* How many rows from the i-th of the tile on see the same keys of a block in the same place; all heads do. */
static int rows_alike(const rg_fwd *f, const job *j, int i, int block, uint64_t bits)
{
    const int32_t *list = list_of(f, j, j->row + i, block);
    const bool closed = is_closed(f, j->p, j->row + i, block);
    int n = 1;

    while (i + n < j->n_rows && list_of(f, j, j->row + i + n, block) == list &&
           is_closed(f, j->p, j->row + i + n, block) == closed && seen(f, j, j->row + i + n, 0, block) == bits)
        n++;
    return n;
}

/* How many heads from the h-th of the chunk on always see the same. */
static int heads_alike(const job *j, int h)
{
    int n = 1;

    while (h + n < j->n_heads && rg_sight_alike(j->sight, j->head + h, j->head + h + n))
        n++;
    return n;
}

static float *columns_of(const job *j, int row)
{
    return j->k_block + (size_t)row * (size_t)j->p->kv->k_dim * RG_PANEL;
}

/* The queries of n rows of the tile read a block of latents. */
static void attend_latents(const rg_cpu *cpu, job *j, rg_attend *a, int row, int n)
{
    a->n = j->n_heads;
    for (int end = row + n; row < end; row++, a->next_step = 0) {
        a->columns = columns_of(j, row);
        cpu->attend(a, j->part + row * j->n_heads);
    }
}

/* Queries from the i-th item on read a block: keys before n_first by their queries for those, the others by q. */
static void attend_items(const rg_cpu *cpu, job *j, rg_attend *a, int i, int block)
{
    const int64_t n_first = (int64_t)j->p->op->attend->n_first - (int64_t)block * RG_BLOCK;
    const uint64_t all = a->seen, first = n_first <= 0 ? 0 : n_first < RG_BLOCK ? all & ((1ull << n_first) - 1) : all;

    if (first) {
        a->q = j->first_q + i;
        a->seen = first;
        cpu->attend(a, j->part + i);
    }
    a->q = j->q + i;
    a->seen = all & ~first;
    if (a->seen)
        cpu->attend(a, j->part + i);
}

static void walk_block(const rg_cpu *cpu, const rg_fwd *f, job *j, int block)
{
    const rg_attend_params *params = j->p->op->attend;
    rg_attend a = { .k_dim = j->p->kv->k_dim, .v_dim = j->p->kv->v_dim, .scale = params->scale, .cap = params->cap,
                    .below = j->p->below, .looks = j->looks };
    int have = -1;

    for (int i = 0, n; i < j->n_rows; i += n) {
        n = 1;
        for (int h = 0, m; h < j->n_heads; h += m) {
            m = heads_alike(j, h);
            a.seen = seen(f, j, j->row + i, h, block);
            if (!a.seen)
                continue;
            n = m == j->n_heads ? rows_alike(f, j, i, block, a.seen) : 1;
            find_block(cpu, f, j, j->row + i, block, &have, &a);
            a.n = n * m;
            if (j->p->kv->latent)
                attend_latents(cpu, j, &a, i, n);
            else
                attend_items(cpu, j, &a, i * j->n_heads + h, block);
        }
    }
}

/* Attention sparsity: find the largest score of each item in the first block, for the segments after the first. */
static void look_at_first(const rg_cpu *cpu, const rg_fwd *f, job *j)
{
    for (int i = 0; i < j->n_rows * j->n_heads; i++)
        clear(&j->part[i], j->p->kv->v_dim);
    j->looks = true;
    j->last_block = 0;
    walk_block(cpu, f, j, 0);
    j->looks = false;
    for (int i = 0; i < j->n_rows * j->n_heads; i++)
        j->top[i] = j->part[i].top;
}

/* part = this segment's sums of all items. */
static void walk_segment(const rg_cpu *cpu, const rg_fwd *f, job *j, int segment)
{
    int lo = INT32_MAX, hi = 0;

    for (int i = 0; i < j->n_rows * j->n_heads; i++) {
        clear(&j->part[i], j->p->kv->v_dim);
        if (segment > 0)
            j->part[i].top = j->top[i];
    }
    for (int i = 0; i < j->n_rows; i++) {
        lo = rg_min(lo, low_key(j->p, f->batch, j->row + i));
        hi = rg_max(hi, end_key(j->p, f->batch, j->row + i));
    }
    lo = rg_max(lo / RG_BLOCK, segment * SEGMENT_BLOCKS);
    hi = rg_min(rg_ceil_div(hi, RG_BLOCK), (segment + 1) * SEGMENT_BLOCKS);
    j->last_block = hi - 1;
    for (int block = lo; block < hi; block++)
        walk_block(cpu, f, j, block);
}

/* Put a sink into a row's softmax: one more score, whose value is 0. */
static void add_sink(const rg_cpu *cpu, rg_softmax *s, float sink, int v_dim)
{
    const float m = sink > s->m ? sink : s->m;
    const float c = s->m == -__builtin_inff() ? 0.0f : rg_expf(s->m - m);

    if (sink == -__builtin_inff())
        return;
    s->l = __builtin_fmaf(s->l, c, rg_expf(sink - m));
    cpu->scale(s->o, s->o, c, v_dim);
    s->m = m;
}

/* y = o / l, or 0 where nothing was seen. */
static void finish(const rg_cpu *cpu, const rg_fwd *f, const rg_op *op, int row, int head, rg_softmax *s)
{
    if (op->w[0])
        add_sink(cpu, s, op->w[0]->vec[head], op->kv->v_dim);

    float *y = rg_act_row(f, op->out[0], row) + (size_t)head * (size_t)op->kv->v_dim;

    cpu->scale(y, s->o, s->l > 0.0f ? 1.0f / s->l : 0.0f, op->kv->v_dim);
}

static float *partial_at(const rg_cpu_reader *r, const plan *p, int row, int head, int segment)
{
    size_t i = ((size_t)row * (size_t)p->op->attend->n_heads + (size_t)head) * (size_t)p->n_segments + (size_t)segment;

    return r->partials + i * (p->width + RG_PANEL);
}

/* A latent query becomes a column: the latent part, then the rotated one. */
static void put_column(const rg_fwd *f, const plan *p, int row, int head, float *column)
{
    const rg_kv *kv = p->kv;
    size_t h = (size_t)head, v_dim = (size_t)kv->v_dim, rest = (size_t)(kv->k_dim - kv->v_dim);
    /* Columns of a head, the rotated part last. */
    size_t each = (size_t)(p->op->in[1]->cols / p->op->attend->n_heads);

    const float *latent = rg_act_row(f, p->op->in[0], row) + h * v_dim;
    const float *rotated = rg_act_row(f, p->op->in[1], row) + (h + 1) * each - rest;

    for (size_t d = 0; d < v_dim; d++)
        column[d * RG_PANEL] = latent[d];
    for (size_t d = 0; d < rest; d++)
        column[(v_dim + d) * RG_PANEL] = rotated[d];
}

/* The queries of the i-th item. */
static void find_query(const rg_fwd *f, job *j, int i)
{
    const plan *p = j->p;
    const rg_act *first_q = p->op->attend->first_q;
    int row = j->row + i / j->n_heads, head = j->head + i % j->n_heads;
    size_t at = (size_t)head * (size_t)p->kv->k_dim;

    if (p->kv->latent) {
        put_column(f, p, row, head, columns_of(j, i / j->n_heads) + i % j->n_heads);
        return;
    }
    j->q[i] = rg_act_row(f, p->op->in[0], row) + at;
    j->first_q[i] = first_q ? rg_act_row(f, first_q, row) + at : j->q[i];
}

static chunk chunk_at(const rg_fwd *f, const plan *p, int c)
{
    int tile = c / p->n_head_chunks, hc = c % p->n_head_chunks, per_kv = rg_ceil_div(p->per_kv, p->heads);
    const rg_span *s = f->batch->spans;

    if (p->n_tiles == f->batch->n_spans) { /* one each */
        s += tile;
        tile = 0;
    }
    for (; tile >= rg_ceil_div(s->n_rows, p->tile); s++)
        tile -= rg_ceil_div(s->n_rows, p->tile);
    return (chunk){ .span = s, .row = s->first_row + tile * p->tile,
                    .n_rows = rg_min(p->tile, s->n_rows - tile * p->tile), .kv_head = hc / per_kv,
                    .group = hc % per_kv };
}

/* scratch: two rows per item, then a block's K and V.  Lanes of columns without a query are 0. */
static void job_init(const rg_cpu_reader *r, const rg_fwd *f, const plan *p, const chunk *c, job *j)
{
    float *scratch = rg_cpu_scratch(r, f);

    j->p = p;
    j->sight = p->op->attend->sight;
    j->span = c->span;
    j->row = c->row;
    j->n_rows = c->n_rows;
    j->kv_head = c->kv_head;
    j->head = j->kv_head * p->per_kv + c->group * p->heads;
    j->after = (rg_kv_place){ 0 };
    j->looks = false;
    j->n_heads = rg_min(p->heads, (j->kv_head + 1) * p->per_kv - j->head);
    j->k_block = scratch + RG_ITEMS_MAX * (2 * p->width + RG_ITEM_GAP);
    j->v_block = j->k_block + RG_BLOCK * p->width;
    if (p->kv->latent && j->n_heads < RG_PANEL)
        memset(j->k_block, 0, (size_t)j->n_rows * (size_t)p->kv->k_dim * RG_PANEL * sizeof(float));
    for (int i = 0; i < j->n_rows * j->n_heads; i++, scratch += 2 * p->width + RG_ITEM_GAP) {
        j->total[i].o = scratch;
        j->part[i].o = scratch + p->width;
        clear(&j->total[i], p->kv->v_dim);
        j->top[i] = -__builtin_inff();
        find_query(f, j, i);
    }
}

/* The first block that a chunk sees from a segment on, if it sees all of it. */
static rg_kv_place first_block(const rg_fwd *f, const plan *p, const chunk *c, int segment)
{
    int block = rg_max(low_key(p, f->batch, c->row) / RG_BLOCK, segment * SEGMENT_BLOCKS);

    if (rg_kv_has_open(p->kv) || f->batch->kv_end[c->row] < (block + 1) * RG_BLOCK)
        return (rg_kv_place){ 0 };
    return place_of(f, p->kv, c->span, block, c->kv_head);
}

/* A chunk, and after it this thread's next one (NULL: not known). */
static void attend_whole(rg_cpu_reader *r, const rg_fwd *f, const plan *p, const chunk *c, const chunk *next)
{
    job j;
    int lo = INT32_MAX, hi = 0;

    job_init(r, f, p, c, &j);
    if (next)
        j.after = first_block(f, p, next, 0);
    for (int i = 0; i < j.n_rows; i++) {
        lo = rg_min(lo, low_key(p, f->batch, j.row + i));
        hi = rg_max(hi, end_key(p, f->batch, j.row + i));
    }
    if (p->below < 0.0f && hi > RG_SEGMENT)
        look_at_first(r->cpu, f, &j);
    for (int s = lo / RG_SEGMENT; s < rg_ceil_div(hi, RG_SEGMENT); s++) {
        walk_segment(r->cpu, f, &j, s);
        for (int i = 0; i < j.n_rows * j.n_heads; i++)
            r->cpu->merge(&j.total[i], &j.part[i], p->kv->v_dim);
    }
    for (int i = 0; i < j.n_rows * j.n_heads; i++)
        finish(r->cpu, f, p->op, j.row + i / j.n_heads, j.head + i % j.n_heads, &j.total[i]);
}

/* The first block of the segment that comes as many later as there are threads: probably this thread's next. */
static rg_kv_place probably_next(const rg_fwd *f, const plan *p, int c)
{
    const int next = c + f->n_threads;

    if (next >= p->n_tiles * p->n_head_chunks * p->n_segments)
        return (rg_kv_place){ 0 };
    const chunk at = chunk_at(f, p, next / p->n_segments);
    return first_block(f, p, &at, next % p->n_segments);
}

static void attend_one_segment(rg_cpu_reader *r, const rg_fwd *f, const plan *p, int c)
{
    const chunk at = chunk_at(f, p, c / p->n_segments);
    job j;
    int segment = c % p->n_segments;

    job_init(r, f, p, &at, &j);
    j.after = probably_next(f, p, c);
    if (p->below < 0.0f && segment > 0)
        look_at_first(r->cpu, f, &j);
    walk_segment(r->cpu, f, &j, segment);
    for (int i = 0; i < j.n_rows * j.n_heads; i++) {
        float *to = partial_at(r, p, j.row + i / j.n_heads, j.head + i % j.n_heads, segment);

        to[0] = j.part[i].m;
        to[1] = j.part[i].l;
        memcpy(to + RG_PANEL, j.part[i].o, (size_t)p->kv->v_dim * sizeof(float));
    }
}

static void merge_segments(rg_cpu_reader *r, const rg_fwd *f, const plan *p, int row, int head)
{
    rg_softmax total = { .o = rg_cpu_scratch(r, f) };

    clear(&total, p->kv->v_dim);
    for (int s = 0; s < p->n_segments; s++) {
        float *from = partial_at(r, p, row, head, s);
        rg_softmax part = { .m = from[0], .l = from[1], .o = from + RG_PANEL };

        r->cpu->merge(&total, &part, p->kv->v_dim);
    }
    finish(r->cpu, f, p->op, row, head, &total);
}

static bool take(rg_fwd *f, const plan *p, chunk *out)
{
    int c = rg_chunk_next(f, p->n_tiles * p->n_head_chunks);

    if (c >= 0)
        *out = chunk_at(f, p, c);
    return c >= 0;
}

/* Where there are many chunks, a thread takes its next one before it works on the present one. */
static void attend_chunks(rg_cpu_reader *r, rg_fwd *f, const plan *p)
{
    bool many = p->n_tiles * p->n_head_chunks >= MANY_CHUNKS * f->n_threads;
    chunk at, next = { 0 };

    for (bool more = take(f, p, &at); more; at = next) {
        bool known = many && take(f, p, &next);

        attend_whole(r, f, p, &at, known ? &next : NULL);
        more = many ? known : take(f, p, &next);
    }
}

void rg_cpu_attention(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    plan p = plan_of(r, f, op);

    if (p.n_segments == 1) {
        attend_chunks(r, f, &p);
        rg_phase_done(f);
        return;
    }
    for (int c; (c = rg_chunk_next(f, p.n_tiles * p.n_head_chunks * p.n_segments)) >= 0;)
        attend_one_segment(r, f, &p, c);
    rg_phase_done(f);
    for (int c; (c = rg_chunk_next(f, f->batch->n_rows * op->attend->n_heads)) >= 0;)
        merge_segments(r, f, &p, c / op->attend->n_heads, c % op->attend->n_heads);
    rg_phase_done(f);
}
