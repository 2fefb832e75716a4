/* emulator_kernels.c -- small kernels on which the emulator is tried. */
#include "ops/cuda/emulator_kernels.h"

#define RGK_EMULATED "support/cuda/emulate.h"
#define RG_OPS_CUDA_PARAMS_H /* its kernels are others */
#include "../../../src/ops/cuda/kernels/device.h"

#include "support/cuda/block.h"

RGK_KERNEL(places, places)
{
    int32_t *y = p.y[RGK_BLOCK_X * RGK_THREADS + RGK_THREAD];

    y[0] = RGK_THREAD;
    y[1] = RGK_THREADS;
    y[2] = RGK_BLOCK_X;
    y[3] = RGK_BLOCK_Y;
    y[4] = RGK_BLOCK_Z;
}

RGK_KERNEL(sums, sums)
{
    RGK_DYNAMIC;
    float *sums = (float *)(void *)rgk_dynamic;

    sums[RGK_THREAD] = p.x[RGK_BLOCK_X * RGK_THREADS + RGK_THREAD];
    rgk_sync();
    for (int half = RGK_THREADS / 2; half; half /= 2) {
        if (RGK_THREAD >= half)
            return;
        sums[RGK_THREAD] += sums[RGK_THREAD + half];
        rgk_sync();
    }
    p.y[RGK_BLOCK_X] = sums[0];
}

RGK_KERNEL(turned, turned)
{
    p.y[RGK_THREAD] = rgk_shuffle(p.x[RGK_THREAD], (RGK_THREAD + p.by) % RGK_WARP);
    rgk_sync_warp();
}

RGK_DEVICE uint32_t pair(const uint16_t *at, int next)
{
    return at[0] | (uint32_t)at[next] << 16;
}

RGK_KERNEL(product, product)
{
    const int g = RGK_THREAD / 4, t = RGK_THREAD % 4;
    uint32_t a[4], b[2];
    float c[4];

    for (int i = 0; i < 4; i++) {
        a[i] = pair(&p.a[(g + 8 * (i % 2)) * 16 + 2 * t + 8 * (i / 2)], 1);
        c[i] = p.c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
    }
    for (int i = 0; i < 2; i++)
        b[i] = pair(&p.b[(2 * t + 8 * i) * 8 + g], 8);
    rgk_mma(c, a, b);
    for (int i = 0; i < 4; i++)
        p.c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = c[i];
}

RGK_KERNEL(pipeline, pipeline)
{
    RGK_SHARED _Alignas(16) uint32_t rows[2][64][4];
    uint32_t sum[4] = { 0 };

    for (int i = 0; i < p.n + 2; i++) {
        if (i < p.n)
            rgk_copy(rows[i % 2][RGK_THREAD], &p.x[(i * RGK_THREADS + RGK_THREAD) * 4], i < p.n - 1);
        rgk_copy_commit();
        if (i < 1 || i > p.n)
            continue;
        if (p.waits)
            rgk_copy_wait(1);
        for (int k = 0; k < 4; k++)
            sum[k] += rows[(i - 1) % 2][RGK_THREAD][k];
    }
    for (int k = 0; k < 4; k++)
        p.y[RGK_THREAD * 4 + k] = sum[k];
}

RGK_KERNEL(words, words)
{
    p.sum[RGK_THREAD] = rgk_add_bf16x2(p.a[RGK_THREAD], p.b[RGK_THREAD]);
    p.bytes[RGK_THREAD] = rgk_bytes(p.a[RGK_THREAD], p.b[RGK_THREAD], p.which);
}

RGK_KERNEL(shared, shared)
{
    RGK_SHARED uint32_t fixed[4];
    RGK_DYNAMIC;

    for (int i = 0; i < 4; i++) {
        p.y[i] = fixed[i];
        p.y[4 + i] = ((uint32_t *)(void *)rgk_dynamic)[i];
        fixed[i] = (uint32_t)i;
        ((uint32_t *)(void *)rgk_dynamic)[i] = (uint32_t)i;
    }
}

RGK_KERNEL_OF(wrong, wrong, 64, 1)
{
    RGK_DYNAMIC;

    switch (p.kind) {
    case RGK_ONE_RETURNS_NOT:
        if (RGK_THREAD == 3)
            rgk_sync_warp();
        rgk_sync();
        break;
    case RGK_TWO_BARRIERS:
        if (RGK_THREAD == 3)
            rgk_sync();
        else
            rgk_sync();
        break;
    case RGK_LANES_DIFFER:
        if (RGK_THREAD == 3)
            p.y[0] = rgk_shuffle(1.0f, 0);
        else
            rgk_sync_warp();
        break;
    case RGK_LANE_IS_MISSING:
        if (RGK_THREAD != 3)
            p.y[0] = rgk_shuffle(1.0f, 0);
        break;
    case RGK_NO_SUCH_LANE:
        p.y[0] = rgk_shuffle(1.0f, 32);
        break;
    case RGK_SKEW_LOAD:
        p.y[0] = (float)rgk_load(p.y + 1).v[0];
        break;
    case RGK_INEXACT:
        p.y[0] = (float)rgk_add_bf16x2(0x3f80u, 0x3b80u | 0x3b80u << 16);
        break;
    case RGK_PAST_SHARED:
        rgk_dynamic[p.n] = 1;
        break;
    default:
        p.y[p.n] = 1.0f;
    }
}

EMULATOR_KERNELS(EMULATED_RUN)

const emulated_kernel emulated_kernels[] = {
    EMULATOR_KERNELS(EMULATED_KERNEL)
    { NULL, NULL, 0 },
};
