/* device.c -- see device.h. */
#include "ops/cuda/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/images.h"

enum { MAJOR = 75, MINOR = 76, PROCESSORS = 16, DYNAMIC_BYTES = 8 }; /* numbers of attributes */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static rg_cuda device;
static rg_error fault;
static bool is_open;

static const char *error_text(const rg_cuda *c, int code)
{
    const char *text = NULL;

    if (c->call.cuGetErrorString(code, &text) || !text)
        return "unknown error";
    return text;
}

void rg_cuda_check(const rg_cuda *c, int code, const char *what)
{
    if (!code)
        return;
    fprintf(stderr, "ridge: the GPU failed: %s: %s (%d)\n", what, error_text(c, code), code);
    abort();
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void *library(void)
{
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

bool rg_cuda_has_driver(void)
{
    void *l = library();

    if (l)
        dlclose(l);
    return l;
}

static bool load_driver(rg_cuda *c, void **library_)
{
    void *l = *library_ = library();

    if (!l)
        return rg_fail(&fault, RG_E_UNSUPPORTED, "no driver of NVIDIA's GPUs is installed (libcuda.so.1)");
#define CALL(name, arguments)                                                                                          \
    *(void **)(void *)&c->call.name = dlsym(l, #name);                                                          \
    if (!c->call.name)                                                                                                 \
        return rg_fail(&fault, RG_E_UNSUPPORTED, "the driver of the GPU is too old: it has no %s", #name);
#include "ops/cuda/driver.def"
#undef CALL
    return true;
}

static bool open_context(rg_cuda *c)
{
    int n = 0, d = 0, major = 0, minor = 0, code = c->call.cuInit(0);

    if (!code)
        code = c->call.cuDeviceGetCount(&n);
    if (code || !n)
        return rg_fail(&fault, RG_E_UNSUPPORTED, "this machine has no GPU that CUDA can use");
    if ((code = c->call.cuDeviceGet(&d, 0)) || (code = c->call.cuDeviceGetName(c->name, sizeof c->name, d)) ||
        (code = c->call.cuDeviceGetAttribute(&major, MAJOR, d)) ||
        (code = c->call.cuDeviceGetAttribute(&minor, MINOR, d)) ||
        (code = c->call.cuDeviceGetAttribute(&c->n_processors, PROCESSORS, d)) ||
        (code = c->call.cuDevicePrimaryCtxRetain(&c->context, d)) || (code = c->call.cuCtxSetCurrent(c->context)))
        return rg_fail(&fault, RG_E_UNSUPPORTED, "the GPU cannot be opened: %s", error_text(c, code));
    c->capability = 10 * major + minor;
    return true;
}

/* Code for this GPU: of its own capability, or the best one of the same major number. */
static const void *image_for(const rg_cuda *c, void *driver)
{
    const void *emulated = dlsym(driver, "ridge_emulated_image"); /* the driver is an emulator, with code of its own */
    const rg_cuda_image *best = NULL;

    for (const rg_cuda_image *i = rg_cuda_images; i->capability; i++)
        if (i->capability / 10 == c->capability / 10 && i->capability <= c->capability &&
            (!best || i->capability > best->capability))
            best = i;
    return emulated ? emulated : best ? best->bytes : NULL;
}

static bool load_kernels(rg_cuda *c, void *driver)
{
    static const char *const names[] = {
#define KERNEL(name, params) "rgk_" #name,
#include "ops/cuda/kernels.def"
#undef KERNEL
    };
    const void *image = image_for(c, driver);
    void *module;
    int code;

    if (!image)
        return rg_fail(&fault, RG_E_UNSUPPORTED,
                       "this build has no code for GPUs of compute capability %d.%d (`scripts/setup cuda` brings the "
                       "compiler that makes it)", c->capability / 10, c->capability % 10);
    if ((code = c->call.cuModuleLoadData(&module, image)))
        return rg_fail(&fault, RG_E_UNSUPPORTED, "the GPU does not take the kernels: %s", error_text(c, code));
    for (int i = 0; i < RGK_KERNELS; i++)
        if ((code = c->call.cuModuleGetFunction(&c->kernel[i], module, names[i])) ||
            (code = c->call.cuFuncSetAttribute(c->kernel[i], DYNAMIC_BYTES, RGK_MOST_DYNAMIC)))
            return rg_fail(&fault, RG_E_UNSUPPORTED, "the GPU does not take the kernel %s: %s", names[i],
                           error_text(c, code));
    return true;
}

static void open_once(void)
{
    void *driver;

    is_open = load_driver(&device, &driver) && open_context(&device) && load_kernels(&device, driver);
}

const rg_cuda *rg_cuda_device(rg_error *err)
{
    pthread_once(&once, open_once);
    if (!is_open && err)
        *err = fault;
    return is_open ? &device : NULL;
}

void rg_cuda_enter(const rg_cuda *c)
{
    rg_cuda_check(c, c->call.cuCtxSetCurrent(c->context), "context");
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void *rg_cuda_alloc(const rg_cuda *c, size_t bytes, rg_error *err)
{
    size_t available = 0, total = 0;
    uint64_t at = 0;

    rg_cuda_enter(c);
    if (c->call.cuMemAlloc_v2(&at, bytes ? bytes : 1)) {
        c->call.cuMemGetInfo_v2(&available, &total);
        return rg_fail(err, RG_E_MEMORY, "the GPU has no room for %zu MB: %zu of %zu MB are free", bytes >> 20,
                       available >> 20, total >> 20),
               NULL;
    }
    rg_cuda_check(c, c->call.cuMemsetD8_v2(at, 0, bytes ? bytes : 1), "clearing memory");
    return (void *)(uintptr_t)at;
}

void rg_cuda_free(const rg_cuda *c, void *at)
{
    if (!at)
        return;
    rg_cuda_enter(c);
    rg_cuda_check(c, c->call.cuMemFree_v2((uintptr_t)at), "freeing memory");
}

void rg_cuda_upload(const rg_cuda *c, void *to, const void *from, size_t bytes)
{
    rg_cuda_enter(c);
    if (bytes)
        rg_cuda_check(c, c->call.cuMemcpyHtoD_v2((uintptr_t)to, from, bytes), "copying to it");
}

void rg_cuda_download(const rg_cuda *c, void *to, const void *from, size_t bytes)
{
    rg_cuda_enter(c);
    if (bytes)
        rg_cuda_check(c, c->call.cuMemcpyDtoH_v2(to, (uintptr_t)from, bytes), "copying from it");
}

void rg_cuda_run(const rg_cuda *c, const rg_cuda_launch *l, void *params)
{
    void *list[] = { params };

    if (!l->grid[0] || !l->grid[1] || !l->grid[2])
        return;
    rg_cuda_check(c, c->call.cuLaunchKernel(c->kernel[l->kernel], l->grid[0], l->grid[1], l->grid[2], l->threads, 1, 1,
                                            l->dynamic_bytes, l->stream, list, NULL), "a kernel");
}
