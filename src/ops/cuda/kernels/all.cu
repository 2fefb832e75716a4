/* all.cu -- all kernels, for one image. */
#include "ops/cuda/kernels/attention.cu"
#include "ops/cuda/kernels/draw.cu"
#include "ops/cuda/kernels/mixture.cu"
#include "ops/cuda/kernels/product.cu"
#include "ops/cuda/kernels/rows.cu"
