/* backend.c -- CUDA as a back end: the record. */
#include "ops/backend.h"

#include <pthread.h>
#include <string.h>

#include "ops/cuda/lane.h"
#include "ops/cuda/place.h"

static bool is_fast(const rg_backend *b, rg_type weights)
{
    rgk_layout layout;

    (void)b;
    return rg_cuda_layout_of(weights, &layout) && layout != RGK_F32 && layout != RGK_F16;
}

/* What is done in the host's memory the processor does. */
static const rg_backend *processor(void)
{
    return rg_backend_find("auto", NULL);
}

static void host_multiply(const rg_backend *b, const rg_host_product *p)
{
    (void)b;
    processor()->host_multiply(processor(), p);
}

static void host_activate(const rg_backend *b, rg_activation act, float *y, const float *x, size_t n)
{
    (void)b;
    processor()->host_activate(processor(), act, y, x, n);
}

static const rg_loops *host_loops(const rg_backend *b)
{
    (void)b;
    return processor()->host_loops(processor());
}

static double work(const rg_backend *b, rg_arithmetic kind, double n)
{
    (void)b;
    return processor()->work(processor(), kind, n);
}

static uint64_t stream(const rg_backend *b, const void *p, size_t n)
{
    (void)b;
    return processor()->stream(processor(), p, n);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static rg_backend cuda;

static void build(void)
{
    cuda = (rg_backend){ .name = "cuda", .by_name = true, .is_fast = is_fast, .host_multiply = host_multiply,
                         .host_activate = host_activate, .host_loops = host_loops, .work = work,
                         .stream = stream };
    rg_cuda_add_weights(&cuda);
    rg_cuda_add_state(&cuda);
    rg_cuda_add_lane(&cuda);
}

/* As backends.def wants it. */
const rg_backend *rg_cuda_backend(int i);
const rg_backend *rg_cuda_backend(int i)
{
    pthread_once(&once, build);
    return i == 0 && rg_cuda_has_driver() ? &cuda : NULL;
}

bool rg_cuda_backend_is_known(const char *name);
bool rg_cuda_backend_is_known(const char *name)
{
    return !strcmp(name, "cuda");
}
