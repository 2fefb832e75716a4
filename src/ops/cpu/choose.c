/* choose.c -- rows that are kept per position, and the keys that an indexer chooses among them.
 *
 * A row's choice is a set that its scores determine: keys are offered in rising order to a heap of the best so far,
 * whose top is the worst of them, and a key enters only if it scores better than that; so of equals the first stay.  A
 * row that sees no more keys than it may choose takes all and scores none.  When few rows see many keys, segments of
 * them are scored by all threads first. */
#include "ops/cpu/reader.h"

#include <string.h>

enum { STORE_ROWS = 64, SEGMENT_BLOCKS = RG_SEGMENT / RG_BLOCK, FEW_ROWS = 4 /* for each thread */ };

/* The row of a buffer at a slot of a span's sequence; and its scales, where the type has some. */
static uint8_t *row_at(const rg_fwd *f, const rg_buffer *b, const rg_span *s, int slot)
{
    const rg_group_memory *memory = &rg_cpu_fwd_of(f)->groups[b->group];
    int32_t block = s->tables[b->group][slot / RG_BLOCK];

    RG_ASSERT(block >= 0);
    return memory->data + (size_t)block * memory->block_bytes + b->offset + (size_t)(slot % RG_BLOCK) * b->bytes;
}

static uint16_t *scales_of(const rg_buffer *b, uint8_t *row)
{
    return b->type == RG_I8 ? (uint16_t *)(void *)(row + rg_rows_scales_at(b->values)) : NULL;
}

static const rg_span *span_of(const rg_batch *b, const rg_span *s, int row)
{
    for (s = s ? s : b->spans; row >= s->first_row + s->n_rows; s++)
        ;
    return s;
}

