/* tap.c -- see tap.h. */
#include "model/tap.h"

#include <string.h>

#include "base/mem.h"

static float *place_of(const rg_tap *t, int32_t row, int place)
{
    return t->rows + (size_t)row * (size_t)rg_tap_cols(t) + (size_t)place * (size_t)t->dim;
}

/* Where rows of one layer's input go. */
typedef struct taken {
    const rg_tap *t;
    int place;
} taken;

static void take_row(void *arg, int row, const float *x)
{
    const taken *to = arg;

    memcpy(place_of(to->t, row, to->place), x, (size_t)to->t->dim * sizeof *x);
}

static void run_tap(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    const rg_tap *t = (const rg_tap *)self; /* the reader is its first member */

    self->inner->run(self->inner, f, op);
    if (op->kind != RG_OP_NOTE || f->layer < 0)
        return;
    for (int k = 0; k < t->places.n; k++)
        if (t->places.layer[k] == f->layer)
            rg_act_fetch(f, op->in[0], take_row, &(taken){ t, k });
}

rg_tap *rg_tap_new(const rg_config *network, int max_rows, rg_error *err)
{
    rg_tap *t = rg_zalloc(sizeof *t);
    size_t n;

    if (!t)
        return rg_fail_memory(err, sizeof *t), NULL;
    t->reader.run = run_tap;
    t->places = network->places;
    t->dim = network->target->dim;
    t->max_rows = max_rows;
    for (int k = 0; k < t->places.n; k++)
        t->reads_head = t->reads_head || t->places.layer[k] == RG_HEAD_INPUT;
    t->rows = rg_mul((size_t)max_rows, (size_t)rg_tap_cols(t), &n) ? rg_array(n, sizeof *t->rows) : NULL;
    if (t->rows)
        return t;
    rg_fail_memory(err, (size_t)max_rows * (size_t)rg_tap_cols(t) * sizeof *t->rows);
    rg_free(t);
    return NULL;
}

void rg_tap_free(rg_tap *t)
{
    if (!t)
        return;
    rg_free(t->rows);
    rg_free(t);
}

const rg_reader *rg_tap_wrap(void *tap, const rg_reader *inner)
{
    rg_tap *t = tap;

    t->reader.inner = inner;
    return &t->reader;
}

void rg_tap_put_hidden(rg_tap *t, int32_t first, int32_t n, const float *hidden, size_t stride)
{
    RG_ASSERT(first >= 0 && first + n <= t->max_rows);
    for (int k = 0; k < t->places.n; k++)
        for (int32_t r = 0; r < n && t->places.layer[k] == RG_HEAD_INPUT; r++)
            memcpy(place_of(t, first + r, k), hidden + (size_t)r * stride, (size_t)t->dim * sizeof(float));
}
