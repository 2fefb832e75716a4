/* zero_point.h -- integers with a zero point under an f32 scale: w = d (q - z).
 *
 * No file holds these blocks: the reader of Hugging Face folders makes them of what GPTQ, AWQ and compressed-tensors
 * store in tensors apart, for groups of 32 columns or of 128 and more. */
#ifndef RG_QUANT_ZERO_POINT_H
#define RG_QUANT_ZERO_POINT_H

#include "quant/block.h"

enum { INT4_VALUES = 32, INT4_128_VALUES = 128, INT8_VALUES = 32, INT8_128_VALUES = 128 };

typedef struct block_int4 {
    uint8_t d[4]; /* f32 */
    uint8_t z;
    uint8_t q[16]; /* low nibble: value i; high nibble: value 16 + i; so for each 32 values */
} block_int4;

typedef struct block_int4_128 {
    uint8_t d[4];
    uint8_t z;
    uint8_t q[64];
} block_int4_128;

typedef struct block_int8 {
    uint8_t d[4]; /* f32 */
    uint8_t z;
    uint8_t q[32];
} block_int8;

typedef struct block_int8_128 {
    uint8_t d[4];
    uint8_t z;
    uint8_t q[128];
} block_int8_128;

static inline int zero_point_code(const uint8_t *q, bool nibbles, int i)
{
    return nibbles ? q[i / 32 * 16 + i % 16] >> i % 32 / 16 * 4 & 15 : q[i];
}

/* d and z lie alike in all four. */
static inline void zero_point_ints(const block_int4 *b, bool nibbles, int n, rg_ints *out)
{
    out->f = loadf(b->d);
    out->zero = b->z;
    for (int i = 0; i < n; i++)
        out->q[i] = (uint8_t)zero_point_code(b->q, nibbles, i);
}

static inline void zero_point_decode(const block_int4 *b, bool nibbles, int n, float *y)
{
    float d = loadf(b->d);

    for (int i = 0; i < n; i++)
        y[i] = value_scale(d, zero_point_code(b->q, nibbles, i), b->z);
}

/* From the least to the largest value, 0 included. */
static inline void zero_point_encode(const float *x, bool nibbles, int n, block_int4 *b)
{
    int most = nibbles ? 15 : 255;
    float low, high, d, inverse;

    range(x, n, &low, &high);
    low = low < 0.0f ? low : 0.0f;
    high = high > 0.0f ? high : 0.0f;
    d = (high - low) / (float)most;
    inverse = reciprocal(d);
    storef(b->d, d);
    b->z = (uint8_t)round_into(-low * inverse, 0, most);
    memset(b->q, 0, (size_t)(nibbles ? n / 2 : n));
    for (int i = 0; i < n; i++) {
        int q = round_into(x[i] * inverse + (float)b->z, 0, most);
        if (nibbles)
            b->q[i / 32 * 16 + i % 16] |= (uint8_t)(q << i % 32 / 16 * 4);
        else
            b->q[i] = (uint8_t)q;
    }
}

#define ZERO_POINT(name, NAME, nibbles)                                                                                \
    static void name##_ints(const void *block, rg_ints *out)                                                           \
    {                                                                                                                  \
        zero_point_ints(block, nibbles, NAME##_VALUES, out);                                                           \
    }                                                                                                                  \
                                                                                                                       \
    static void name##_decode(const void *blocks, int64_t n_blocks, float *y)                                          \
    {                                                                                                                  \
        for (const block_##name *b = blocks; n_blocks--; b++, y += NAME##_VALUES)                                      \
            zero_point_decode((const void *)b, nibbles, NAME##_VALUES, y);                                             \
    }                                                                                                                  \
                                                                                                                       \
    static void name##_encode(const float *x, int64_t n_blocks, void *blocks)                                          \
    {                                                                                                                  \
        for (block_##name *b = blocks; n_blocks--; b++, x += NAME##_VALUES)                                            \
            zero_point_encode(x, nibbles, NAME##_VALUES, (void *)b);                                                   \
    }

ZERO_POINT(int4, INT4, true)
ZERO_POINT(int4_128, INT4_128, true)
ZERO_POINT(int8, INT8, false)
ZERO_POINT(int8_128, INT8_128, false)

#endif
