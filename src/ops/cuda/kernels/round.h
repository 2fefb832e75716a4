/* round.h -- rows rounded to bf16, as products read them. */
#ifndef RG_OPS_CUDA_KERNELS_ROUND_H
#define RG_OPS_CUDA_KERNELS_ROUND_H

#include "ops/cuda/kernels/matrix.h"

/* Sixteen columns, the group-th of a row, of which n are there: x is the row's first value.  The places of a run's
 * columns are [t][j][i] (params.h); their sum goes in rising order. */
RGK_DEVICE void rgk_round_group(const rgk_rounded *r, int row, int group, const float *x, int n)
{
    uint32_t *to = (uint32_t *)(void *)(r->to + ((int64_t)row * r->n_slabs * 8 + group / 2) * RGK_RUN) + group % 2 * 2;
    float sum = 0.0f;

    RGK_UNROLL
    for (int k = 0; k < 16; k += 2) {
        const int col = group * 16 + k;
        const uint32_t two = rgk_round_bf16x2(col < n ? x[col] : 0.0f, col + 1 < n ? x[col + 1] : 0.0f);

        to[k / 4 * 4 + k % 4 / 2] = two;
        sum += rgk_from_bf16((uint16_t)two);
        sum += rgk_from_bf16((uint16_t)(two >> 16));
    }
    r->sums[(int64_t)row * r->n_slabs * 16 + group] = sum;
}

#endif
