/* results.c -- the rows that a step is asked for: copied to the host, and handed out by its threads.
 *
 * A row of logits of which few can be drawn comes as a list of these (kernels/draw.cu).  Each thread of the host has
 * one row in which such a list stands among logits that are left out.  A row with more of them than a list has room for
 * comes whole, by a second copy, since only the device knows of it before. */
#include <string.h>

#include "base/mem.h"
#include "ops/cuda/lane.h"

/* Above it a difference of logits that are left out may count; nobody samples so. */
static const float most_temperature = 1e20f;

_Static_assert((int)RGK_MOST_PICKED == (int)RG_MOST_PICKED, "candidates have room for what is picked");

rgk_pick rg_cuda_pick_of(const rg_pick *p)
{
    const bool can = p->k >= 1 && p->k <= RG_MOST_PICKED &&
                     (!(p->temperature > 0) || (p->k == 1 && p->temperature <= most_temperature));

    return (rgk_pick){ .k = can ? p->k : 0,
                       .temperature = p->temperature,
                       .seed = { (uint32_t)p->key.seed, (uint32_t)(p->key.seed >> 32) },
                       .sample = p->key.sample,
                       .draw = p->key.draw,
                       .position = p->key.position };
}

/* ---- draws on the device ----------------------------------------------------------------------------------------- */

size_t rg_cuda_most_drawn_bytes(int n_rows)
{
    return (size_t)n_rows * (1 + RGK_MOST_DRAWN) * sizeof(rgk_drawn); /* fits: rows of a step */
}

static size_t drawn_bytes(const rg_cuda_lane *l)
{
    return l->drawn ? (size_t)l->f.batch->n_logits * (1 + (size_t)l->drawn_room) * sizeof(rgk_drawn) : 0;
}

