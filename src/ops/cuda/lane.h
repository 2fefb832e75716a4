/* lane.h -- a step on the device: the text runs on the host, once, and every operation becomes launches on one stream.
 *
 * Launches are noted, and begin when the text has ended.  A step whose launches are those of an earlier one, to the
 * last byte of their parameters, is replayed as a graph, which takes the host one call: what differs from step to step
 * (ids, places, tables) lies in the device's memory at the same address.
 * Activations lie in one region of the device, a stack as the handles are; what an operation needs besides lies on top
 * of it while the operation runs.  What the step is made of (ids, places, tables) is sent before, in one piece. */
#ifndef RG_OPS_CUDA_LANE_H
#define RG_OPS_CUDA_LANE_H

#include "ops/backend.h"
#include "ops/cuda/device.h"
#include "ops/cuda/state.h"

enum { RG_CUDA_ROPES = 16, RG_CUDA_GRAPHS = 32 };

/* Launches of a step that came before. */
typedef struct rg_cuda_graph {
    uint64_t hash;      /* of the notes */
    size_t bytes;       /* of them; 0: none yet */
    void *executable;   /* NULL: they came once only */
    uint64_t last_used; /* by number of the step */
} rg_cuda_graph;

/* Memory that grows when a step needs more of it. */
typedef struct rg_cuda_room {
    void *at;
    size_t bytes;
} rg_cuda_room;

typedef struct rg_cuda_act {
    size_t offset; /* of its first value in the region, in bytes */
    int64_t stride;
} rg_cuda_act;

typedef struct rg_cuda_lane {
    rg_lane base; /* first */
    rg_reader reader;
    const rg_cuda *gpu; /* NULL: sizes are found, and nothing is computed */
    rg_pool *pool;
    void *stream;
    uint8_t *arena; /* of the device */
    size_t arena_bytes, used, peak;
    rg_cuda_act at[RG_MAX_ACTS];
    rgk_batch batch; /* of the present step, on the device */
    const rg_cuda_group *groups;
    int n_segments;  /* of the row that sees most keys */
    rg_cuda_room staged, sent; /* what a step is made of, on the host and on the device */
    rg_cuda_room rows, rest;   /* results, on the host; rows that had to be copied after them (results.c) */
    const rgk_pick *picks;     /* of the present step, on the device */
    rgk_drawn *drawn;          /* lists of what can be drawn, on the device; NULL: there are none */
    int drawn_room, n_drawn;   /* ids that a list has room for; rows that have one */
    float **row;               /* [most_wanted] rows of logits that came whole; NULL: there is a list */
    bool *whole;               /* [most_wanted] true: all logits of the row are copied */
    int most_wanted;
    float *hidden, *scores;    /* where they lie in `rows` */
    float *filled;             /* [n_threads] a row for each thread */
    size_t filled_bytes;
    struct {
        const rg_rope *rope;
        double *frequency; /* of the device */
    } ropes[RG_CUDA_ROPES];
    int n_ropes;
    uint8_t *notes;  /* launches that have not begun */
    size_t n_notes, notes_room;
    rg_cuda_graph graphs[RG_CUDA_GRAPHS];
    uint64_t n_steps, n_replayed, n_launches; /* for who wants to know: steps, those by a graph, launches noted */
    rg_fwd f;
    const rg_step *step;
    rg_outputs out;
    int next; /* of the wanted rows, to be handed out */
    rg_error *err; /* of measuring */
    bool ok;
} rg_cuda_lane;

static inline rg_cuda_lane *rg_cuda_lane_of(const rg_reader *r)
{
    return (rg_cuda_lane *)(uintptr_t)((const char *)r - offsetof(rg_cuda_lane, reader));
}

/* Where an activation lies. */
static inline rgk_rows rg_cuda_rows_of(const rg_cuda_lane *l, const rg_fwd *f, const rg_act *a)
{
    const rg_cuda_act *at = &l->at[a - f->acts];

    return (rgk_rows){ (float *)(void *)(l->arena + at->offset), at->stride };
}

/* Room above the activations, for the present operation; what is asked for first is there longest.  In a measuring lane
 * only its size counts. */
void *rg_cuda_take(rg_cuda_lane *l, size_t n, size_t each);
/* Note a launch of a kernel; params is copied. */
void rg_cuda_launch_on(rg_cuda_lane *l, rgk_kernel kernel, unsigned x, unsigned y, unsigned z, unsigned threads,
                       size_t dynamic, void *params);

/* Begin what has been noted. */
void rg_cuda_begin(rg_cuda_lane *l);
/* The same at the end of a step: by a graph, if it is one that came before. */
void rg_cuda_begin_step(rg_cuda_lane *l);
void rg_cuda_free_graphs(rg_cuda_lane *l);

/* Compute an operation, or, measuring, find its room.  False and l->err: it cannot be computed. */
bool rg_cuda_compute(rg_cuda_lane *l, rg_fwd *f, const rg_op *op);
/* Frequencies and factors of a rope on the device (rgk_rotate_params). */
const double *rg_cuda_frequencies(rg_cuda_lane *l, const rg_rope *rope);

/* At least so many bytes of the host's memory that the device copies from and to by itself, or of the device's; what
 * was there is lost where it grows. */
void *rg_cuda_room_for(rg_cuda_lane *l, rg_cuda_room *r, size_t bytes, bool of_host);

/* What the device looks for in a row; k 0: nothing. */
rgk_pick rg_cuda_pick_of(const rg_pick *p);
/* Room that lists of what can be drawn of so many rows take at most. */
size_t rg_cuda_most_drawn_bytes(int n_rows);
/* When the text has ended, note the launch that makes these lists, if any row is picked from. */
void rg_cuda_draw(rg_cuda_lane *l);
/* When the step has begun, ask for what it is to give; when that has arrived, get what turns out to be missing, and
 * hand all of it to the sink. */
void rg_cuda_collect(rg_cuda_lane *l);
void rg_cuda_collect_rest(rg_cuda_lane *l);
void rg_cuda_deliver(rg_cuda_lane *l);
void rg_cuda_free_results(rg_cuda_lane *l);

void rg_cuda_add_lane(rg_backend *b);

#endif
