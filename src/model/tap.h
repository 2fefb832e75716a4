/* tap.h -- features of a step's rows, for a network that drafts: what enters some of the model's layers, and its head.
 *
 * A reader copies the inputs of layers as they pass; what enters the head, of all rows, comes as the step's hidden
 * states.  Holds one step at a time: written during a step, read after it. */
#ifndef RG_MODEL_TAP_H
#define RG_MODEL_TAP_H

#include "model/config.h"

typedef struct rg_tap {
    rg_reader reader;  /* first */
    rg_feature_places places;
    int dim, max_rows;
    bool reads_head;   /* hidden states are wanted, of every row that is to be seen */
    float *rows;       /* [max_rows][places.n * dim] */
} rg_tap;

/* A tap at the places that a network's config names, for steps of at most max_rows rows.  NULL: no memory. */
rg_tap *rg_tap_new(const rg_config *network, int max_rows, rg_error *err);
void rg_tap_free(rg_tap *t); /* NULL is fine */

/* For rg_runner_options.wrap, with the tap as its argument. */
const rg_reader *rg_tap_wrap(void *tap, const rg_reader *inner);
/* What enters the head, of rows [first, first + n): their hidden states, `stride` floats apart.  By any thread. */
void rg_tap_put_hidden(rg_tap *t, int32_t first, int32_t n, const float *hidden, size_t stride);

static inline int rg_tap_cols(const rg_tap *t)
{
    return t->places.n * t->dim;
}

static inline const float *rg_tap_row(const rg_tap *t, int32_t row)
{
    return t->rows + (size_t)row * (size_t)rg_tap_cols(t);
}

#endif
