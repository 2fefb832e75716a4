/* slab.c -- see slab.h. */
#include "train/slab.h"

#include <string.h>

float *rg_slab_take(rg_slab *s, size_t n)
{
    const size_t rounded = (n + 15) / 16 * 16, /* fits: sizes of activations, which are in memory too */
        least = (size_t)1 << (20 + (s->at < 6 ? s->at : 6));

    while (rounded > s->floats[s->at] - s->used) {
        if (s->used) { /* it is in use */
            if (s->at + 1 == RG_SLAB_PIECES)
                return NULL;
            s->at++;
            s->used = 0;
            continue;
        }
        rg_free(s->piece[s->at]);
        s->floats[s->at] = rounded > least ? rounded : least;
        s->piece[s->at] = rg_alloc_tail(0, s->floats[s->at], sizeof(float));
        if (!s->piece[s->at]) {
            s->floats[s->at] = 0;
            return NULL;
        }
    }
    s->used += rounded;
    return s->piece[s->at] + s->used - rounded;
}

rg_mat rg_slab_mat(rg_slab *s, int rows, int cols)
{
    rg_mat m = { .ld = ((size_t)cols + 15) / 16 * 16, /* fits: cols is an int */
                 .rows = rows,
                 .cols = cols };

    m.at = rg_slab_take(s, (size_t)rows * m.ld);
    return m;
}

size_t rg_slab_floats(const rg_slab *s)
{
    size_t n = s->used;

    for (int i = 0; i < s->at; i++)
        n += s->floats[i];
    return n;
}

void rg_slab_reset(rg_slab *s)
{
    s->at = 0;
    s->used = 0;
}

void rg_slab_fini(rg_slab *s)
{
    for (int i = 0; i < RG_SLAB_PIECES; i++)
        rg_free(s->piece[i]);
    memset(s, 0, sizeof *s);
}
