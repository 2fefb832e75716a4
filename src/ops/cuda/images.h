/* images.h -- machine code of the kernels for GPUs of some compute capabilities, made when ridge is built. */
#ifndef RG_OPS_CUDA_IMAGES_H
#define RG_OPS_CUDA_IMAGES_H

#include <stddef.h>

typedef struct rg_cuda_image {
    int capability; /* 90: of 9.0 */
    const unsigned char *bytes;
    size_t n;
} rg_cuda_image;

/* Up to one of capability 0, the only one where there was no compiler of CUDA.  Made by scripts/cubins.cmake. */
extern const rg_cuda_image rg_cuda_images[];

#endif
