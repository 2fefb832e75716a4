/* launch.c -- launches of a step: noted, begun, and replayed as graphs (lane.h). */
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "ops/cuda/lane.h"

enum { RELAXED = 2 }; /* a capture during which other threads may use the device */

/* What stands before the parameters of a noted launch. */
typedef struct note {
    uint32_t kernel, grid[3], threads, dynamic_bytes, param_bytes, all_bytes;
} note;

static const size_t param_bytes[RGK_KERNELS] = {
#define KERNEL(name, params) sizeof(rgk_##params##_params),
#include "ops/cuda/kernels.def"
#undef KERNEL
};

void rg_cuda_launch_on(rg_cuda_lane *l, rgk_kernel kernel, unsigned x, unsigned y, unsigned z, unsigned threads,
                       size_t dynamic, void *params)
{
    const size_t bytes = sizeof(note) + (param_bytes[kernel] + 15) / 16 * 16; /* fits: both are small */
    const note n = { (uint32_t)kernel, { x, y, z }, threads, (uint32_t)dynamic, (uint32_t)param_bytes[kernel],
                     (uint32_t)bytes };

    if (!l->gpu || !x || !y || !z)
        return;
    if (l->n_notes + bytes > l->notes_room) {
        const size_t room = 2 * l->notes_room + 64 * bytes; /* fits: a step has some thousand launches at most */
        uint8_t *notes = rg_resize(l->notes, room);

        RG_ASSERT(notes);
        l->notes = notes;
        l->notes_room = room;
    }
    memset(l->notes + l->n_notes, 0, bytes);
    memcpy(l->notes + l->n_notes, &n, sizeof n);
    memcpy(l->notes + l->n_notes + sizeof n, params, param_bytes[kernel]);
    l->n_notes += bytes;
    l->n_launches++;
}

static void launch_all(rg_cuda_lane *l)
{
    for (size_t at = 0; at < l->n_notes;) {
        note n;

        memcpy(&n, l->notes + at, sizeof n);
        rg_cuda_run(l->gpu, &(rg_cuda_launch){ (rgk_kernel)n.kernel, { n.grid[0], n.grid[1], n.grid[2] }, n.threads,
                                               n.dynamic_bytes, l->stream }, l->notes + at + sizeof n);
        at += n.all_bytes;
    }
}

void rg_cuda_begin(rg_cuda_lane *l)
{
    launch_all(l);
    l->n_notes = 0;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

static void forget(rg_cuda_lane *l, rg_cuda_graph *g)
{
    if (g->executable)
        rg_cuda_check(l->gpu, l->gpu->call.cuGraphExecDestroy(g->executable), "a graph");
    *g = (rg_cuda_graph){ 0 };
}

static void *capture(rg_cuda_lane *l)
{
    const rg_cuda_driver *call = &l->gpu->call;
    void *graph = NULL, *executable = NULL;

    rg_cuda_check(l->gpu, call->cuStreamBeginCapture_v2(l->stream, RELAXED), "a capture");
    launch_all(l);
    rg_cuda_check(l->gpu, call->cuStreamEndCapture(l->stream, &graph), "a capture");
    rg_cuda_check(l->gpu, call->cuGraphInstantiateWithFlags(&executable, graph, 0), "a graph");
    rg_cuda_check(l->gpu, call->cuGraphDestroy(graph), "a graph");
    return executable;
}

/* The graph of these notes, or the one that was not used for longest, which is to be theirs. */
static rg_cuda_graph *find(rg_cuda_lane *l, uint64_t hash)
{
    rg_cuda_graph *oldest = &l->graphs[0];

    for (int i = 0; i < RG_CUDA_GRAPHS; i++) {
        rg_cuda_graph *g = &l->graphs[i];

        if (g->bytes == l->n_notes && g->hash == hash)
            return g;
        oldest = g->last_used < oldest->last_used ? g : oldest;
    }
    forget(l, oldest);
    return oldest;
}

/* A step that comes for the second time is captured: most never do. */
void rg_cuda_begin_step(rg_cuda_lane *l)
{
    const uint64_t hash = rg_hash(l->notes, l->n_notes, 0);
    rg_cuda_graph *g = l->n_notes ? find(l, hash) : NULL;

    if (!g)
        return;
    g->last_used = l->n_steps;
    if (g->bytes && !g->executable)
        g->executable = capture(l);
    if (g->executable) {
        rg_cuda_check(l->gpu, l->gpu->call.cuGraphLaunch(g->executable, l->stream), "a graph");
        l->n_replayed++;
    } else {
        launch_all(l);
    }
    g->hash = hash;
    g->bytes = l->n_notes;
    l->n_notes = 0;
}

void rg_cuda_free_graphs(rg_cuda_lane *l)
{
    for (int i = 0; i < RG_CUDA_GRAPHS; i++)
        forget(l, &l->graphs[i]);
    rg_free(l->notes);
    if (l->n_steps)
        rg_log(RG_LOG_DEBUG, "GPU: %llu steps, %llu of them by graphs, %llu launches", (unsigned long long)l->n_steps,
               (unsigned long long)l->n_replayed, (unsigned long long)l->n_launches);
}