void rg_cpu_rows_store(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_batch *b = f->batch;

    for (int c; (c = rg_chunk_next(f, rg_ceil_div(b->n_rows, STORE_ROWS))) >= 0;) {
        const rg_span *s = NULL;

        for (int row = c * STORE_ROWS; row < rg_min(b->n_rows, (c + 1) * STORE_ROWS); row++) {
            s = span_of(b, s, row);
            uint8_t *to = row_at(f, op->buffer, s, b->slot ? b->slot[row] : b->index[row]);

            r->cpu->store(to, scales_of(op->buffer, to), op->buffer->type, 1, rg_act_row(f, op->in[0], row),
                          op->buffer->values);
        }
    }
    rg_fwd_barrier(f);
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* A key as f32: where it lies, or in `room`. */
static const float *key_at(const rg_cpu *cpu, const rg_buffer *b, uint8_t *row, float *room)
{
    if (b->type == RG_F32)
        return (const float *)(const void *)row;
    cpu->load(room, row, scales_of(b, row), b->type, b->values);
    return room;
}

/* Scores of keys [64 block, end), up to a whole block, for a row. */
static void score_block(const rg_cpu_reader *r, const rg_fwd *f, const rg_op *op, int row, int block, float *score)
{
    float *room = rg_cpu_scratch(r, f) + 2 * RG_MAX_CHOSEN; /* behind the heap: of a block's keys */
    const int k_dim = op->buffer->values;
    const rg_batch *b = f->batch;
    const rg_span *s = span_of(b, NULL, row);
    const int32_t *ancestors = b->ancestors ? b->ancestors[row] : NULL;
    const int base = block * RG_BLOCK, tree = s->start + s->n_rows - s->n_draft; /* from there on through the list */
    const float *keys[RG_BLOCK];
    rg_index x = { .q = rg_act_row(f, op->in[0], row), .weights = rg_act_row(f, op->in[1], row), .n_heads = op->n,
                   .k_dim = k_dim, .keys = keys, .n = rg_min(RG_BLOCK, b->kv_end[row] - base) };

    for (int i = 0; i < x.n; i++) {
        int place = base + i;

        keys[i] = key_at(r->cpu, op->buffer,
                         row_at(f, op->buffer, s, ancestors && place >= tree ? ancestors[place - tree] : place),
                         room + (size_t)i * (size_t)k_dim);
    }
    r->cpu->index_scores(score, &x);
}

/* ---- the best of them -------------------------------------------------------------------------------------------- */

typedef struct key_score {
    float score;
    int32_t place;
} key_score;

typedef bool goes_up(const key_score *a, const key_score *b);

static bool is_worse(const key_score *a, const key_score *b)
{
    return a->score < b->score || (a->score == b->score && a->place > b->place);
}

static bool is_later(const key_score *a, const key_score *b)
{
    return a->place > b->place;
}

/* Element i of a heap of n moves down to where it belongs. */
static void sift(key_score *heap, int n, int i, goes_up *up)
{
    for (int child; (child = 2 * i + 1) < n; i = child) {
        key_score moved = heap[i];

        child += child + 1 < n && up(&heap[child + 1], &heap[child]);
        if (!up(&heap[child], &moved))
            return;
        heap[i] = heap[child];
        heap[child] = moved;
    }
}

static void make_heap(key_score *heap, int n, goes_up *up)
{
    for (int i = n / 2 - 1; i >= 0; i--)
        sift(heap, n, i, up);
}

/* Keys [first, first + n), all before them having been offered. */
static void offer(key_score *heap, int most, int first, const float *score, int n)
{
    for (int i = 0; i < n; i++) {
        const key_score one = { score[i], first + i };

        if (one.place < most) {
            heap[one.place] = one;
            if (one.place == most - 1)
                make_heap(heap, most, is_worse);
        } else if (is_worse(&heap[0], &one)) {
            heap[0] = one;
            sift(heap, most, 0, is_worse);
        }
    }
}

/* Their places, rising. */
static void write_places(key_score *heap, int n, float *out)
{
    make_heap(heap, n, is_later);
    for (int last = n - 1; last >= 0; last--) {
        memcpy(out + last, &heap[0].place, sizeof heap[0].place);
        heap[0] = heap[last];
        sift(heap, last, 0, is_later);
    }
}

/* score: of all keys of the row; NULL: they are made here. */
static void choose_row(const rg_cpu_reader *r, const rg_fwd *f, const rg_op *op, int row, const float *score)
{
    const int most = op->out[0]->cols, n = f->batch->kv_end[row];
    key_score *heap = (key_score *)(void *)rg_cpu_scratch(r, f);
    float *out = rg_act_row(f, op->out[0], row), some[RG_BLOCK];

    if (n <= most) {
        for (int32_t i = 0; i < most; i++)
            memcpy(out + i, i < n ? &i : &(int32_t){ INT32_MAX }, sizeof i);
        return;
    }
    for (int block = 0; block < rg_ceil_div(n, RG_BLOCK); block++) {
        const float *from = score ? score + block * RG_BLOCK : some;

        if (!score)
            score_block(r, f, op, row, block, some);
        offer(heap, most, block * RG_BLOCK, from, rg_min(RG_BLOCK, n - block * RG_BLOCK));
    }
    write_places(heap, most, out);
}

void rg_cpu_choose_keys(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_batch *b = f->batch;
    const size_t each = (size_t)r->sizes.max_head_dim + RG_PANEL; /* floats of a partial sum, in whose place they are */
    float *shared = NULL; /* scores of each row, one after the other */
    int n_segments, keys = 0;

    RG_ASSERT(op->out[0]->cols <= RG_MAX_CHOSEN && op->buffer->values <= RG_MAX_INDEX_DIM);
    for (int i = 0; i < b->n_rows; i++)
        keys = rg_max(keys, b->kv_end[i]);
    n_segments = rg_ceil_div(keys, RG_SEGMENT);
    const size_t ld = (size_t)n_segments * RG_SEGMENT;
    if (n_segments > 1 && b->n_rows < FEW_ROWS * f->n_threads && (size_t)b->n_rows * ld <= r->n_partials * each)
        shared = r->partials;
    for (int c; shared && (c = rg_chunk_next(f, b->n_rows * n_segments)) >= 0;) {
        int row = c / n_segments, first = c % n_segments * SEGMENT_BLOCKS;
        int last = rg_min(first + SEGMENT_BLOCKS, rg_ceil_div(b->kv_end[row], RG_BLOCK));

        for (int block = first; block < last && b->kv_end[row] > op->out[0]->cols; block++)
            score_block(r, f, op, row, block, shared + (size_t)row * ld + (size_t)block * RG_BLOCK);
    }
    if (shared)
        rg_fwd_barrier(f);
    for (int row; (row = rg_chunk_next(f, b->n_rows)) >= 0;)
        choose_row(r, f, op, row, shared ? shared + (size_t)row * ld : NULL);
    rg_fwd_barrier(f);
}
