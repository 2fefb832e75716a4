/* zero_point.h -- integers with a zero point under an f32 scale: w = d (q - z).
 *
 * No file holds these blocks: the reader of Hugging Face folders makes them of what GPTQ, AWQ, compressed-tensors and
 * others store in tensors apart, for groups of 32 columns, and of 128 and more. */
#ifndef RG_QUANT_ZERO_POINT_H
#define RG_QUANT_ZERO_POINT_H

#include "quant/block.h"

typedef struct block_zero_point {
    uint8_t d[4]; /* f32 */
    uint8_t z;
    uint8_t q[]; /* bytes; or nibbles, so for each 32 values: low, value i; high, value 16 + i */
} block_zero_point;

static inline void zero_point_ints(const block_zero_point *b, bool nibbles, int n, rg_ints *out)
{
    out->f = loadf(b->d);
    out->zero = b->z;
    if (!nibbles)
        memcpy(out->q, b->q, (size_t)n);
    for (int i = 0; nibbles && i < n; i += 32)
        load_nibbles(b->q + i / 2, out->q + i);
}

static inline void zero_point_put(const rg_ints *ints, bool nibbles, int n, block_zero_point *b)
{
    storef(b->d, ints->f);
    b->z = ints->zero;
    if (!nibbles)
        memcpy(b->q, ints->q, (size_t)n);
    for (int i = 0; nibbles && i < n; i += 32)
        store_nibbles(b->q + i / 2, ints->q + i);
}

static inline void zero_point_decode(const block_zero_point *b, bool nibbles, int n, float *y)
{
    rg_ints ints;

    zero_point_ints(b, nibbles, n, &ints);
    for (int i = 0; i < n; i++)
        y[i] = value_scale(ints.f, ints.q[i], ints.zero);
}

/* From the least to the largest value, 0 included. */
static inline void zero_point_encode(const float *x, bool nibbles, int n, block_zero_point *b)
{
    int most = nibbles ? 15 : 255;
    float low, high, inverse;
    rg_ints ints;

    range(x, n, &low, &high);
    low = low < 0.0f ? low : 0.0f;
    high = high > 0.0f ? high : 0.0f;
    ints.f = (high - low) / (float)most;
    inverse = reciprocal(ints.f);
    ints.zero = (uint8_t)round_into(-low * inverse, 0, most);
    for (int i = 0; i < n; i++)
        ints.q[i] = (uint8_t)round_into(x[i] * inverse + (float)ints.zero, 0, most);
    zero_point_put(&ints, nibbles, n, b);
}

#define ZERO_POINT(name, nibbles, n)                                                                                   \
    enum { name##_bytes = 5 + n / (nibbles ? 2 : 1) };                                                                 \
                                                                                                                       \
    static void name##_ints(const void *block, rg_ints *out)                                                           \
    {                                                                                                                  \
        zero_point_ints(block, nibbles, n, out);                                                                       \
    }                                                                                                                  \
                                                                                                                       \
    static void name##_decode(const void *blocks, int64_t n_blocks, float *y)                                          \
    {                                                                                                                  \
        for (const uint8_t *p = blocks; n_blocks--; p += name##_bytes, y += n)                                         \
            zero_point_decode((const void *)p, nibbles, n, y);                                                         \
    }                                                                                                                  \
                                                                                                                       \
    static void name##_encode(const float *x, int64_t n_blocks, void *blocks)                                          \
    {                                                                                                                  \
        for (uint8_t *p = blocks; n_blocks--; p += name##_bytes, x += n)                                               \
            zero_point_encode(x, nibbles, n, (void *)p);                                                               \
    }

ZERO_POINT(int4, true, 32)
ZERO_POINT(int4_128, true, 128)
ZERO_POINT(int8, false, 32)
ZERO_POINT(int8_128, false, 128)

#endif
