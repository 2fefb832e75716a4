/* lanes.h -- parts of RG_LOOP_LANES channels side by side, as ops/loops.h wants them.
 *
 * A part is a run of channels over all sequences, so that sums over rows are those of one thread, in the rows' order.
 * Nothing crosses from one sequence to another. */
#ifndef RG_OPS_BACK_LANES_H
#define RG_OPS_BACK_LANES_H

#include <string.h>

#include "ops/back/inside.h"

enum { RG_LANES = RG_LOOP_LANES };

typedef struct rg_back_parts {
    const rg_back *b;
    int longest; /* rows of a sequence */
    size_t each;
    float *scratch; /* [threads][each] */
    float *shared;  /* of the scan: [parts][rows][2 states], summed over a part's channels */
} rg_back_parts;

static inline bool rg_back_parts_begin(rg_back_parts *v, const rg_back *b, size_t each)
{
    *v = (rg_back_parts){ .b = b, .longest = rg_back_longest(b), .each = rg_back_whole(each) };
    v->scratch = rg_back_room(b->lane, v->each * (size_t)b->lane->n_threads);
    return v->scratch;
}

static inline void rg_back_parts_run(rg_back_parts *v, int channels, void (*part)(void *arg, int i, int thread))
{
    rg_back_each(v->b->lane, rg_ceil_div(channels, RG_LANES), part, v);
}

/* A thread's scratch as it is dealt out; base NULL: counted alone. */
typedef struct rg_dealt {
    float *base;
    size_t used;
} rg_dealt;

/* n floats, aligned to 64 bytes; or n doubles. */
static inline float *rg_deal(rg_dealt *d, size_t n)
{
    float *p = d->base ? d->base + d->used : NULL;

    d->used += rg_back_whole(n);
    return p;
}

static inline double *rg_deal_doubles(rg_dealt *d, size_t n)
{
    return (double *)(void *)rg_deal(d, 2 * n);
}

static inline int rg_lanes_of(int cols, int c)
{
    return rg_back_min(RG_LANES, cols - c);
}

/* Columns [c, c + RG_LANES) of a row that has cols; zeros behind them. */
static inline void rg_lanes_get(float *to, const float *row, int cols, int c)
{
    const int n = rg_lanes_of(cols, c);

    for (int i = 0; i < RG_LANES; i++)
        to[i] = 0;
    memcpy(to, row + c, (size_t)n * sizeof *to);
}

/* The same of n rows of a matrix; and added to it. */
static inline void rg_lanes_load(float *to, const rg_mat *m, int row, int n, int c)
{
    for (int r = 0; r < n; r++)
        rg_lanes_get(to + (size_t)r * RG_LANES, rg_mat_row(m, row + r), m->cols, c);
}

static inline void rg_lanes_add(const rg_mat *m, int row, int n, int c, const float *from)
{
    const int some = rg_lanes_of(m->cols, c);

    for (int r = 0; r < n; r++, from += RG_LANES) {
        float *to = rg_mat_row(m, row + r) + c;

        for (int i = 0; i < some; i++)
            to[i] += from[i];
    }
}

/* Sums over runs of rows, in double. */
static inline void rg_lanes_sum(double *sum, const float *some, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += (double)some[i];
}

/* Add sum[i] to to[c + i], for each of the RG_LANES channels from c on that is below cols. */
static inline void rg_lanes_put(float *to, int cols, int c, const double *sum)
{
    for (int i = 0; i < rg_lanes_of(cols, c); i++)
        to[c + i] += (float)sum[i];
}

#endif
