/* nf4.h -- 32 codes of a table of 16 reals under an f32 scale: w = d table[q]; nf4's table, and fp4's.
 *
 * No file holds these blocks: the reader of Hugging Face folders makes them of what bitsandbytes stores in tensors
 * apart. */
#ifndef RG_QUANT_NF4_H
#define RG_QUANT_NF4_H

#include "quant/fit_table.h"

/* Quantiles of a normal distribution, so that 0 is one of them. */
static const float nf4_table[16] = {
    -1.0f,         -0x1.647362p-1f, -0x1.0cd66p-1f,  -0x1.94654p-2f,  -0x1.23449ap-2f, -0x1.7a6a7ep-3f,
    -0x1.74f0e2p-4f, 0.0f,          0x1.45f5fep-4f,  0x1.4995c6p-3f,  0x1.f809bap-3f,  0x1.5a0674p-2f,
    0x1.c34970p-2f,  0x1.200f56p-1f, 0x1.722766p-1f, 1.0f,
};

static const float fp4_table[16] = {
    0.0f, 1.0f / 192.0f,  2.0f / 3.0f,  1.0f,  1.0f / 3.0f,  0.5f,  1.0f / 6.0f,  0.25f,
    0.0f, -1.0f / 192.0f, -2.0f / 3.0f, -1.0f, -1.0f / 3.0f, -0.5f, -1.0f / 6.0f, -0.25f,
};

typedef struct block_nf4 {
    uint8_t d[4];  /* f32 */
    uint8_t q[16]; /* low nibble: value i; high nibble: value 16 + i */
} block_nf4;

static inline void nf4_ints_of(const block_nf4 *b, const float *table, rg_ints *out)
{
    out->table = table;
    out->f = loadf(b->d);
    load_nibbles(b->q, out->q);
}

static inline void nf4_put(const rg_ints *ints, block_nf4 *b)
{
    storef(b->d, ints->f);
    store_nibbles(b->q, ints->q);
}

static inline void nf4_decode_of(const block_nf4 *b, const float *table, float *y)
{
    float d = loadf(b->d);

    for (int i = 0; i < 16; i++) {
        y[i] = value_table(d, table[b->q[i] & 15]);
        y[16 + i] = value_table(d, table[b->q[i] >> 4]);
    }
}

/* The largest magnitude is the scale. */
static inline void nf4_encode_of(const float *x, const float *table, block_nf4 *b)
{
    float d = fabsf(extreme(x, 32));

    storef(b->d, d);
    for (int i = 0; i < 16; i++)
        b->q[i] = (uint8_t)(nearest_code(table, d, x[i]) | nearest_code(table, d, x[16 + i]) << 4);
}

#define NF4(name)                                                                                                      \
    static void name##_ints(const void *block, rg_ints *out)                                                           \
    {                                                                                                                  \
        nf4_ints_of(block, name##_table, out);                                                                         \
    }                                                                                                                  \
                                                                                                                       \
    static void name##_decode(const void *blocks, int64_t n_blocks, float *y)                                          \
    {                                                                                                                  \
        for (const block_nf4 *b = blocks; n_blocks--; b++, y += 32)                                                    \
            nf4_decode_of(b, name##_table, y);                                                                         \
    }                                                                                                                  \
                                                                                                                       \
    static void name##_encode(const float *x, int64_t n_blocks, void *blocks)                                          \
    {                                                                                                                  \
        for (block_nf4 *b = blocks; n_blocks--; b++, x += 32)                                                          \
            nf4_encode_of(x, name##_table, b);                                                                         \
    }

NF4(nf4)
NF4(fp4)

#endif
