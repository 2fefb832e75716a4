/* lane.c -- see lane.h. */
#include "ops/cuda/lane.h"

#include <string.h>

#include "base/mem.h"
#include "ops/cuda/place.h"

enum { ALIGN = 256, STRIDE = 16 /* floats */ };

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN; /* fits: n is within the region, or of a step's arrays */
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* Give places to the activations that were made since the last operation. */
static void place(rg_cuda_lane *l, rg_fwd *f)
{
    int i = f->n_known;

    l->used = 0;
    for (int k = 0; k < i; k++) {
        const rg_act *a = &f->acts[k];
        const size_t end = l->at[k].offset + (size_t)a->rows * (size_t)l->at[k].stride * sizeof(float);
        l->used = a->shown < 0 && end > l->used ? end : l->used;
    }
    for (; i < f->n_acts; i++) {
        const rg_act *a = &f->acts[i];

        if (a->shown >= 0) {
            l->at[i] = l->at[a->shown];
            l->at[i].offset += (size_t)a->first * sizeof(float);
            continue;
        }
        /* fits: columns are an int */
        l->at[i] = (rg_cuda_act){ aligned(l->used), ((int64_t)a->cols + STRIDE - 1) / STRIDE * STRIDE };
        l->used = l->at[i].offset + (size_t)a->rows * (size_t)l->at[i].stride * sizeof(float);
    }
    f->n_known = f->n_acts;
    l->used = aligned(l->used);
    l->peak = l->used > l->peak ? l->used : l->peak;
    RG_ASSERT(!l->gpu || l->used <= l->arena_bytes);
}

void *rg_cuda_take(rg_cuda_lane *l, size_t n, size_t each)
{
    const size_t at = l->used;

    l->used = aligned(at + n * each);
    l->peak = l->used > l->peak ? l->used : l->peak;
    RG_ASSERT(!l->gpu || l->used <= l->arena_bytes);
    return l->arena + at;
}

const double *rg_cuda_frequencies(rg_cuda_lane *l, const rg_rope *rope)
{
    const int n = rope->n_variants > 1 ? rope->n_variants : 1;
    int i = 0;

    if (!l->gpu)
        return NULL;
    while (i < l->n_ropes && l->ropes[i].rope != rope)
        i++;
    if (i < l->n_ropes)
        return l->ropes[i].frequency;
    RG_ASSERT(i < RG_CUDA_ROPES);
    const size_t each = (size_t)rope->n_pairs + 1, bytes = (size_t)n * each * sizeof(double); /* fit: few and short */
    double *values = rg_alloc(bytes); /* fits: as above */
    l->ropes[i].frequency = rg_cuda_alloc(l->gpu, bytes, NULL);
    RG_ASSERT(values && l->ropes[i].frequency);
    for (int v = 0; v < n; v++) {
        for (int k = 0; k < rope->n_pairs; k++)
            values[(size_t)v * each + (size_t)k] = (double)rope[v].inv_freq[k];
        values[(size_t)v * each + each - 1] = (double)rope[v].factor;
    }
    rg_cuda_upload(l->gpu, l->ropes[i].frequency, values, bytes);
    rg_free(values);
    l->ropes[i].rope = rope;
    l->n_ropes++;
    return l->ropes[i].frequency;
}

/* ---- the reader -------------------------------------------------------------------------------------------------- */

static void run(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_cuda_lane *l = rg_cuda_lane_of(self);

    place(l, f);
    if (op->kind != RG_OP_NOTE && op->kind != RG_OP_FETCH && l->ok)
        l->ok = rg_cuda_compute(l, f, op);
    RG_ASSERT(l->ok || !l->gpu);
}

static void synchronize(rg_cuda_lane *l)
{
    rg_cuda_begin(l);
    rg_cuda_check(l->gpu, l->gpu->call.cuStreamSynchronize(l->stream), "a step");
}

static void fetch(const rg_reader *self, rg_fwd *f, const rg_act *a, rg_take_row *take, void *arg)
{
    rg_cuda_lane *l = rg_cuda_lane_of(self);

    place(l, f);
    synchronize(l);
    const rgk_rows rows = rg_cuda_rows_of(l, f, a);
    float *row = rg_alloc((size_t)a->cols * sizeof *row); /* fits: it lies in the region */
    RG_ASSERT(row);
    for (int i = 0; i < a->rows; i++) {
        rg_cuda_download(l->gpu, row, rows.at + i * rows.stride, (size_t)a->cols * sizeof *row);
        take(arg, i, row);
    }
    rg_free(row);
}

