/* device.h -- the GPU: its driver, which is looked for when ridge runs, and the kernels on it.
 *
 * One GPU, the first that the driver shows (CUDA_VISIBLE_DEVICES chooses it).  A fault of the GPU in a step cannot be
 * mended: it is reported, and the process ends. */
#ifndef RG_OPS_CUDA_DEVICE_H
#define RG_OPS_CUDA_DEVICE_H

#include "base/error.h"
#include "ops/cuda/params.h"

typedef struct rg_cuda_driver {
#define CALL(name, arguments) int (*name) arguments;
#include "ops/cuda/driver.def"
#undef CALL
} rg_cuda_driver;

typedef enum rgk_kernel {
#define KERNEL(name, params) RGK_KERNEL_##name,
#include "ops/cuda/kernels.def"
#undef KERNEL
    RGK_KERNELS
} rgk_kernel;

typedef struct rg_cuda {
    rg_cuda_driver call;
    void *context;
    char name[128];
    int capability;   /* 90: 9.0 */
    int n_processors;
    void *kernel[RGK_KERNELS];
} rg_cuda;

/* True if there is a driver; whether it has a GPU is not asked. */
bool rg_cuda_has_driver(void);
/* The GPU, opened at the first call; NULL and *err: there is no driver, no GPU, or no code for it.  Any thread. */
const rg_cuda *rg_cuda_device(rg_error *err);

/* The calling thread uses the GPU from now on: before anything below. */
void rg_cuda_enter(const rg_cuda *c);
/* Ends the process unless code is 0. */
void rg_cuda_check(const rg_cuda *c, int code, const char *what);

/* Memory of the device; all zeros.  NULL and *err: there is no room. */
void *rg_cuda_alloc(const rg_cuda *c, size_t bytes, rg_error *err);
void rg_cuda_free(const rg_cuda *c, void *at); /* NULL is fine */
/* Wait until it is done. */
void rg_cuda_upload(const rg_cuda *c, void *to, const void *from, size_t bytes);
void rg_cuda_download(const rg_cuda *c, void *to, const void *from, size_t bytes);

typedef struct rg_cuda_launch {
    rgk_kernel kernel;
    unsigned grid[3];
    unsigned threads, dynamic_bytes;
    void *stream;
} rg_cuda_launch;

void rg_cuda_run(const rg_cuda *c, const rg_cuda_launch *l, void *params);

#endif
