/* nvfp4.h -- 64 values of e2m1, a scale of e4m3 without sign for each 16: w = (s / 2) v, v the doubled value. */
#ifndef RG_QUANT_NVFP4_H
#define RG_QUANT_NVFP4_H

#include "quant/fp4.h"

typedef struct block_nvfp4 {
    uint8_t s[4];
    uint8_t q[4][8]; /* of each 16: low nibble: value i; high nibble: value 8 + i */
} block_nvfp4;

/* In this format NaN is a zero, and there are no signs. */
static inline uint8_t nvfp4_scale(uint8_t s)
{
    return (s & 0x7f) == 0x7f ? 0 : s & 0x7f;
}

static void nvfp4_ints(const void *block, rg_ints *out)
{
    const block_nvfp4 *b = block;

    out->table = fp4_doubled;
    out->a = 0.5f;
    out->b = 1.0f;
    for (int run = 0; run < 4; run++) {
        out->scales[run] = nvfp4_scale(b->s[run]);
        for (int i = 0; i < 8; i++) {
            out->q[16 * run + i] = b->q[run][i] & 15;
            out->q[16 * run + 8 + i] = b->q[run][i] >> 4;
        }
    }
}

static void nvfp4_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_nvfp4 *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 64) {
        nvfp4_ints(b, &ints);
        for (int i = 0; i < 64; i++)
            y[i] = value_table(scale_with_factors(ints.scales[i / 16], 0.5f, 1.0f), fp4_doubled[ints.q[i]]);
    }
}

/* The squared error of 16 values under a scale, and their codes. */
static inline float nvfp4_codes(const float *x, uint8_t s, uint8_t q[8])
{
    float d = 0.5f * rg_e4m3_to_f32(s), error = 0.0f;

    for (int i = 0; i < 8; i++) {
        int low = nearest_code(fp4_doubled, d, x[i]), high = nearest_code(fp4_doubled, d, x[8 + i]);
        float off_low = d * fp4_doubled[low] - x[i], off_high = d * fp4_doubled[high] - x[8 + i];

        q[i] = (uint8_t)(low | high << 4);
        error += off_low * off_low + off_high * off_high;
    }
    return error;
}

/* The scales around the one under which the largest value becomes 6, the largest of a code: the best of them. */
static void nvfp4_encode(const float *x, int64_t n_blocks, void *blocks)
{
    block_nvfp4 *b = blocks;

    for (; n_blocks--; b++)
        for (int run = 0; run < 4; run++, x += 16) {
            int middle = rg_f32_to_e4m3(fabsf(extreme(x, 16)) / 6.0f);
            float least = INFINITY;
            uint8_t q[8];

            b->s[run] = (uint8_t)middle;
            nvfp4_codes(x, b->s[run], b->q[run]);
            for (int s = middle - 2; middle > 2 && s <= middle + 6 && s < 0x7f; s++) {
                float error = nvfp4_codes(x, (uint8_t)s, q);
                if (error < least) {
                    least = error;
                    b->s[run] = (uint8_t)s;
                    memcpy(b->q[run], q, sizeof q);
                }
            }
        }
}

#endif
