/* images.c -- a build without a compiler of CUDA. */
#include "ops/cuda/images.h"

__attribute__((weak)) const rg_cuda_image rg_cuda_images[] = { { 0 } };
