/* fwd.c -- places of activations, and phases.
 *
 * The arena is a stack, as activations are: each takes its values and, after them, the place for its rows rounded. */
#include "ops/cpu/fwd.h"

#include "ops/cpu/pack.h"

enum { CACHE_LINE = 64, ROUND_BYTES = 64 };

/* ---- places ------------------------------------------------------------------------------------------------------ */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to; /* fits: what is rounded are columns, and bytes of what lies in the arena */
}

static size_t round_bytes(const rg_act *a)
{
    return round_up((size_t)a->rows * rg_round_stride(a->cols) * ROUND_BYTES, CACHE_LINE);
}

static size_t take(rg_cpu_fwd *f, size_t bytes)
{
    size_t at = f->arena_used;

    f->arena_used += round_up(bytes, CACHE_LINE);
    if (f->arena_used > f->arena_peak)
        f->arena_peak = f->arena_used;
    RG_ASSERT(!f->arena || f->arena_used <= f->arena_bytes);
    return at;
}

/* Floats from row to row: whole panels.  Never a multiple of 1 KiB: rows that a kernel reads side by side would share a
 * few sets of the near cache, which then holds 8 of them. */
static int stride_of(int cols)
{
    const int stride = (int)round_up((size_t)cols, RG_PANEL);

    return stride % 256 ? stride : stride + RG_PANEL;
}

/* The place for rounded rows is the last thing that an activation takes, a view's too: it ends the stack. */
void rg_cpu_place(rg_cpu_fwd *f)
{
    rg_fwd *b = &f->base;
    int i = b->n_known;

    if (i == b->n_acts)
        return;
    f->arena_used = i ? f->at[i - 1].round + round_bytes(&b->acts[i - 1]) : 0;
    for (; i < b->n_acts; i++) {
        const rg_act *a = &b->acts[i];
        rg_cpu_act *at = &f->at[i];

        at->rounded = 0;
        at->stride = a->shown < 0 ? stride_of(a->cols) : f->at[a->shown].stride;
        at->offset = a->shown < 0 ? take(f, (size_t)a->rows * (size_t)at->stride * sizeof(float))
                                  : f->at[a->shown].offset + (size_t)a->first * sizeof(float);
        at->round = take(f, round_bytes(a));
    }
    b->n_known = b->n_acts;
}

void rg_cpu_written(rg_cpu_fwd *f, const rg_act *a)
{
    const rg_fwd *b = &f->base;
    const int whole = a->shown >= 0 ? a->shown : (int)(a - b->acts);

    for (int i = whole; i < b->n_known; i++) { /* views come after what they show */
        const rg_act *other = &b->acts[i];

        if (i == whole || other->shown == whole)
            f->at[i].rounded = 0;
    }
}

/* ---- phases ------------------------------------------------------------------------------------------------------ */

/* Pay what is owed: all chunks taken before are then done for all threads. */
static void settle(rg_cpu_fwd *f)
{
    if (f->leads)
        rg_phase_open(f->pool, &f->phase);
    else
        rg_phase_wait(f->pool, &f->phase);
    f->owed = false;
}

void rg_fwd_barrier(rg_fwd *base)
{
    rg_cpu_fwd *f = rg_cpu_fwd_of(base);

    f->taken = false;
    if (f->owed)
        settle(f);
    else if (f->pool)
        rg_phase_end(f->pool, &f->phase);
}

int rg_chunk_next(rg_fwd *base, int n)
{
    rg_cpu_fwd *f = rg_cpu_fwd_of(base);
    const bool first = !f->taken;

    if (n > 1 && f->owed)
        settle(f);
    f->taken = true;
    f->n_chunks = n;
    if (f->owed)
        return f->leads && first && n ? 0 : -1;
    if (n <= base->n_threads) /* the first ones are all */
        return first && base->thread < n ? base->thread : -1;
    return rg_phase_take(f->pool, f->phase, n);
}

int rg_chunk_likely(const rg_fwd *base, int c)
{
    const rg_cpu_fwd *f = rg_cpu_fwd_of(base);

    return f->pool ? rg_phase_likely(f->pool, c) : c + 1;
}

void rg_phase_done(rg_fwd *base)
{
    rg_cpu_fwd *f = rg_cpu_fwd_of(base);

    if (!f->lazy) {
        rg_fwd_barrier(base);
        return;
    }
    if (!f->owed) /* thread 0 took the only chunk, if there was one */
        f->leads = f->n_chunks <= 1 ? base->thread == 0 : rg_phase_arrive(f->pool);
    f->owed = true;
    f->taken = false;
}
