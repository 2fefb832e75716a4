/* copy.c -- see copy.h. */
#include "ops/watch/copy.h"

#include <string.h>

#include "base/mem.h"

static void grow(rg_copy *c, const rg_act *a)
{
    const size_t n = (size_t)a->rows * (size_t)a->cols; /* fits: the activation is in memory */

    c->cols = a->cols;
    if (n <= c->room)
        return;
    rg_mem_permit();
    rg_free(c->rows);
    c->rows = rg_array(n, sizeof *c->rows);
    c->room = c->rows ? n : 0;
    rg_mem_forbid();
}

static void take_row(void *arg, int row, const float *x)
{
    const rg_copy *c = arg;

    if (c->rows)
        memcpy(c->rows + (size_t)row * (size_t)c->cols, x, (size_t)c->cols * sizeof *x);
}

/* The threads meet first, so that the first one is done with the copy before, and its place is made. */
const float *rg_copy_take(rg_copy *c, rg_fwd *f, const rg_act *a)
{
    if (!rg_reader_computes(f))
        return NULL;
    if (f->thread == 0)
        grow(c, a);
    rg_fwd_meet(f);
    rg_act_fetch(f, a, take_row, c);
    return f->thread == 0 ? c->rows : NULL;
}

void rg_copy_fini(rg_copy *c)
{
    rg_free(c->rows);
    *c = (rg_copy){ 0 };
}