void rg_cuda_draw(rg_cuda_lane *l)
{
    const rg_batch *b = l->f.batch;
    int most = 0;

    l->drawn = NULL;
    for (int i = 0; b->picks && i < b->n_logits; i++) {
        const int k = rg_cuda_pick_of(&b->picks[i]).k;
        most = k > most ? k : most;
    }
    if (!most || !l->out.logits)
        return;
    l->drawn_room = most > 1 ? RGK_MOST_DRAWN : RGK_FEW_DRAWN;
    l->drawn = rg_cuda_take(l, rg_cuda_most_drawn_bytes(b->n_logits), 1);
    rgk_draw_params p = { .logits = rg_cuda_rows_of(l, &l->f, l->out.logits), .picks = l->picks, .to = l->drawn,
                          .n = l->out.logits->cols, .room = l->drawn_room };
    rg_cuda_launch_on(l, RGK_KERNEL_draw, (unsigned)b->n_logits, 1, 1, RGK_DRAW_THREADS, 0, &p);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static void copy(rg_cuda_lane *l, void *to, const void *from, size_t bytes)
{
    if (bytes)
        rg_cuda_check(l->gpu, l->gpu->call.cuMemcpyDtoHAsync_v2(to, (uintptr_t)from, bytes, l->stream), "results");
}

static size_t row_bytes(const rg_cuda_lane *l, const rg_act *a)
{
    return a ? (size_t)l->at[a - l->f.acts].stride * sizeof(float) : 0;
}

/* Ask for all rows of an activation; where they end. */
static uint8_t *copy_rows(rg_cuda_lane *l, const rg_act *a, uint8_t *to)
{
    const size_t bytes = a ? (size_t)a->rows * row_bytes(l, a) : 0;

    copy(l, to, a ? rg_cuda_rows_of(l, &l->f, a).at : NULL, bytes);
    return to + bytes;
}

/* Begin to copy all logits of these rows to the host.  Neighbouring rows are one copy, since each copy has a cost. */
static void copy_whole(rg_cuda_lane *l, const bool *wanted, uint8_t *to)
{
    const rgk_rows rows = rg_cuda_rows_of(l, &l->f, l->out.logits);
    const size_t bytes = row_bytes(l, l->out.logits);

    for (int i = 0, n; i < l->f.batch->n_logits; i += n + 1) {
        for (n = 0; i + n < l->f.batch->n_logits && wanted[i + n]; n++)
            l->row[i + n] = (float *)(void *)(to + (size_t)n * bytes);
        copy(l, to, rows.at + i * rows.stride, (size_t)n * bytes);
        to += (size_t)n * bytes;
    }
}

static int count(const bool *wanted, int n)
{
    int sum = 0;

    for (int i = 0; i < n; i++)
        sum += wanted[i];
    return sum;
}

/* Room for what the host keeps of n wanted rows, and a row for each of its threads. */
static void make_room(rg_cuda_lane *l, int n, size_t row_bytes)
{
    const size_t filled = l->drawn ? (size_t)l->step->n_threads * row_bytes : 0; /* fits: rows of a step */

    if (n > l->most_wanted) {
        l->row = rg_resize(l->row, (size_t)n * sizeof *l->row); /* fits: rows of a step */
        l->whole = rg_resize(l->whole, (size_t)n * sizeof *l->whole); /* fits: as before */
        RG_ASSERT(l->row && l->whole);
        l->most_wanted = n;
    }
    if (filled > l->filled_bytes) {
        l->filled = rg_resize(l->filled, filled);
        RG_ASSERT(l->filled);
        l->filled_bytes = filled;
    }
}

void rg_cuda_collect(rg_cuda_lane *l)
{
    const rg_batch *b = l->f.batch;
    const int n = l->out.logits ? b->n_logits : 0;
    const size_t each = row_bytes(l, l->out.logits), hidden = row_bytes(l, l->out.hidden);
    size_t bytes = drawn_bytes(l) + (hidden ? (size_t)l->out.hidden->rows * hidden : 0);

    make_room(l, n, each);
    for (int i = 0; i < n; i++) {
        l->row[i] = NULL;
        l->whole[i] = !l->drawn || !rg_cuda_pick_of(&b->picks[i]).k;
    }
    bytes += (size_t)count(l->whole, n) * each; /* fits: as before */
    bytes += l->out.scores ? (size_t)l->out.scores->rows * row_bytes(l, l->out.scores) : 0;
    uint8_t *to = rg_cuda_room_for(l, &l->rows, bytes, true);
    l->n_drawn = l->drawn ? n : 0;
    copy(l, to, l->drawn, drawn_bytes(l));
    to += drawn_bytes(l);
    l->hidden = (float *)(void *)to;
    to = copy_rows(l, l->out.hidden, to);
    l->scores = (float *)(void *)to;
    to = copy_rows(l, l->out.scores, to);
    if (n)
        copy_whole(l, l->whole, to);
}

static const rgk_drawn *list_of(const rg_cuda_lane *l, int i)
{
    return (const rgk_drawn *)l->rows.at + (size_t)i * (1 + (size_t)l->drawn_room);
}

void rg_cuda_collect_rest(rg_cuda_lane *l)
{
    for (int i = 0; i < l->n_drawn; i++)
        l->whole[i] = !l->row[i] && list_of(l, i)->id == RGK_WHOLE;
    const int n = count(l->whole, l->n_drawn);

    if (!n)
        return;
    copy_whole(l, l->whole, rg_cuda_room_for(l, &l->rest, (size_t)n * row_bytes(l, l->out.logits), true));
    rg_cuda_check(l->gpu, l->gpu->call.cuStreamSynchronize(l->stream), "a step");
}

/* ---- handing out ------------------------------------------------------------------------------------------------- */

/* The row as the sink gets it: whole, or the thread's own, with what can be drawn. */
static float *row_of(const rg_cuda_lane *l, int thread, int i)
{
    const int n = l->out.logits->cols;
    float *row = l->row[i];

    if (row)
        return row;
    row = l->filled + (size_t)thread * (row_bytes(l, l->out.logits) / sizeof *row);
    for (int k = 0; k < n; k++)
        row[k] = RG_LEFT_OUT;
    const rgk_drawn *list = list_of(l, i);
    for (int k = 1; k <= list->id; k++)
        row[list[k].id] = list[k].logit;
    return row;
}

static void deliver(void *arg, int thread)
{
    rg_cuda_lane *l = arg;
    const rg_batch *b = l->step->batch;
    const rg_sink *sink = l->step->sink;
    const size_t hidden = row_bytes(l, l->out.hidden) / sizeof(float);
    const size_t scores = row_bytes(l, l->out.scores) / sizeof(float);
    const int n = b->n_logits, n_hidden = b->n_hidden, all = n + n_hidden + b->n_scores;

    for (int i; (i = __atomic_fetch_add(&l->next, 1, __ATOMIC_RELAXED)) < all;)
        if (i < n)
            sink->logits(sink->arg, thread, i, row_of(l, thread, i));
        else if (i < n + n_hidden)
            sink->hidden(sink->arg, thread, i - n, l->hidden + (size_t)b->hidden[i - n].first * hidden, hidden);
        else
            sink->scores(sink->arg, thread, i - n - n_hidden, l->scores + (size_t)(i - n - n_hidden) * scores);
}

void rg_cuda_deliver(rg_cuda_lane *l)
{
    l->next = 0;
    rg_pool_run(l->pool, l->step->n_threads, deliver, l);
}

void rg_cuda_free_results(rg_cuda_lane *l)
{
    if (l->rows.at)
        rg_cuda_check(l->gpu, l->gpu->call.cuMemFreeHost(l->rows.at), "closing");
    if (l->rest.at)
        rg_cuda_check(l->gpu, l->gpu->call.cuMemFreeHost(l->rest.at), "closing");
    rg_free(l->row);
    rg_free(l->whole);
    rg_free(l->filled);
}
