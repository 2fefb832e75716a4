/* batch.c -- a batch as bytes: its arrays, and of each table the entries that its rows need; see wire.h. */
#include "support/far/wire.h"

#include <stdlib.h>
#include <string.h>

far_groups far_groups_of(const rg_state_shape *shape)
{
    far_groups g = { .n = shape->n_groups };

    for (int i = 0; i < shape->n_kv; i++) {
        g.per_position[shape->kv[i].group] = true;
        g.per_position[rg_kv_open(&shape->kv[i]).group] = true;
    }
    for (int i = 0; i < shape->n_buffers; i++)
        g.per_position[shape->buffer[i].group] = true;
    return g;
}

/* Positions of a span's sequence that its rows read or write. */
static int32_t positions_of(const rg_batch *b, const rg_span *s)
{
    int32_t n = s->start + s->n_rows;

    for (int32_t r = s->first_row; r < s->first_row + s->n_rows; r++) {
        n = b->kv_end[r] > n ? b->kv_end[r] : n;
        n = b->slot && b->slot[r] >= n ? b->slot[r] + 1 : n;
    }
    return n;
}

static int32_t entries_of(const rg_batch *b, const rg_span *s, const far_groups *groups, int g)
{
    return !s->tables[g] ? 0 : groups->per_position[g] ? rg_ceil_div(positions_of(b, s), RG_BLOCK) : 1;
}

/* Of a row of a tree: slots in its list. */
static int32_t n_ancestors(const rg_batch *b, const rg_span *s, int32_t row)
{
    return b->ancestors[row] ? b->index[row] - (s->start + s->n_rows - s->n_draft) + 1 : 0;
}

/* The arrays of [n_rows] or of logits that a batch may have. */
typedef struct array {
    const void **at; /* its member */
    size_t bytes;
    far_kind kind;
} array;

enum { ARRAYS = 7 };

static void arrays_of(rg_batch *b, array a[ARRAYS])
{
    const size_t n = (size_t)b->n_rows, id = sizeof(int32_t);
    const array all[ARRAYS] = { { (const void **)&b->token, n * id, FAR_IDS },
                                { (const void **)&b->features, n * (size_t)b->feature_cols * sizeof(float), FAR_FEATURES },
                                { (const void **)&b->index, n * id, FAR_IDS },
                                { (const void **)&b->pos, n * sizeof *b->pos, FAR_IDS },
                                { (const void **)&b->kv_end, n * id, FAR_IDS },
                                { (const void **)&b->slot, n * id, FAR_IDS },
                                { (const void **)&b->logit_rows, (size_t)b->n_logits * id, FAR_IDS } };

    memcpy(a, all, sizeof all);
}

static void put_ancestors(far_wire *w, const rg_batch *b)
{
    for (int i = 0; b->ancestors && i < b->n_spans; i++)
        for (int32_t r = 0; r < b->spans[i].n_rows; r++) {
            const int32_t row = b->spans[i].first_row + r, n = n_ancestors(b, &b->spans[i], row);

            FAR_PUT(w, n);
            far_put(w, b->ancestors[row], (size_t)n * sizeof(int32_t));
        }
}

void far_put_batch(far_wire *w, const rg_batch *b, const far_groups *groups)
{
    rg_batch copy = *b;
    array arrays[ARRAYS];
    const bool has_ancestors = b->ancestors, has_failed = b->failed;

    w->kind = FAR_IDS;
    far_put_spans(w, b);
    arrays_of(&copy, arrays);
    for (int i = 0; i < ARRAYS; i++) {
        const bool there = *arrays[i].at;

        w->kind = FAR_COMMANDS;
        FAR_PUT(w, there);
        w->kind = arrays[i].kind;
        far_put(w, *arrays[i].at, there ? arrays[i].bytes : 0);
    }
    w->kind = FAR_COMMANDS;
    FAR_PUT(w, has_ancestors);
    FAR_PUT(w, has_failed);
    w->kind = FAR_IDS;
    put_ancestors(w, b);
    for (int i = 0; i < b->n_spans; i++)
        for (int g = 0; g < groups->n; g++) {
            const int32_t n = entries_of(b, &b->spans[i], groups, g);

            w->kind = FAR_COMMANDS;
            FAR_PUT(w, n);
            w->kind = FAR_TABLES;
            far_put(w, b->spans[i].tables[g], (size_t)n * sizeof(int32_t));
        }
    w->kind = FAR_COMMANDS;
}

static void *copied(far_wire *w, size_t bytes)
{
    void *p = malloc(bytes + 1);

    RG_ASSERT(p);
    far_get(w, p, bytes);
    return p;
}

static void get_ancestors(far_wire *w, far_batch *b)
{
    b->ancestors = calloc((size_t)b->batch.n_rows + 1, sizeof *b->ancestors);
    for (int32_t row = 0; row < b->batch.n_rows; row++) {
        int32_t n;

        FAR_GET(w, n);
        b->ancestors[row] = n ? copied(w, (size_t)n * sizeof(int32_t)) : NULL;
    }
    b->batch.ancestors = b->ancestors;
}

void far_get_batch(far_wire *w, far_batch *b, const far_groups *groups)
{
    array arrays[ARRAYS];
    bool there, has_failed;

    far_get_spans(w, b);
    arrays_of(&b->batch, arrays);
    for (int i = 0; i < ARRAYS; i++) {
        FAR_GET(w, there);
        *arrays[i].at = there ? copied(w, arrays[i].bytes) : NULL;
    }
    FAR_GET(w, there);
    FAR_GET(w, has_failed);
    if (there)
        get_ancestors(w, b);
    b->failed = has_failed ? calloc((size_t)b->batch.n_rows + 1, 1) : NULL;
    b->batch.failed = b->failed;
    for (int i = 0; i < b->batch.n_spans; i++)
        for (int g = 0; g < groups->n; g++) {
            int32_t n;

            FAR_GET(w, n);
            b->spans[i].tables[g] = n ? copied(w, (size_t)n * sizeof n) : NULL;
        }
}

void far_batch_fini(far_batch *b)
{
    array arrays[ARRAYS];

    arrays_of(&b->batch, arrays);
    for (int i = 0; i < ARRAYS; i++)
        free((void *)(uintptr_t)*arrays[i].at);
    for (int32_t row = 0; b->ancestors && row < b->batch.n_rows; row++)
        free((void *)(uintptr_t)b->ancestors[row]);
    for (int i = 0; i < b->batch.n_spans; i++)
        for (int g = 0; g < RG_MAX_GROUPS; g++)
            free((void *)(uintptr_t)b->spans[i].tables[g]);
    free(b->spans);
    free(b->runs);
    free(b->ancestors);
    free(b->given);
    free(b->failed);
    *b = (far_batch){ 0 };
}