static void put(const rg_reader *self, rg_fwd *f, rg_act *a, rg_give_row *give, void *arg)
{
    rg_cuda_lane *l = rg_cuda_lane_of(self);

    place(l, f);
    synchronize(l);
    const rgk_rows rows = rg_cuda_rows_of(l, f, a);
    float *row = rg_alloc((size_t)a->cols * sizeof *row); /* fits: it lies in the region */
    RG_ASSERT(row);
    for (int i = 0; i < a->rows; i++) {
        give(arg, i, row);
        rg_cuda_upload(l->gpu, rows.at + i * rows.stride, row, (size_t)a->cols * sizeof *row);
    }
    rg_free(row);
}

static void meet(const rg_reader *self, rg_fwd *f)
{
    (void)f;
    synchronize(rg_cuda_lane_of(self));
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool lane_measure(const rg_backend *b, const rg_step *step, size_t *bytes, rg_error *err)
{
    rg_cuda_lane *l = rg_zalloc(sizeof *l);

    (void)b;
    if (!l)
        return rg_fail_memory(err, sizeof *l);
    l->reader = (rg_reader){ .run = run };
    l->err = err;
    l->ok = true;
    l->f = (rg_fwd){ .reader = &l->reader, .batch = step->batch, .exact = step->exact, .layer = -1, .n_threads = 1 };
    const rg_outputs out = step->text(step->model, &l->f);
    const bool ok = l->ok;
    place(l, &l->f);
    if (out.logits)
        rg_cuda_take(l, rg_cuda_most_drawn_bytes(step->batch->n_logits), 1);
    *bytes = l->peak > *bytes ? l->peak : *bytes;
    rg_free(l);
    return ok;
}

static void lane_close(rg_lane *base)
{
    rg_cuda_lane *l = (rg_cuda_lane *)base;

    if (!l)
        return;
    rg_cuda_enter(l->gpu);
    if (l->stream)
        rg_cuda_check(l->gpu, l->gpu->call.cuStreamDestroy_v2(l->stream), "closing");
    rg_cuda_free_graphs(l);
    for (int i = 0; i < l->n_ropes; i++)
        rg_cuda_free(l->gpu, l->ropes[i].frequency);
    rg_cuda_free(l->gpu, l->arena);
    rg_cuda_free(l->gpu, l->sent.at);
    if (l->staged.at)
        rg_cuda_check(l->gpu, l->gpu->call.cuMemFreeHost(l->staged.at), "closing");
    rg_cuda_free_results(l);
    rg_free(l);
}

static rg_lane *lane_open(const rg_backend *b, const rg_lane_options *o, rg_error *err)
{
    const rg_cuda *c = rg_cuda_device(err);
    rg_cuda_lane *l = c ? rg_zalloc(sizeof *l) : NULL;

    if (!l)
        return c ? (rg_fail_memory(err, sizeof *l), NULL) : NULL;
    l->base = (rg_lane){ .backend = b, .reader = &l->reader };
    l->reader = (rg_reader){ .run = run, .fetch = fetch, .put = put, .meet = meet };
    l->gpu = c;
    l->pool = o->pool;
    l->ok = true;
    l->arena_bytes = aligned(o->activation_bytes);
    l->arena = rg_cuda_alloc(c, l->arena_bytes, err);
    if (!l->arena) {
        lane_close(&l->base);
        return NULL;
    }
    rg_cuda_check(c, c->call.cuStreamCreate(&l->stream, 0), "a stream");
    return &l->base;
}

/* ---- what a step is made of -------------------------------------------------------------------------------------- */

void *rg_cuda_room_for(rg_cuda_lane *l, rg_cuda_room *r, size_t bytes, bool of_host)
{
    const rg_cuda *c = l->gpu;

    if (r->bytes >= bytes)
        return r->at;
    if (r->at && of_host)
        rg_cuda_check(c, c->call.cuMemFreeHost(r->at), "memory");
    else if (r->at)
        rg_cuda_free(c, r->at);
    r->bytes = aligned(bytes + bytes / 2); /* fits: it is of a step */
    if (of_host)
        rg_cuda_check(c, c->call.cuMemHostAlloc(&r->at, r->bytes, 0), "memory of the host");
    else
        RG_ASSERT((r->at = rg_cuda_alloc(c, r->bytes, NULL)));
    return r->at;
}

/* Arrays one behind the other; without a base only the size is found. */
typedef struct packer {
    uint8_t *base, *device;
    size_t used;
} packer;

/* Room for n values of 4 bytes; *on_device is where the device has them. */
static void *pack(packer *p, size_t n, const void *on_device)
{
    const size_t at = p->used;
    const void *address = p->device + at;

    p->used = aligned(at + 4 * (n ? n : 1)); /* fits: it is of a step */
    memcpy((void *)(uintptr_t)on_device, &address, sizeof address);
    return p->base ? p->base + at : NULL;
}

static void pack_copy(packer *p, const void *from, size_t n, const void *on_device)
{
    void *to = pack(p, n, on_device);

    if (to && n)
        memcpy(to, from, 4 * n);
}

/* Blocks of a span's table that its rows reach. */
static size_t table_length(const rg_batch *b, const rg_span *s)
{
    int32_t most = s->start + s->n_rows;

    for (int i = s->first_row; i < s->first_row + s->n_rows; i++) {
        most = b->kv_end[i] > most ? b->kv_end[i] : most;
        most = b->slot && b->slot[i] >= most ? b->slot[i] + 1 : most;
    }
    return ((size_t)most + RG_BLOCK - 1) / RG_BLOCK;
}

static void pack_rows(packer *p, const rg_batch *b, rgk_batch *d)
{
    const size_t n = (size_t)b->n_rows;
    int32_t *pos, *span, *rope, *second, given = 0, *from;

    pack_copy(p, b->token, n, &d->token);
    pack_copy(p, b->index, n, &d->index);
    pack_copy(p, b->kv_end, n, &d->kv_end);
    pack_copy(p, b->slot ? b->slot : b->index, n, &d->slot);
    pack_copy(p, b->logit_rows, (size_t)b->n_logits, &d->logit_row);
    pack_copy(p, b->features, b->features ? n * (size_t)b->feature_cols : 0, &d->features);
    pos = pack(p, n, &d->pos);
    span = pack(p, n, &d->span);
    rope = pack(p, n, &d->rope);
    second = pack(p, n, &d->second);
    from = pack(p, n, &d->given);
    for (int s = 0; p->base && s < b->n_spans; s++)
        for (int i = b->spans[s].first_row; i < b->spans[s].first_row + b->spans[s].n_rows; i++) {
            pos[i] = b->pos[i][0];
            span[i] = s;
            rope[i] = b->spans[s].rope;
            second[i] = b->spans[s].second > 0 && b->index[i] >= b->spans[s].second;
            from[i] = b->given && b->token[i] == -1 ? given++ : -1;
        }
}

/* Rows in tiles; none where a row has a list of its own. */
static void pack_tiles(packer *p, const rg_batch *b, rgk_batch *d)
{
    int n = 0;

    for (int s = 0; s < b->n_spans && !b->ancestors; s++)
        n += rg_ceil_div(b->spans[s].n_rows, RGK_TILE_ROWS);
    d->n_tiles = n;
    int32_t *first = pack(p, (size_t)n, &d->tile_row), *rows = pack(p, (size_t)n, &d->tile_rows);
    for (int s = 0, t = 0; p->base && n && s < b->n_spans; s++)
        for (int i = 0; i < b->spans[s].n_rows; i += RGK_TILE_ROWS, t++) {
            first[t] = b->spans[s].first_row + i;
            rows[t] = b->spans[s].n_rows - i < RGK_TILE_ROWS ? b->spans[s].n_rows - i : RGK_TILE_ROWS;
        }
}

static void pack_spans(packer *p, const rg_cuda_lane *l, const rg_batch *b, rgk_batch *d)
{
    int32_t *table = pack(p, (size_t)(b->n_spans * d->n_groups), &d->table);
    int32_t *tree = pack(p, (size_t)b->n_spans, &d->tree_start), *list = pack(p, (size_t)b->n_rows, &d->ancestor);
    size_t n_tables = 0, n_listed = 0, at = 0;

    for (int s = 0; s < b->n_spans; s++)
        n_tables += (size_t)d->n_groups * table_length(b, &b->spans[s]);
    int32_t *tables = pack(p, n_tables, &d->tables);
    for (int i = 0; b->ancestors && i < b->n_rows; i++)
        n_listed += b->ancestors[i] ? RG_MAX_DRAFT : 0;
    int32_t *listed = pack(p, n_listed, &d->ancestors);
    n_listed = 0;
    for (int s = 0; p->base && s < b->n_spans; s++) {
        const rg_span *span = &b->spans[s];
        const size_t n = table_length(b, span);

        tree[s] = span->start + span->n_rows - span->n_draft;
        for (int g = 0; g < d->n_groups; g++, at += n) {
            table[s * d->n_groups + g] = (int32_t)at;
            if (l->groups[g].per_position && span->tables[g])
                memcpy(tables + at, span->tables[g], n * sizeof *tables);
        }
        for (int i = span->first_row; i < span->first_row + span->n_rows; i++) {
            const bool has_list = b->ancestors && b->ancestors[i];
            const size_t few = has_list ? (size_t)(b->index[i] - tree[s] + 1) : 0;

            list[i] = has_list ? (int32_t)n_listed : -1;
            if (has_list)
                memcpy(listed + n_listed, b->ancestors[i], few * sizeof *listed);
            n_listed += few;
        }
    }
}

static void pack_picks(packer *p, const rg_batch *b, const rgk_pick *const *on_device)
{
    const size_t n = b->picks ? (size_t)b->n_logits : 0;
    rgk_pick *to = pack(p, n * sizeof *to / 4, on_device); /* fits: rows of a step */

    for (size_t i = 0; p->base && i < n; i++)
        to[i] = rg_cuda_pick_of(&b->picks[i]);
}

static void pack_all(packer *p, rg_cuda_lane *l, const rg_batch *b)
{
    pack_rows(p, b, &l->batch);
    pack_tiles(p, b, &l->batch);
    pack_spans(p, l, b, &l->batch);
    pack_picks(p, b, &l->picks);
}

static void send_batch(rg_cuda_lane *l, const rg_batch *b)
{
    packer p = { 0 };
    int keys = 1;

    l->batch = (rgk_batch){ .n_rows = b->n_rows, .feature_cols = b->feature_cols };
    l->batch.n_groups = rg_cuda_state_groups(l->step->state, &l->groups);
    for (int i = 0; i < b->n_rows; i++)
        keys = b->kv_end[i] > keys ? b->kv_end[i] : keys;
    l->n_segments = rg_ceil_div(keys, RG_SEGMENT);
    pack_all(&p, l, b);
    const size_t bytes = p.used;
    p = (packer){ .base = rg_cuda_room_for(l, &l->staged, bytes, true),
                  .device = rg_cuda_room_for(l, &l->sent, bytes, false) };
    pack_all(&p, l, b);
    rg_cuda_check(l->gpu, l->gpu->call.cuMemcpyHtoDAsync_v2((uintptr_t)p.device, p.base, bytes, l->stream), "a batch");
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void lane_submit(rg_lane *base, const rg_step *step)
{
    rg_cuda_lane *l = (rg_cuda_lane *)base;
    const rg_batch *b = step->batch;

    l->step = step;
    l->n_steps++;
    rg_cuda_enter(l->gpu);
    send_batch(l, b);
    l->f = (rg_fwd){ .reader = step->reader, .batch = b, .exact = step->exact, .layer = -1, .n_threads = 1 };
    l->out = step->text(step->model, &l->f);
    place(l, &l->f);
    l->out.logits = b->n_logits ? l->out.logits : NULL;
    l->out.hidden = b->n_hidden ? l->out.hidden : NULL;
    l->out.scores = b->n_scores ? l->out.scores : NULL;
    if (step->sink)
        rg_cuda_draw(l);
    rg_cuda_begin_step(l);
    if (step->sink)
        rg_cuda_collect(l);
}

static void lane_wait(rg_lane *base)
{
    rg_cuda_lane *l = (rg_cuda_lane *)base;

    rg_cuda_enter(l->gpu);
    synchronize(l);
    if (!l->step->sink)
        return;
    rg_cuda_collect_rest(l);
    rg_cuda_deliver(l);
}

void rg_cuda_add_lane(rg_backend *b)
{
    b->measure = lane_measure;
    b->open = lane_open;
    b->close = lane_close;
    b->submit = lane_submit;
    b->wait = lane_wait;
}
