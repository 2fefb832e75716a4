/* fp8.h -- 128 values of e4m3 under an f32 scale: w = d v.
 *
 * No file holds these blocks: the reader of Hugging Face folders makes them of weights and scales in tensors apart. */
#ifndef RG_QUANT_FP8_H
#define RG_QUANT_FP8_H

#include "quant/block.h"

typedef struct block_fp8 {
    uint8_t d[4]; /* f32 */
    uint8_t q[128];
} block_fp8;

static void fp8_ints(const void *block, rg_ints *out)
{
    const block_fp8 *b = block;

    out->f = loadf(b->d);
    memcpy(out->q, b->q, sizeof b->q);
}

static inline void fp8_put(const rg_ints *ints, block_fp8 *b)
{
    storef(b->d, ints->f);
    memcpy(b->q, ints->q, sizeof b->q);
}

static void fp8_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_fp8 *b = blocks;

    for (; n_blocks--; b++, y += 128)
        for (int i = 0; i < 128; i++)
            y[i] = value_table(loadf(b->d), rg_e4m3_to_f32(b->q[i]));
}

/* The largest value becomes 448. */
static void fp8_encode(const float *x, int64_t n_blocks, void *blocks)
{
    block_fp8 *b = blocks;

    for (; n_blocks--; b++, x += 128) {
        float d = fabsf(extreme(x, 128)) / 448.0f, inverse = reciprocal(d);

        storef(b->d, d);
        for (int i = 0; i < 128; i++)
            b->q[i] = rg_f32_to_e4m3(x[i] * inverse);
    }
}

#endif
