/* kernels.c -- the kernels that the emulated driver finds by name. */
#include "ops/cuda/params.h"

#include "support/cuda/block.h"

#define KERNEL(name, params) EMULATED_RUN(name, params)
#include "ops/cuda/kernels.def"
#undef KERNEL

const emulated_kernel emulated_kernels[] = {
#define KERNEL(name, params) EMULATED_KERNEL(name, params)
#include "ops/cuda/kernels.def"
#undef KERNEL
    { NULL, NULL, 0 },
};
