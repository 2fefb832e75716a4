/* fwd.h -- one thread's view of a step on this processor: where activations lie, and how threads share work.
 *
 * Every thread of a step runs the model's text, each with an rg_cpu_fwd of its own.  Handles come out alike on all of
 * them, so places in the arena agree without being shared; only data, counters of chunks and the barrier are. */
#ifndef RG_OPS_CPU_FWD_H
#define RG_OPS_CPU_FWD_H

#include "base/pool.h"
#include "ops/ops.h"

/* Blocks of a group of state, one after the other. */
typedef struct rg_group_memory {
    uint8_t *data;
    size_t block_bytes;
} rg_group_memory;

/* Where an activation lies.  Its rows are `stride` floats apart; behind them is the place for its rows rounded. */
typedef struct rg_cpu_act {
    size_t offset; /* of its first value in the arena, in bytes */
    size_t round;  /* of its rows rounded, in bytes; a view has its own */
    int stride;
    int rounded; /* the recipe that they were rounded for since it was last written; 0: none */
} rg_cpu_act;

typedef struct rg_cpu_fwd {
    rg_fwd base; /* first */
    const rg_group_memory *groups;
    uint8_t *arena; /* NULL: places are found, and nothing is computed */
    size_t arena_bytes, arena_used, arena_peak;
    rg_cpu_act at[RG_MAX_ACTS]; /* of base.acts, the first base.n_known */
    rg_pool *pool;              /* NULL with the arena */
    uint32_t phase;
    bool lazy;               /* rg_phase_done may leave its barrier to the phases that follow */
    bool owed, leads, taken; /* a barrier is owed, and this thread will open it; it has taken a chunk */
    int n_chunks;            /* of the present phase, or of the last one */
} rg_cpu_fwd;

/* Every rg_fwd that operations of this processor see is the first member of one. */
static inline rg_cpu_fwd *rg_cpu_fwd_of(const rg_fwd *f)
{
    return (rg_cpu_fwd *)(uintptr_t)f;
}

/* ---- places ---- */

/* Give places to the activations that were made since the last operation.  Asserts if the arena, which was sized by a
 * run of the largest step, is full. */
void rg_cpu_place(rg_cpu_fwd *f);
/* Note that an activation was written: what shares memory with it must be rounded again. */
void rg_cpu_written(rg_cpu_fwd *f, const rg_act *a);

static inline rg_cpu_act *rg_cpu_act_of(const rg_fwd *f, const rg_act *a)
{
    return &rg_cpu_fwd_of(f)->at[a - f->acts];
}

static inline size_t rg_act_stride(const rg_fwd *f, const rg_act *a)
{
    return (size_t)rg_cpu_act_of(f, a)->stride;
}

static inline float *rg_act_data(const rg_fwd *f, const rg_act *a)
{
    return (float *)(void *)(rg_cpu_fwd_of(f)->arena + rg_cpu_act_of(f, a)->offset);
}

static inline float *rg_act_row(const rg_fwd *f, const rg_act *a, int row)
{
    const rg_cpu_act *at = rg_cpu_act_of(f, a);

    return (float *)(void *)(rg_cpu_fwd_of(f)->arena + at->offset) + (size_t)row * (size_t)at->stride;
}

/* Blocks of 32 between the rounded rows of an activation: behind those of a row there is one for every 256 columns,
 * with room for a bit of each and for eight values.  Odd, so that the rows of a tile do not fall on one cache set. */
static inline size_t rg_round_stride(int cols)
{
    return ((size_t)(cols + 31) / 32 + (size_t)(cols + 255) / 256) | 1;
}

/* ---- work that threads share ---- */

/* A barrier among the step's threads; nothing when nothing is computed. */
void rg_fwd_barrier(rg_fwd *f);

/* Phases.  All threads take the chunks of a phase by rg_chunk_next, with the same n, and end it by rg_fwd_barrier, or
 * by rg_phase_done where nothing that others computed is read before the next phase takes its first chunk.  The barrier
 * of rg_phase_done may be owed: then the thread that came last computes phases of one chunk alone, and the others pass
 * them by, until a phase has more chunks, which all begin together.  So a small step has few barriers. */
int rg_chunk_next(rg_fwd *f, int n);         /* the next chunk for this thread, or -1: the phase has no more */
int rg_chunk_likely(const rg_fwd *f, int c); /* the one that it is likely to take after c, if there are so many */
void rg_phase_done(rg_fwd *f);

#endif
