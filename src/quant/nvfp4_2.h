/* nvfp4_2.h -- 32 values of NVFP4 in a tensor with a scale of its own: w = ((s a) / b) v, v the doubled value.
 *
 * No file holds these blocks: the reader of Hugging Face folders makes them.  One producer multiplies by the tensor's
 * scale (a = scale / 2, b = 1), another divides by it (a = 1/2, b = scale): two roundings that differ.  All blocks of a
 * row have the same a and b. */
#ifndef RG_QUANT_NVFP4_2_H
#define RG_QUANT_NVFP4_2_H

#include "quant/nvfp4.h"

typedef struct block_nvfp4_2 {
    uint8_t a[4], b[4]; /* f32 */
    uint8_t s[2];       /* e4m3, of each 16 values */
    uint8_t q[16];      /* low nibble: value i; high nibble: value 16 + i */
} block_nvfp4_2;

static void nvfp4_2_ints(const void *block, rg_ints *out)
{
    const block_nvfp4_2 *b = block;

    out->table = fp4_doubled;
    out->a = loadf(b->a);
    out->b = loadf(b->b);
    memcpy(out->scales, b->s, sizeof b->s);
    load_nibbles(b->q, out->q);
}

static inline void nvfp4_2_put(const rg_ints *ints, block_nvfp4_2 *b)
{
    storef(b->a, ints->a);
    storef(b->b, ints->b);
    memcpy(b->s, ints->scales, sizeof b->s);
    store_nibbles(b->q, ints->q);
}

static void nvfp4_2_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_nvfp4_2 *b = blocks;

    for (; n_blocks--; b++, y += 32)
        for (int i = 0; i < 16; i++) {
            y[i] = value_table(scale_with_factors(b->s[0], loadf(b->a), loadf(b->b)), fp4_doubled[b->q[i] & 15]);
            y[16 + i] = value_table(scale_with_factors(b->s[1], loadf(b->a), loadf(b->b)), fp4_doubled[b->q[i] >> 4]);
        }
}

/* All blocks of a row have the scale under which the largest value becomes 6 * 448. */
static void nvfp4_2_encode(const float *x, int64_t n_blocks, void *blocks)
{
    block_nvfp4_2 *b = blocks;
    float most = fabsf(extreme(x, (int)(32 * n_blocks)));
    float a = 0.5f * (most > 0.0f && !isinf(most) ? most / 2688.0f : 1.0f);

    for (; n_blocks--; b++, x += 32) {
        float d[2];

        storef(b->a, a);
        storef(b->b, 1.0f);
        for (int h = 0; h < 2; h++) {
            b->s[h] = rg_f32_to_e4m3(fabsf(extreme(x + 16 * h, 16)) / 12.0f / a);
            d[h] = scale_with_factors(b->s[h], a, 1.0f);
        }
        for (int i = 0; i < 16; i++)
            b->q[i] =
                (uint8_t)(nearest_code(fp4_doubled, d[0], x[i]) | nearest_code(fp4_doubled, d[1], x[16 + i]) << 4);
    }
}

#endif
