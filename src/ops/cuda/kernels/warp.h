/* warp.h -- sums and maxima over the lanes of a warp. */
#ifndef RG_OPS_CUDA_KERNELS_WARP_H
#define RG_OPS_CUDA_KERNELS_WARP_H

#include "ops/cuda/kernels/device.h"

/* The sum of lanes 0 to 15 in the order of rg_tree16, to all lanes. */
RGK_DEVICE float rgk_tree16(float l)
{
    const int lane = RGK_THREAD % RGK_WARP;

    RGK_UNROLL
    for (int n = 8; n > 0; n /= 2) {
        const float other = rgk_shuffle(l, (lane + n) % RGK_WARP);
        l = lane < n ? l + other : l;
    }
    return rgk_shuffle(l, 0);
}

/* The largest of all lanes, to all; no lane has a NaN. */
RGK_DEVICE float rgk_warp_max(float v)
{
    const int lane = RGK_THREAD % RGK_WARP;

    RGK_UNROLL
    for (int n = 16; n > 0; n /= 2) {
        const float other = rgk_shuffle(v, lane ^ n);
        v = other > v ? other : v;
    }
    return v;
}

#endif
