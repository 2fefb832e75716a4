/* matrix.h -- values of a matrix in the device's memory (params.h says how it lies). */
#ifndef RG_OPS_CUDA_KERNELS_MATRIX_H
#define RG_OPS_CUDA_KERNELS_MATRIX_H

#include "ops/cuda/kernels/device.h"

enum { /* bytes of a slab: codes, and where what follows them begins */
    RGK_BF16_SLAB = 8192,
    RGK_I8_CODES = 4096, RGK_I8_SLAB = 4352,
    RGK_I4_CODES = 2048, RGK_I4_SLAB = 2304,
    RGK_K4_ST = 2112, RGK_K4_SLAB = 2368,
    RGK_G8_MIN = 5120, RGK_G8M_SLAB = 6144,
};

RGK_DEVICE float rgk_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = (uint32_t)(h & 0x7fff) << 13;
    const uint32_t finite = rg_bits_of(rg_float_of(magnitude) * 0x1p112f), special = magnitude | 0x7f800000u;

    return rg_float_of(sign | (magnitude >= 0x0f800000u ? special : finite));
}

RGK_DEVICE float rgk_from_bf16(uint16_t h)
{
    return rg_float_of((uint32_t)h << 16);
}

/* To nearest, ties to even; NaN stays NaN. */
RGK_DEVICE uint16_t rgk_to_bf16(float x)
{
    const uint32_t bits = rg_bits_of(x), rounded = bits + 0x7fff + (bits >> 16 & 1);

    return (uint16_t)((x != x ? bits | 0x400000 : rounded) >> 16);
}

RGK_DEVICE int rgk_slab_bytes(int layout)
{
    return layout == RGK_BF16 ? RGK_BF16_SLAB
         : layout == RGK_I8   ? RGK_I8_SLAB
         : layout == RGK_I4   ? RGK_I4_SLAB
         : layout == RGK_K4   ? RGK_K4_SLAB
         : layout == RGK_G8   ? RGK_G8_MIN
                              : RGK_G8M_SLAB;
}

/* The value at a row of a panel and a column, as the exact recipe decodes it. */
RGK_DEVICE float rgk_value(const rgk_matrix *m, const uint8_t *panel, int row, int col)
{
    const int in_slab = col % RGK_SLAB, run = in_slab / RGK_RUN, j = in_slab % RGK_RUN / 16, t = in_slab % 16 / 4;
    const int i = in_slab % 4, h = row / 8, lane = row % 8 * 4 + t, g = row % 8 * 2 + h;
    const uint8_t *slab = panel + (int64_t)(col / RGK_SLAB) * rgk_slab_bytes(m->layout);

    if (m->layout == RGK_F32)
        return ((const float *)(const void *)panel)[(int64_t)col * RGK_PANEL + row];
    if (m->layout == RGK_F16)
        return rgk_from_f16(((const uint16_t *)(const void *)panel)[(int64_t)col * RGK_PANEL + row]);
    if (m->layout == RGK_BF16)
        return rgk_from_bf16(((const uint16_t *)(const void *)slab)[((run * 2 + h) * 32 + lane) * 8 + 4 * j + i]);
    if (m->layout == RGK_I8 || m->layout == RGK_G8 || m->layout == RGK_G8M) {
        const float q = (float)(slab[run * 512 + lane * 16 + h * 8 + 4 * j + i] - 128);
        const float *d = (const float *)(const void *)(slab + RGK_I8_CODES), *min = d + 256;
        const int group = (run * 2 + j) * 16 + g;

        if (m->layout == RGK_I8)
            return rgk_from_f16(((const uint16_t *)(const void *)d)[run * 16 + g]) * q;
        return m->layout == RGK_G8 ? d[group] * q : d[group] * q - min[group];
    }
    const uint8_t *word = slab + run / 2 * 512 + lane * 16 + run % 2 * 8 + h * 4;
    const int nibble = 2 * j + i / 2 + i % 2 * 4, q = word[nibble / 2] >> nibble % 2 * 4 & 15;
    const uint16_t *d = (const uint16_t *)(const void *)(slab + RGK_I4_CODES);

    if (m->layout == RGK_I4)
        return rgk_from_f16(d[run * 16 + g]) * (float)(q - 8);
    const uint8_t *st = slab + RGK_K4_ST + (run * 16 + g) * 2;
    const float scaled = rgk_from_f16(d[2 * g]) * (float)st[0] * (float)q;
    return scaled - rgk_from_f16(d[2 * g + 1]) * (float)st[1];
}

#endif
